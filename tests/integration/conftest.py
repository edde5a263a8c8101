"""A plain blocking socket that speaks the protocol in any version, for requests that no client library would send."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.wire.apis import response_class
from odradek.wire.headers import encode_request_header, parse_response_header


class RawClient:
    """One connection; `call` sends a generated request message and decodes the answer."""

    def __init__(self, bootstrap: str, timeout: float = 20) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout)
        self._ids = itertools.count(1)

    def send(self, request: Any, version: int, client_id: str | None = "raw") -> tuple[int, int, int]:
        """Send without waiting; the token is for `receive`."""
        correlation_id = next(self._ids)
        out = bytearray(4)
        encode_request_header(out, request.API_KEY, version, correlation_id, client_id)
        request.encode(out, version)
        out[0:4] = (len(out) - 4).to_bytes(4, "big")
        self.socket.sendall(out)
        return request.API_KEY, version, correlation_id

    def receive(self, token: tuple[int, int, int]) -> Any:
        key, version, correlation_id = token
        frame = memoryview(self.receive_frame())
        found, position = parse_response_header(frame, key, version)
        assert found == correlation_id
        response, end = response_class(key).decode(frame, position, version)
        assert end == len(frame)
        return response

    def call(self, request: Any, version: int) -> Any:
        return self.receive(self.send(request, version))

    def receive_frame(self) -> bytes:
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError(f"closed by the broker after {len(data)} of {count} bytes")
            data += more
        return data

    def is_closed_by_peer(self) -> bool:
        """Wait until the broker closes the connection; False if it sends something or time runs out."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def connect() -> Iterator[Callable[[str], RawClient]]:
    """Opens raw connections to a bootstrap address and closes them after the test."""
    made: list[RawClient] = []

    def connect(bootstrap: str) -> RawClient:
        made.append(RawClient(bootstrap))
        return made[-1]

    yield connect
    for client in made:
        client.close()
