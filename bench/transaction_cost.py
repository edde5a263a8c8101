"""Transactions of one record, of the older protocol, for `bench.request_cost`; a burst has a request of each."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, NamedTuple

from bench.frames import answer_to, ask, exchange, frame
from bench.memory_network import MemoryStream
from odradek.records.builder import BatchFields, encode_batch
from odradek.wire.headers import parse_response_header
from odradek.wire.messages import add_partitions_to_txn as added
from odradek.wire.messages import end_txn, find_coordinator, init_producer_id, produce

RECORD: Final = [(0, None, b"x" * 100, ())]
STEPS: Final[tuple[tuple[Any, int], ...]] = (
    (added.AddPartitionsToTxnResponse, 3),
    (produce.ProduceResponse, 9),
    (end_txn.EndTxnResponse, 3),
)
"""What answers the requests of a transaction, and their version."""
_TRANSACTION: Final = 1
"""The kind of coordinator."""
_TURNS_TO_COMPLETE: Final = 3
"""Of the event loop."""
OFFSETS: Final = 2
"""Of a transaction in its partition: its record and its marker."""


async def _let_complete() -> None:
    """The marker of a transaction follows the answer to its end."""
    for _ in range(_TURNS_TO_COMPLETE):
        await asyncio.sleep(0)


class _Producer(NamedTuple):
    name: str
    id: int
    epoch: int


class Transactions:
    """Each transactional id has the same number of transactions, all in partition 0 of a topic."""

    def __init__(self, stream: MemoryStream, topic: str, ids: int) -> None:
        self._stream = stream
        self._topic = topic
        self._ids = ids
        self._producers: list[_Producer] = []
        self._done = 0
        self._sizes = [0] * len(STEPS)
        self._next_offset = 0

    async def begin(self) -> None:
        """Get the producer ids, and learn how long answers are."""
        looked_for = find_coordinator.FindCoordinatorRequest("id-0", _TRANSACTION)
        # The answer to this makes the topic of transactions.
        while (await ask(self._stream, looked_for, find_coordinator.FindCoordinatorResponse, 2)).error_code:
            await asyncio.sleep(0.01)
        for number in range(self._ids):
            wanted = init_producer_id.InitProducerIdRequest(f"id-{number}", 600_000)
            while (found := await ask(self._stream, wanted, init_producer_id.InitProducerIdResponse, 4)).error_code:
                await asyncio.sleep(0.01)
            self._producers.append(_Producer(f"id-{number}", found.producer_id, found.producer_epoch))
        await self._checked_round()

    async def microseconds(self, rounds: int) -> float:
        """Of the process, for each request of so many transactions of each id. Raises RuntimeError if one failed."""
        stream = self._stream
        bursts = []
        for _ in range(rounds):
            bursts += [
                (b"".join(self._request(step, each) for each in self._producers), size * self._ids)
                for step, size in enumerate(self._sizes)
            ]
            self._done += 1
        began = time.process_time_ns()
        for burst, answer_bytes in bursts:
            await exchange(stream, burst, answer_bytes)
            await _let_complete()
        took_us = (time.process_time_ns() - began) / 1000
        expected = self._next_offset + rounds * self._ids * OFFSETS
        first = await self._checked_round()
        if first != expected:
            raise RuntimeError(f"offset {first} where {rounds * self._ids} transactions end at {expected}")
        return took_us / (rounds * self._ids * len(STEPS))

    async def _checked_round(self) -> int:
        """One transaction of each id; the offset of its first record. Raises RuntimeError."""
        first: int | None = None
        for step, (response, version) in enumerate(STEPS):
            for producer in self._producers:
                data = await answer_to(self._stream, self._request(step, producer))
                self._sizes[step] = len(data)
                view = memoryview(data)[4:]
                _, position = parse_response_header(view, response.API_KEY, version)
                answer = response.decode(view, position, version)[0]
                if response is produce.ProduceResponse:
                    found = answer.responses[0].partition_responses[0]
                    code = found.error_code
                    first = found.base_offset if first is None else first
                elif response is end_txn.EndTxnResponse:
                    code = answer.error_code
                else:
                    code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                if code:
                    raise RuntimeError(f"step {step} of a transaction failed: {answer}")
        await _let_complete()
        self._done += 1
        assert first is not None, "a round writes"
        self._next_offset = first + self._ids * OFFSETS
        return first

    def _request(self, step: int, producer: _Producer) -> bytes:
        name, producer_id, epoch = producer
        version = STEPS[step][1]
        if step == 0:
            topics = [added.AddPartitionsToTxnRequestTopic(self._topic, [0])]
            return frame(added.AddPartitionsToTxnRequest([], name, producer_id, epoch, topics), version)
        if step == len(STEPS) - 1:
            return frame(end_txn.EndTxnRequest(name, producer_id, epoch, committed=True), version)
        fields = BatchFields(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=self._done, is_transactional=True
        )
        rows = [produce.ProduceRequestPartition(0, bytes(encode_batch(RECORD, fields)))]
        written = [produce.ProduceRequestTopic(self._topic, partition_data=rows)]
        return frame(produce.ProduceRequest(name, -1, 30_000, written), version)
