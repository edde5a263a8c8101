"""What was in flight behind a batch that was refused for now is refused alike, not as out of order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment
from odradek.log.partition_log import PartitionLog
from odradek.log.producers.state import ProducerStates
from odradek.metadata.image import PartitionState
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.records.batch import NO_SEQUENCE, parse_header
from odradek.records.builder import BatchFields, encode_batch
from odradek.replication.partition import Partition, PartitionEnvironment
from odradek.replication.refused_batches import RefusedBatches
from odradek.wire.errors import ErrorCode, KafkaError

NOW_MS = 1_700_000_000_000
Send = Callable[..., ErrorCode]


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    environment = LogEnvironment(SystemDisk(), SystemClock())
    log = PartitionLog.open("t", 0, str(tmp_path), LogConfig(min_insync_replicas=2), environment, clean=True)
    replication = PartitionEnvironment(is_eligible=lambda _id, _epoch: True)
    return Partition("t", bytes(16), 0, 1, log, replication)


@pytest.fixture
def send(partition: Partition) -> Send:
    def send(sequence: int, *, epoch: int = 0, now_ms: int = NOW_MS, records: int = 1) -> ErrorCode:
        fields = BatchFields(producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        batch = memoryview(encode_batch([(now_ms, None, b"x", ())] * records, fields))
        try:
            partition.append(batch, now_ms=now_ms, all_in_sync=True)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    return send


def lead(partition: Partition, epoch: int, isr: tuple[int, ...] = (1, 2)) -> None:
    partition.apply_state(PartitionState(1, epoch, (1, 2), isr, partition_epoch=epoch))


@pytest.mark.parametrize("written", [0, 3])
def test_those_behind_a_rejected_batch_wait_for_it(partition: Partition, send: Send, written: int) -> None:
    lead(partition, 0)
    for sequence in range(written):
        assert send(sequence) is ErrorCode.NONE
    lead(partition, 1, (1,))
    assert send(written) is ErrorCode.NOT_ENOUGH_REPLICAS
    lead(partition, 2)
    assert send(written + 1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert send(written + 2) is ErrorCode.NOT_ENOUGH_REPLICAS
    for sequence in range(written, written + 3):
        assert send(sequence) is ErrorCode.NONE
    assert send(written + 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap without a rejected batch"


def test_who_sends_to_a_leader_that_does_not_know_yet(partition: Partition, send: Send) -> None:
    lead(partition, 0)
    assert send(0) is ErrorCode.NONE
    partition.apply_state(PartitionState(2, 1, (1, 2), (1, 2)))
    assert send(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    lead(partition, 2)
    assert send(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [send(1), send(2)] == [ErrorCode.NONE, ErrorCode.NONE]


def test_what_came_elsewhere_or_is_given_up_is_waited_for_no_longer(partition: Partition, send: Send) -> None:
    lead(partition, 0)
    assert send(0) is ErrorCode.NONE
    partition.apply_state(PartitionState(2, 1, (1, 2), (1, 2)))
    assert send(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    fields = BatchFields(producer_id=7, producer_epoch=0, base_sequence=1, base_offset=1, partition_leader_epoch=1)
    partition.replicated.append(memoryview(encode_batch([(NOW_MS, None, b"x", ())], fields)), 1, NOW_MS)
    lead(partition, 2)
    assert send(2) is ErrorCode.NONE, "the other leader had it"
    lead(partition, 3, (1,))
    assert send(3) is ErrorCode.NOT_ENOUGH_REPLICAS
    lead(partition, 4)
    assert send(4, now_ms=NOW_MS + 60_000) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    lead(partition, 5, (1,))
    assert send(3) is ErrorCode.NOT_ENOUGH_REPLICAS
    lead(partition, 6)
    assert send(0, epoch=1) is ErrorCode.NONE, "a new epoch starts afresh"
    assert send(4) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_rejected_batch_that_is_rejected_again_keeps_its_place(partition: Partition, send: Send) -> None:
    lead(partition, 0, (1,))
    assert [send(n) for n in range(3)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
    assert [send(n) for n in range(3)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
    lead(partition, 1)
    assert send(2) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert [send(n) for n in range(3)] == [ErrorCode.NONE] * 3


def test_batches_of_an_unknown_producer_do_not_overtake_an_oversized_one(tmp_path: Path) -> None:
    """A partition that lost all it knew of a producer takes any first sequence: not one behind what is to be split."""
    environment = LogEnvironment(SystemDisk(), SystemClock())
    log = PartitionLog.open("t", 0, str(tmp_path), LogConfig(max_message_bytes=120), environment, clean=True)
    partition = Partition("t", bytes(16), 0, 1, log)
    partition.apply_state(PartitionState(1, 0, (1,), (1,)))

    def send(sequence: int, records: int = 1) -> ErrorCode:
        fields = BatchFields(producer_id=7, producer_epoch=0, base_sequence=sequence)
        try:
            partition.append(memoryview(encode_batch([(NOW_MS, None, b"x", ())] * records, fields)), now_ms=NOW_MS)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    assert send(3, records=36) is ErrorCode.MESSAGE_TOO_LARGE
    assert send(39) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(3, records=24) is ErrorCode.MESSAGE_TOO_LARGE, "the first half, still too large"
    assert send(39) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(3 + 3 * part, records=3) for part in range(12)] == [ErrorCode.NONE] * 12
    assert send(39) is ErrorCode.NONE
    log.close()


def test_producer_continues_behind_a_first_batch_that_is_too_large(tmp_path: Path) -> None:
    """As in Kafka: not every client starts a new epoch when its first record was too large."""
    environment = LogEnvironment(SystemDisk(), SystemClock())
    log = PartitionLog.open("t", 0, str(tmp_path), LogConfig(max_message_bytes=120), environment, clean=True)
    partition = Partition("t", bytes(16), 0, 1, log)
    partition.apply_state(PartitionState(1, 0, (1,), (1,)))
    fields = BatchFields(producer_id=7, producer_epoch=0, base_sequence=0)
    with pytest.raises(KafkaError) as refused:
        partition.append(memoryview(encode_batch([(NOW_MS, None, b"x" * 200, ())], fields)), now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    fields = BatchFields(producer_id=7, producer_epoch=0, base_sequence=1)
    partition.append(memoryview(encode_batch([(NOW_MS, None, b"x", ())], fields)), now_ms=NOW_MS)
    log.close()


@pytest.mark.parametrize(
    ("junk", "code"),
    [(bytes(100), ErrorCode.CORRUPT_MESSAGE), (b"\x02" * 100, ErrorCode.INVALID_RECORD)],
    ids=["magic 0", "a length beyond its end"],
)
def test_bytes_that_are_no_batch_are_judged_as_ever(
    partition: Partition, send: Send, junk: bytes, code: ErrorCode
) -> None:
    def refusal() -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            partition.append(memoryview(bytearray(junk)), now_ms=NOW_MS, all_in_sync=True)
        return refused.value.code

    lead(partition, 0)
    assert refusal() is code
    partition.apply_state(PartitionState(2, 1, (1, 2), (1, 2)))
    assert refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert send(0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    lead(partition, 2)
    assert refusal() is code, "while batches are missed"


def test_many_rejected_producers_do_not_grow_without_end(partition: Partition) -> None:
    """The memory of refusals is bounded: it is forgotten as a whole, after which any order counts as new."""
    lead(partition, 0, isr=(1,))
    refused = RefusedBatches()
    states = partition.log.history.producers
    for producer_id in range(1001):
        fields = BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=0)
        batch = memoryview(encode_batch([(NOW_MS, None, b"x", ())], fields))
        refused.note(batch, ErrorCode.NOT_ENOUGH_REPLICAS, states, NOW_MS)

    def after(producer_id: int) -> memoryview:
        fields = BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=1)
        return memoryview(encode_batch([(NOW_MS, None, b"x", ())], fields))

    refused.check(after(0), states, NOW_MS)
    refused.check(after(999), states, NOW_MS)
    with pytest.raises(KafkaError) as raised:
        refused.check(after(1000), states, NOW_MS)
    assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_refusals_of_several_producers_are_kept_apart(partition: Partition) -> None:
    refused = RefusedBatches()
    states = partition.log.history.producers
    codes = {1: ErrorCode.NOT_ENOUGH_REPLICAS, 2: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    batches = {
        (producer_id, sequence): memoryview(
            encode_batch(
                [(NOW_MS, None, b"x", ())],
                BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=sequence),
            )
        )
        for producer_id in codes
        for sequence in (0, 1)
    }
    for producer_id, code in codes.items():
        refused.note(batches[producer_id, 0], code, states, NOW_MS)
    for producer_id, code in codes.items():
        with pytest.raises(KafkaError) as raised:
            refused.check(batches[producer_id, 1], states, NOW_MS)
        assert raised.value.code is code


def header_bytes(sequence: int, producer_id: int = 7) -> memoryview:
    fields = BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return memoryview(encode_batch([(NOW_MS, None, b"x", ())], fields))


def producers_of(*producer_ids: int) -> ProducerStates:
    """Producers that have written one batch, with sequence 2."""
    states = ProducerStates()
    for producer_id in producer_ids:
        states.apply(parse_header(header_bytes(2, producer_id)), 0)
    return states


def code_after(noted: ErrorCode, sequence: int, states: ProducerStates, *, producer_id: int = 7) -> ErrorCode:
    """The code for the next batch after the batch with `sequence` was rejected."""
    refused = RefusedBatches()
    refused.note(header_bytes(sequence, producer_id), noted, states, NOW_MS)
    try:
        refused.check(header_bytes(sequence + 1, producer_id), states, NOW_MS)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("known", "sequence", "code"),
    [
        (False, 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (False, 0, ErrorCode.NONE),
        (True, 3, ErrorCode.NONE),
        (True, 0, ErrorCode.NONE),
    ],
)
def test_later_batches_wait_for_a_too_large_one_of_an_unknown_producer(
    known: bool, sequence: int, code: ErrorCode
) -> None:
    assert code_after(ErrorCode.MESSAGE_TOO_LARGE, sequence, producers_of(*([7] if known else []))) is code


@pytest.mark.parametrize("sequence", [0, 3])
def test_later_batch_gets_the_error_of_the_rejected_one(sequence: int) -> None:
    assert code_after(ErrorCode.NOT_ENOUGH_REPLICAS, sequence, producers_of()) is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(("producer_id", "sequence"), [(-1, 0), (7, NO_SEQUENCE)])
def test_rejected_batch_is_not_waited_for_without_producer_or_sequence(producer_id: int, sequence: int) -> None:
    code = code_after(ErrorCode.NOT_ENOUGH_REPLICAS, sequence, producers_of(), producer_id=producer_id)
    assert code is ErrorCode.NONE


@pytest.mark.parametrize(("waited_ms", "code"), [(29_999, ErrorCode.NOT_ENOUGH_REPLICAS), (30_000, None)])
def test_rejected_batch_is_waited_for_half_a_minute(waited_ms: int, code: ErrorCode | None) -> None:
    refused = RefusedBatches()
    refused.note(header_bytes(0), ErrorCode.NOT_ENOUGH_REPLICAS, producers_of(), NOW_MS)
    if code is None:
        refused.check(header_bytes(1), producers_of(), NOW_MS + waited_ms)
        return
    with pytest.raises(KafkaError) as rejected:
        refused.check(header_bytes(1), producers_of(), NOW_MS + waited_ms)
    assert rejected.value.code is code
