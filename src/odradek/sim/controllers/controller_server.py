"""The listener of a simulated controller: frames in, answers out, one after the other on each connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.api.requests.responses import encode_response
from odradek.ports.network import WOULD_BLOCK, Stream
from odradek.sim.controllers.model_quorum import CONTROLLER_PORT, ModelController
from odradek.sim.world.loop import Process
from odradek.sim.world.network import SimulatedNetwork
from odradek.wire.apis import request_class
from odradek.wire.headers import parse_request_header

Answer = Callable[[ModelController, Any, int], Awaitable[Any]]
"""Answers a request of a version."""
_SIZE = 4


class ControllerServer:
    """Serves all controllers of a world; each process has its own listener."""

    def __init__(self, network: SimulatedNetwork, answer: Answer) -> None:
        self._network = network
        self._answer = answer

    def serve(self, controller: ModelController, process: Process) -> None:
        """Listen, from the start of the process to its end."""
        self._network.port_of(process).listen(
            controller.host, CONTROLLER_PORT, lambda stream: self._accept(controller, process, stream)
        )

    def _accept(self, controller: ModelController, process: Process, stream: Stream) -> None:
        connection = _Connection(stream, lambda request, version: self._answer(controller, request, version))
        controller.quorum.spawn(controller, connection.run())
        stream.watch_reads(connection.on_readable)


class _Connection:
    """Reads frames and answers them in their order."""

    def __init__(self, stream: Stream, answer: Callable[[Any, int], Awaitable[Any]]) -> None:
        self._stream = stream
        self._answer = answer
        self._received = bytearray()
        self._frames: deque[bytes] = deque()
        self._woken = asyncio.Event()
        self._is_over = False

    def on_readable(self) -> None:
        """Take what has come."""
        buffer = bytearray(65536)
        try:
            count = self._stream.receive_into(memoryview(buffer))
        except OSError:
            count = 0
        if count == WOULD_BLOCK:
            return
        if count == 0:
            self._is_over = True
            self._stream.watch_reads(None)
        self._received += buffer[:count]
        while len(self._received) >= _SIZE:
            end = _SIZE + int.from_bytes(self._received[:_SIZE], "big")
            if len(self._received) < end:
                break
            self._frames.append(bytes(self._received[_SIZE:end]))
            del self._received[:end]
        self._woken.set()

    async def run(self) -> None:
        """Answer until the connection is over."""
        while not self._is_over or self._frames:
            if not self._frames:
                self._woken.clear()
                await self._woken.wait()
                continue
            frame = memoryview(self._frames.popleft())
            key, version, correlation_id, _client, position = parse_request_header(frame)
            message, _ = request_class(key).decode(frame, position, version)
            response = await self._answer(message, version)
            try:
                await self._send(bytes(encode_response(response, key, version, correlation_id)))
            except OSError:
                break
        self._stream.close()

    async def _send(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            count = self._stream.send(memoryview(data)[position:], False)
            if count == WOULD_BLOCK:
                await asyncio.sleep(0.005)
            else:
                position += count
