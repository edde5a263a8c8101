"""A transactional producer by hand: each request on the connection and in the version that the test says."""

from __future__ import annotations

import time
from typing import Any

from odradek.records.batch import split_batches
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.record import decode_records
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    add_partitions_to_txn,
    create_topics,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    produce,
)

_DEADLINE_SECONDS = 30


def retried(ask: Any, *codes: ErrorCode | str) -> Any:
    """Ask until the answer's error is outside these."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        answer = ask()
        if answer.error_code not in codes:
            return answer
        assert time.monotonic() < deadline, f"still {answer.error_code!r}"


def create_topic(client: Any, name: str, partitions: int = 1) -> None:
    made = create_topics.CreateTopicsRequestTopic(name, partitions, 1)
    answer = client.call(create_topics.CreateTopicsRequest([made], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == 0, answer


class RawTransactions:
    """A transactional id and its producer; `client` is a RawClient."""

    def __init__(self, client: Any, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        request = find_coordinator.FindCoordinatorRequest(key=transactional_id, key_type=1)
        answer = retried(lambda: client.call(request, 3), ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert answer.error_code == 0, answer

    def init(self, client: Any, version: int = 4, *, recover: bool = False, timeout_ms: int = 60_000) -> Any:
        producer = (self.producer_id, self.epoch) if recover else (-1, -1)
        request = init_producer_id.InitProducerIdRequest(self.transactional_id, timeout_ms, *producer)
        answer = retried(
            lambda: client.call(request, version),
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        )
        if answer.error_code == 0:
            self.use(answer.producer_id, answer.producer_epoch)
        return answer

    def use(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.sequences.clear()

    def add_request(self, topic: str, *partitions: int) -> Any:
        topics = [add_partitions_to_txn.AddPartitionsToTxnRequestTopic(topic, list(partitions))]
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            [], self.transactional_id, self.producer_id, self.epoch, topics
        )

    def add(self, client: Any, topic: str, *partitions: int, version: int = 3) -> ErrorCode:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while True:
            answer = client.call(self.add_request(topic, *partitions), version)
            (results,) = answer.results_by_topic_v3_and_below
            codes = {result.partition_error_code for result in results.results_by_partition}
            if codes != {ErrorCode.CONCURRENT_TRANSACTIONS} or time.monotonic() > deadline:
                return ErrorCode(max(codes))

    def end_request(self, commit: bool) -> Any:
        return end_txn.EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)

    def end(self, client: Any, *, commit: bool = True, version: int = 3) -> Any:
        """Waits as a client does while the same end is on its way; takes over what version 5 answers."""
        answer = retried(lambda: client.call(self.end_request(commit), version), ErrorCode.CONCURRENT_TRANSACTIONS)
        if answer.error_code == 0 and version >= 5:
            self.use(answer.producer_id, answer.producer_epoch)
        return answer

    def produce_request(self, topic: str, partition: int, *values: bytes, now_ms: int | None = None) -> Any:
        sequence = self.sequences.get((topic, partition), 0)
        fields = BatchFields(
            producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence, is_transactional=True
        )
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        batch = encode_batch([(now_ms, None, value, ()) for value in values], fields)
        data = [produce.ProduceRequestPartition(partition, memoryview(batch))]
        topics = [produce.ProduceRequestTopic(name=topic, partition_data=data)]
        return produce.ProduceRequest(self.transactional_id, -1, 10_000, topics)

    def produce(
        self,
        client: Any,
        topic: str,
        *values: bytes,
        partition: int = 0,
        version: int = 9,
        now_ms: int | None = None,
    ) -> ErrorCode:
        answer = client.call(self.produce_request(topic, partition, *values, now_ms=now_ms), version)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            place = (topic, partition)
            self.sequences[place] = self.sequences.get(place, 0) + len(values)
        return code


def await_markers(client: Any, topic: str, partitions: int = 1) -> None:
    """Return when no transaction is open in the topic.

    The end of a transaction is answered before its markers are written: no request waits for a slow disk.
    """
    deadline = time.monotonic() + _DEADLINE_SECONDS
    rows = [list_offsets.ListOffsetsRequestPartition(index, timestamp=-1) for index in range(partitions)]
    while True:
        ends = []
        for isolation_level in (1, 0):
            asked = [list_offsets.ListOffsetsRequestTopic(topic, rows)]
            (answer,) = client.call(list_offsets.ListOffsetsRequest(-1, isolation_level, asked), 7).topics
            ends.append({row.partition_index: row.offset for row in answer.partitions if row.error_code == 0})
        if ends[0] == ends[1] and len(ends[0]) == partitions:
            return
        assert time.monotonic() < deadline, f"a transaction stays open in {topic}: {ends}"
        time.sleep(0.01)


def read_committed(client: Any, topic: str, partition: int = 0) -> list[bytes]:
    """The values that a read_committed consumer gets when no transaction is open."""
    await_markers(client, topic, partition + 1)
    offset = 0
    found: list[bytes] = []
    while True:
        wanted = fetch.FetchRequestPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [fetch.FetchRequestTopic(topic=topic, partitions=[wanted])]
        request = fetch.FetchRequest(max_wait_ms=0, max_bytes=1 << 20, isolation_level=1, topics=topics)
        answer = client.call(request, 11).responses[0].partitions[0]
        assert answer.error_code == 0, answer
        if not answer.records:
            return found
        aborted = sorted((entry.first_offset, entry.producer_id) for entry in answer.aborted_transactions or ())
        skipped: set[int] = set()
        for position, header in split_batches(answer.records):
            while aborted and aborted[0][0] <= header.base_offset:
                skipped.add(aborted.pop(0)[1])
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                found += [bytes(record.value or b"") for record in decode_records(answer.records, header, position)]
            offset = header.next_offset
