"""Requests and answers as bytes, over a connection without a socket."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.memory_network import MemoryStream
from odradek.wire.headers import encode_request_header, parse_response_header


def frame(request: Any, version: int) -> bytes:
    """A request with its size and header."""
    out = bytearray(4)
    encode_request_header(out, request.API_KEY, version, 7, "bench")
    request.encode(out, version)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return bytes(out)


async def ask(stream: MemoryStream, request: Any, response: Any, version: int) -> Any:
    """The decoded answer to one request."""
    answer = memoryview(await answer_to(stream, frame(request, version)))[4:]
    _, position = parse_response_header(answer, request.API_KEY, version)
    return response.decode(answer, position, version)[0]


async def answer_to(stream: MemoryStream, request: bytes) -> bytes:
    """The answer's bytes."""
    kept = stream.kept = bytearray()
    stream.give(request)
    while not kept:
        await asyncio.sleep(0.001)
    stream.kept = None
    return bytes(kept)


async def exchange(stream: MemoryStream, requests: bytes, answer_bytes: int) -> None:
    """Give the broker these requests; returns when it has sent so many bytes of answers."""
    expected = stream.sent + answer_bytes
    stream.give(requests)
    while stream.sent < expected:
        await asyncio.sleep(0)
