"""The client that behaves as librdkafka does, beside a broker that answers by a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from odradek.ports.network import WOULD_BLOCK, Stream
from odradek.records.batch import parse_header
from odradek.sim.checkers.history import Send, Violation
from odradek.sim.faults.nemesis import PROFILES
from odradek.sim.workloads.librdkafka_producer import Foreign, foreign
from odradek.sim.world.hosts import PORT, BrokerHost, World
from odradek.sim.world.loop import new_loop
from odradek.wire.apis import ApiKey, request_class
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import FrameReader
from odradek.wire.headers import encode_response_header, parse_request_header
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.messages.init_producer_id import InitProducerIdResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from odradek.wire.messages.produce import ProduceResponse, ProduceResponsePartition, ProduceResponseTopic

Outcome = tuple[ErrorCode, int] | None
"""The error and the base offset for a batch; None closes the connection instead of an answer."""
Script = Callable[[int, int], Outcome]
"""The outcome by the number of the connection and the first sequence number of the batch."""

REJECTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


class ScriptedBroker:
    """Answers Produce requests by a script, and every other request as a broker with an empty log."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._connections = 0

    def accept(self, stream: Stream) -> None:
        """Serve one more connection."""
        self._connections += 1
        stream.watch_reads(partial(self._read, stream, FrameReader(1 << 20), self._connections))

    def _read(self, stream: Stream, frames: FrameReader, connection: int) -> None:
        received = stream.receive_into(frames.space())
        if received == 0:
            stream.close()
        elif received != WOULD_BLOCK:
            for frame in frames.received(received):
                if not self._answer(stream, memoryview(frame), connection):
                    stream.close()
                    return

    def _answer(self, stream: Stream, frame: memoryview, connection: int) -> bool:
        key, version, correlation_id, _, position = parse_request_header(frame)
        request, _ = request_class(key).decode(frame, position, version)
        response = self._response(ApiKey(key), request, connection)
        if response is None:
            return False
        out = bytearray(4)
        encode_response_header(out, key, version, correlation_id)
        response.encode(out, version)
        out[:4] = (len(out) - 4).to_bytes(4, "big")
        stream.send(out, False)
        return True

    def _response(self, key: ApiKey, request: Any, connection: int) -> Any:
        if key is ApiKey.INIT_PRODUCER_ID:
            return InitProducerIdResponse(producer_id=7, producer_epoch=0)
        if key is ApiKey.LIST_OFFSETS:
            return ListOffsetsResponse(
                topics=[ListOffsetsResponseTopic("plain", [ListOffsetsResponsePartition(0, offset=0)])]
            )
        if key is ApiKey.FETCH:
            return FetchResponse()
        (partition,) = request.topic_data[0].partition_data
        outcome = self._script(connection, parse_header(memoryview(partition.records)).base_sequence)
        if outcome is None:
            return None
        code, base_offset = outcome
        row = ProduceResponsePartition(partition.index, code, base_offset)
        return ProduceResponse([ProduceResponseTopic("plain", partition_responses=[row])])


@pytest.fixture(autouse=True)
def _same_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a lost connection the client gives up its batches now and then, and begins a new epoch: not here."""
    monkeypatch.setattr(Foreign, "_bump_epoch", lambda _: None)


def produced(script: Script) -> list[Send]:
    """The records of the client up to the first batch with another sequence number than 0 that is acknowledged."""
    loop = new_loop("1")
    world = World(loop, "1", PROFILES["crash"])
    host = BrokerHost(world, 1, {})
    world.brokers.append(host)
    process, _ = host.boot()
    world.network.port_of(process).listen(host.host, PORT, ScriptedBroker(script).accept)
    client = world.client("foreign")

    async def main() -> None:
        running = asyncio.ensure_future(client.run(lambda each: foreign(each, "plain", 1)))
        while not running.done() and not any(send.offset > 0 for send in world.history.sends.values()):
            await asyncio.sleep(0.01)
        if running.done():
            running.result()
        client.vanish()
        await running

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return list(world.history.sends.values())


@pytest.mark.parametrize(
    ("before", "lost"),
    [(None, 0), ((ErrorCode.KAFKA_STORAGE_ERROR, 5), 1)],
    ids=["no answer", "an error after the append"],
)
def test_later_batch_acknowledges_one_that_may_be_written(before: Outcome, lost: int) -> None:
    def script(connection: int, sequence: int) -> Outcome:
        if connection > 1:
            return REJECTED if sequence == 0 else (ErrorCode.NONE, 100 + sequence)
        return before if sequence == 0 or lost == 0 else None

    sends = produced(script)
    first, later = sends[0], next(send for send in sends if send.offset > 0)
    assert (first.state, first.offset) == ("ok", -1)
    assert first.outcome_at == first.acked_at == later.acked_at


@pytest.mark.parametrize("is_lost", [False, True], ids=["one connection", "a lost connection"])
def test_later_batch_does_not_acknowledge_a_rejected_one(is_lost: bool) -> None:
    def script(connection: int, sequence: int) -> Outcome:
        if sequence == 0:
            return REJECTED
        return None if is_lost and connection == 1 else (ErrorCode.NONE, 100 + sequence)

    with pytest.raises(Violation, match="acknowledged out of order"):
        produced(script)
