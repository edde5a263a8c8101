"""The shell around the transaction coordinator, on real logs."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.broker.coordinators.writer import REJECTED_SECONDS
from odradek.log.config import LogConfig
from odradek.metadata.image import PartitionState
from odradek.ports.clock import SystemClock
from odradek.records.batch import parse_header
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import ControlType, decode_control_record
from odradek.records.record import decode_records
from odradek.replication.partition import Partition
from odradek.transactions.connections import StaleConnection
from odradek.transactions.events import AddPartitions, NoProducerIds, ProducerResult
from odradek.transactions.service import ListFilter, PartitionMarker, Rejections, Verification
from odradek.wire.errors import ErrorCode as E
from odradek.wire.errors import KafkaError
from tests.unit.broker.coordinators.transaction_broker import OFFSETS, STATE, TOPIC, Ids, TransactionBroker


def running(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    """Run a coroutine test on a loop of its own."""

    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))  # type: ignore[arg-type]

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def turn() -> None:
    """Let the event loop run what waits for its turn."""
    await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("waited for ten seconds")


def markers_in(partition: Partition) -> list[tuple[int, int, bool]]:
    """(producer id, epoch, commit) of each marker."""
    found = []
    for view in partition.log.reader.read_batches(0, partition.log.end_offset):
        header = parse_header(view)
        if header.is_control:
            (record,) = decode_records(view, header)
            commit = decode_control_record(record).type is ControlType.COMMIT
            found.append((header.producer_id, header.producer_epoch, commit))
    return found


@running
async def test_a_transaction_from_begin_to_end(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    assert broker.add(producer, (TOPIC, 0), (OFFSETS, 0)).result() is E.NONE
    answer = broker.end(producer)
    # One broker: no request waits, and the markers follow when the answer has left.
    assert answer.done()
    assert answer.result() == ProducerResult(E.NONE)
    assert broker.shown() == "PrepareCommit"
    await turn()
    assert broker.shown() == "CompleteCommit"
    assert markers_in(broker.partitions[TOPIC, 0]) == [(*producer, True)]
    assert markers_in(broker.partitions[TOPIC, 1]) == []
    assert broker.ended == [(0, producer[0], 0, True)]
    broker.stop()


@running
async def test_ended_transactions_that_no_client_reads_are_forgotten(tmp_path: Path) -> None:
    """Only reads asked which of them are replicated: memory grew with every transaction until the first one."""
    broker = TransactionBroker(tmp_path).start()
    producer_id, epoch = producer = await broker.producer()
    partition = broker.partitions[TOPIC, 0]
    for number in range(5):
        assert broker.add(producer, (TOPIC, 0)).result() is E.NONE
        fields = BatchFields(producer_id=producer_id, producer_epoch=epoch, base_sequence=number, is_transactional=True)
        now_ms = SystemClock().now_ms()
        partition.append(memoryview(encode_batch([(now_ms, None, b"value", ())], fields)), now_ms=now_ms)
        broker.end(producer)
        await until(lambda: broker.shown() == "CompleteCommit")
    producers = partition.log.history.producers
    assert markers_in(partition) == [(*producer, True)] * 5
    assert producers.first_unstable_offset is None
    assert producers.first_open_offset is None
    broker.stop()


@running
async def test_answers_and_markers_wait_for_the_followers(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    broker.set_followers(broker.state, 2)
    adding = broker.add(producer, (TOPIC, 0))
    ending = broker.end(producer)
    await asyncio.sleep(0)
    assert not adding.done()
    assert not ending.done()
    assert markers_in(broker.partitions[TOPIC, 0]) == []
    broker.commit_all(broker.state)
    assert await adding is E.NONE
    assert (await ending).error is E.NONE
    await turn()
    assert markers_in(broker.partitions[TOPIC, 0]) == [(*producer, True)]
    assert broker.shown() == "CompleteCommit"
    broker.stop()


@running
async def test_completion_waits_for_the_followers_of_the_topic(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    topic = broker.partitions[TOPIC, 0]
    broker.set_followers(topic, 2)
    await broker.add(producer, (TOPIC, 0))
    await broker.end(producer)
    await turn()
    assert broker.shown() == "PrepareCommit"
    assert (await broker.add(producer, (TOPIC, 1))) is E.CONCURRENT_TRANSACTIONS
    broker.commit_all(topic)
    assert broker.shown() == "CompleteCommit"
    broker.stop()


@running
async def test_end_completes_though_its_client_has_timed_out(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path, {"request.timeout.ms": "20"}).start()
    producer = await broker.producer()
    await broker.add(producer, (TOPIC, 0))
    broker.set_followers(broker.state, 2)
    with pytest.raises(KafkaError) as failed:
        await broker.end(producer)
    assert failed.value.code is E.COORDINATOR_NOT_AVAILABLE
    broker.commit_all(broker.state)
    await turn()
    assert markers_in(broker.partitions[TOPIC, 0]) == [(*producer, True)]
    broker.stop()


@running
async def test_rejected_append_changes_nothing(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    await broker.add(producer, (TOPIC, 0))
    broker.state.leader = 2
    with pytest.raises(KafkaError) as failed:
        await broker.end(producer)
    assert failed.value.code is E.NOT_COORDINATOR
    assert broker.shown() == "Ongoing"
    broker.state.leader = 1
    assert (await broker.end(producer, commit=False)).error is E.NONE
    await turn()
    assert broker.shown() == "CompleteAbort"
    broker.stop()


@running
async def test_rejected_marker_is_retried(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    await broker.add(producer, (TOPIC, 0), (TOPIC, 1))
    topic = broker.partitions[TOPIC, 1]
    topic.leader = 2
    assert (await broker.end(producer)).error is E.NONE
    await turn()
    assert broker.shown() == "PrepareCommit"
    topic.leader = 1
    await until(lambda: broker.shown() == "CompleteCommit")
    assert markers_in(topic) == markers_in(broker.partitions[TOPIC, 0]) == [(*producer, True)]
    broker.stop()


@running
async def test_marker_waits_for_a_topic_that_the_image_lacks(tmp_path: Path) -> None:
    """A new controller learns of the topics that others lead only after its election."""
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    assert broker.add(producer, (TOPIC, 0)).result() is E.NONE
    image = broker.image
    broker.is_whole = False
    broker.image = image.without_topics([TOPIC])
    assert broker.end(producer).result() == ProducerResult(E.NONE)
    await turn()
    assert broker.shown() == "PrepareCommit"
    broker.is_whole, broker.image = True, image
    await until(lambda: broker.shown() == "CompleteCommit")
    assert markers_in(broker.partitions[TOPIC, 0]) == [(*producer, True)]
    broker.stop()


@running
async def test_a_deleted_topic_needs_no_marker(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    await broker.add(producer, (TOPIC, 0))
    broker.partitions.pop((TOPIC, 0)).log.close()
    broker.image = broker.image.without_topics([TOPIC])
    await broker.end(producer)
    await turn()
    assert broker.shown() == "CompleteCommit"
    broker.stop()


@running
async def test_transaction_completes_when_a_partition_has_a_newer_epoch(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    await broker.add(producer, (TOPIC, 0))
    marker = PartitionMarker(TOPIC, 0, producer[0], 9, False, 0, 0)
    await broker.runtime.write_marker(marker)
    await broker.end(producer)
    await turn()
    assert broker.shown() == "CompleteCommit"
    assert markers_in(broker.partitions[TOPIC, 0]) == [(producer[0], 9, False)]
    broker.stop()


@running
async def test_rejected_completion_is_retried(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    await broker.add(producer, (TOPIC, 0))
    broker.set_followers(broker.partitions[TOPIC, 0], 2)
    await broker.end(producer)
    await turn()
    broker.state.leader = 2
    broker.commit_all(broker.partitions[TOPIC, 0])
    assert broker.shown() == "PrepareCommit"
    broker.state.leader = 1
    await until(lambda: broker.shown() == "CompleteCommit")
    broker.stop()


@running
async def test_restart_completes_a_decided_transaction(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    await broker.add(producer, (TOPIC, 0), (TOPIC, 1))
    broker.partitions[TOPIC, 1].leader = 2
    await broker.end(producer, commit=False)
    broker.stop()
    broker = TransactionBroker(tmp_path).start()
    await until(lambda: broker.shown() == "CompleteAbort")
    assert markers_in(broker.partitions[TOPIC, 1]) == [(*producer, False)]
    assert (await broker.end(producer, commit=False)).error is E.NONE
    broker.stop()


@running
async def test_an_open_transaction_times_out_after_a_restart(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer(timeout_ms=30)
    await broker.add(producer, (TOPIC, 0))
    broker.stop()
    broker = TransactionBroker(tmp_path).start()
    await until(lambda: broker.shown() == "CompleteAbort")
    assert markers_in(broker.partitions[TOPIC, 0]) == [(producer[0], producer[1] + 1, False)]
    broker.stop()


@running
async def test_idle_ids_expire(tmp_path: Path) -> None:
    names = ("transactional.id.expiration.ms", "transaction.remove.expired.transaction.cleanup.interval.ms")
    broker = TransactionBroker(tmp_path, dict.fromkeys(names, "20")).start()
    await broker.producer()
    await until(lambda: broker.runtime.describe("tx").error is E.TRANSACTIONAL_ID_NOT_FOUND)
    broker.stop()
    broker = TransactionBroker(tmp_path).start()
    await asyncio.sleep(0)
    assert broker.runtime.describe("tx").error is E.TRANSACTIONAL_ID_NOT_FOUND
    broker.stop()


@running
async def test_requests_get_not_coordinator_elsewhere(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    with pytest.raises(KafkaError) as refused:
        broker.init()
    assert refused.value.code is E.NOT_COORDINATOR
    broker.start()
    producer = await broker.producer()
    broker.set_followers(broker.state, 2)
    waiting = broker.add(producer, (TOPIC, 0))
    broker.runtime.resigned(0)
    with pytest.raises(KafkaError) as raised:
        await waiting
    assert raised.value.code is E.NOT_COORDINATOR
    broker.stop()


@running
async def test_a_damaged_log_is_not_coordinated(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    await broker.producer()
    broker.stop()
    (path,) = (tmp_path / "__transaction_state-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 0xFF
    broker = TransactionBroker(tmp_path)
    path.write_bytes(data)
    broker.start()
    with pytest.raises(KafkaError) as refused:
        broker.init()
    assert refused.value.code is E.NOT_COORDINATOR
    broker.runtime.close()


# --- writes that add or verify ---


@running
async def test_produce_adds_partitions_from_version_12(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    assert broker.verify_or_add(producer, (TOPIC, 0)) == {}
    assert broker.runtime.describe("tx").partitions == {(TOPIC, 0)}
    assert broker.verify_or_add(producer, (TOPIC, 1), version=11) == {(TOPIC, 1): E.TRANSACTION_ABORTABLE}
    assert broker.verify_or_add(producer, (TOPIC, 1), version=10) == {(TOPIC, 1): E.INVALID_TXN_STATE}
    assert broker.verify_or_add(producer, (TOPIC, 0), version=10) == {}
    stale = (producer[0], producer[1] + 1)
    assert broker.verify_or_add(stale, (TOPIC, 0), version=10) == {(TOPIC, 0): E.INVALID_PRODUCER_EPOCH}
    broker.runtime.resigned(0)
    for version in (10, 12):
        assert broker.verify_or_add(producer, (TOPIC, 0), version=version) == {(TOPIC, 0): E.NOT_ENOUGH_REPLICAS}
    broker.stop()


@running
async def test_verification_can_be_switched_off(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path, {"transaction.partition.verification.enable": "false"}).start()
    producer = await broker.producer()
    assert broker.verify_or_add(producer, (TOPIC, 0), version=11) == {}
    assert broker.shown() == "Empty"
    broker.stop()


@running
async def test_the_next_transaction_waits_for_the_markers_of_the_last(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    topic = broker.partitions[TOPIC, 0]
    broker.set_followers(topic, 2)
    assert broker.verify_or_add(producer, (TOPIC, 0)) == {}
    result = await broker.end(producer, version=2)
    following = (result.producer_id, result.producer_epoch)
    waiting = asyncio.ensure_future(broker.verify_or_add(following, (TOPIC, 0)))
    await asyncio.sleep(0)
    assert not waiting.done()
    broker.commit_all(topic)
    assert await waiting == {}
    assert broker.shown() == "Ongoing"
    broker.stop()


@running
async def test_next_transaction_waits_for_the_last_no_longer_than_a_request(tmp_path: Path) -> None:
    """The markers of the last one wait for followers that do not come; the client tries again."""
    broker = TransactionBroker(tmp_path, {"request.timeout.ms": "30"}).start()
    producer = await broker.producer()
    broker.set_followers(broker.partitions[TOPIC, 0], 2)
    assert broker.verify_or_add(producer, (TOPIC, 0)) == {}
    result = await broker.end(producer, version=2)
    async with asyncio.timeout(20):
        rejected = await broker.verify_or_add((result.producer_id, result.producer_epoch), (TOPIC, 0))
    assert rejected == {(TOPIC, 0): E.CONCURRENT_TRANSACTIONS}
    assert broker.shown() == "PrepareCommit"
    broker.stop()


def test_request_is_answered_late_while_too_few_replicas_are_in_sync(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients that retry at once would keep the broker busy until there are enough. Later it is not remembered."""
    caplog.set_level(logging.ERROR, "odradek.transactions")  # a line of the log would keep the request

    async def play() -> None:
        broker = TransactionBroker(tmp_path).start()
        producer = await broker.producer()
        broker.state.log.config = LogConfig(cleanup_policy=frozenset({"compact"}), min_insync_replicas=2)
        broker.state.replicas, broker.state.isr = (1, 2), (1,)
        began = asyncio.get_running_loop().time()
        answer = broker.add(producer, (TOPIC, 0))
        with pytest.raises(KafkaError) as failed:
            await answer
        assert failed.value.code is E.COORDINATOR_NOT_AVAILABLE
        assert asyncio.get_running_loop().time() - began > 0.9 * REJECTED_SECONDS
        kept = weakref.ref(answer)
        del answer, failed
        await turn()
        gc.collect()
        assert kept() is None
        assert broker.shown() == "Empty"
        broker.stop()

    asyncio.run(play())


@running
async def test_offsets_are_verified_or_added(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    wanted = Verification("tx", *producer, ())
    codes = {v: broker.runtime.verify_or_add_offsets(wanted, "g", v) for v in (3, 4, 5)}
    assert codes == {3: E.INVALID_TXN_STATE, 4: E.TRANSACTION_ABORTABLE, 5: E.NONE}
    assert broker.runtime.describe("tx").partitions == {(OFFSETS, 0)}
    assert broker.runtime.add_offsets("tx", producer, "g", 1).result() is E.NONE
    broker.runtime.resigned(0)
    assert broker.runtime.verify_or_add_offsets(wanted, "g", 5) is E.COORDINATOR_NOT_AVAILABLE
    broker.stop()


@running
async def test_partition_that_moves_here_while_verified_is_verified_again(tmp_path: Path) -> None:
    """The transaction may have ended in it meanwhile: what the first answer said counts no more."""
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    came = broker.partitions.pop((OFFSETS, 0))
    broker.set_followers(broker.state, 2)
    waiting: Any = broker.runtime.verify_or_add_offsets(Verification("tx", *producer, ()), "g", 5)
    asking = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    assert not asking.done()
    broker.partitions[OFFSETS, 0] = came
    ended: asyncio.Future[ProducerResult] = broker.end(producer)
    broker.commit_all(broker.state)
    assert (await ended).error is E.NONE
    assert await asking is E.NONE
    assert (broker.shown(), broker.runtime.describe("tx").partitions) == ("Ongoing", {(OFFSETS, 0)})
    broker.stop()


@pytest.mark.parametrize("moves", [False, True])
def test_partition_replaced_while_verified_is_verified_again(tmp_path: Path, moves: bool) -> None:
    """The topic is deleted and recreated, or its replica moves to another log directory: the markers that come then
    are seen by the new log only.
    """

    async def play() -> None:
        broker = TransactionBroker(tmp_path / "old").start()
        producer = await broker.producer()
        broker.set_followers(broker.state, 2)
        waiting = asyncio.ensure_future(broker.verify_or_add(producer, (TOPIC, 0)))
        await asyncio.sleep(0)
        assert not waiting.done()
        new = TransactionBroker(tmp_path / "new").partitions[TOPIC, 0]
        if moves:
            broker.partitions[TOPIC, 0].replace_log(new.log)
        else:
            broker.partitions[TOPIC, 0] = new
        ended: asyncio.Future[ProducerResult] = broker.end(producer)
        broker.commit_all(broker.state)
        assert (await ended).error is E.NONE
        assert await waiting == {}
        assert (broker.shown(), broker.runtime.describe("tx").partitions) == ("Ongoing", {(TOPIC, 0)})
        broker.stop()

    asyncio.run(play())


def test_partition_is_verified_again_when_its_transaction_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker comes while the coordinator, on another broker, answers that the other partition is not in it."""

    async def play() -> None:
        broker = TransactionBroker(tmp_path).start()
        producer = await broker.producer()
        await broker.add(producer, (TOPIC, 0))
        asked = 0

        async def ask(_peers: Any, _broker_id: int, request: AddPartitions, **_: Any) -> Rejections:
            nonlocal asked
            asked += 1
            answer = broker.runtime.verify_partitions(request)
            if asked == 1:
                await broker.end(producer, commit=False)
                await until(lambda: broker.shown() == "CompleteAbort")
            return answer

        monkeypatch.setattr("odradek.broker.coordinators.transactions.ask_coordinator", ask)
        elsewhere = broker.image.topics[STATE]._replace(partitions=(PartitionState(2, 0, (2,), (2,)),))
        broker.image = broker.image.with_topic(elsewhere)
        refused = await broker.verify_or_add(producer, (TOPIC, 0), (TOPIC, 1), version=11)
        assert refused == dict.fromkeys(((TOPIC, 0), (TOPIC, 1)), E.TRANSACTION_ABORTABLE)
        assert asked == 2
        broker.stop()

    asyncio.run(play())


@running
async def test_a_repeated_marker_of_the_second_protocol_is_written_once(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    marker = PartitionMarker(TOPIC, 0, 7, 1, True, 0, 2)
    await broker.runtime.write_marker(marker)
    await broker.runtime.write_marker(marker)
    assert markers_in(broker.partitions[TOPIC, 0]) == [(7, 1, True)]
    with pytest.raises(KafkaError) as refused:
        await broker.runtime.write_marker(marker._replace(producer_epoch=0))
    assert refused.value.code is E.INVALID_PRODUCER_EPOCH
    broker.stop()


# --- connections that were given up ---


@running
async def test_request_on_an_abandoned_connection_is_stale(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    await broker.add(producer, (TOPIC, 0), connection=1)
    await broker.end(producer, connection=2)
    await turn()
    await broker.add(producer, (TOPIC, 0), connection=2)
    with pytest.raises(StaleConnection):
        broker.end(producer, connection=1)
    with pytest.raises(StaleConnection):
        broker.add(producer, (TOPIC, 1), connection=1)
    assert broker.shown() == "Ongoing"
    # A producer that was fenced does not change which connection is its successor's newest.
    successor = (await broker.init(connection=3)).producer_epoch
    assert (await broker.add(producer, (TOPIC, 0), connection=9)) is E.PRODUCER_FENCED
    assert (await broker.add((producer[0], successor), (TOPIC, 0), connection=3)) is E.NONE
    broker.stop()


@running
async def test_commit_on_an_abandoned_connection_is_stale(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    assert not broker.runtime.is_stale_commit("g", (7, 0), 4)
    assert broker.runtime.is_stale_commit("g", (7, 0), 3)
    assert not broker.runtime.is_stale_commit("g", (8, 0), 3)
    assert not broker.runtime.is_stale_commit("other", (7, 0), 3)


@running
async def test_marker_on_an_abandoned_connection_is_stale(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    stale = broker.runtime.is_stale_sender
    assert [stale("broker-2", 4), stale("broker-2", 4), stale("broker-2", 5)] == [False] * 3
    assert stale("broker-2", 4)
    assert not stale("broker-3", 4)


# --- producer ids ---


@running
async def test_producer_ids_come_in_blocks_and_never_twice(tmp_path: Path) -> None:
    source = Ids(block=10)
    ids = ProducerIds(source.next_producer_id_block, asyncio.get_running_loop())
    with pytest.raises(NoProducerIds):
        ids.take()
    assert await asyncio.gather(*(ids.new() for _ in range(35))) == list(range(35))
    # The next block is there before the last id of this one is gone.
    for _ in range(4):
        await ids.new()
    await until(lambda: source.next == 50)
    assert [ids.take() for _ in range(3)] == [39, 40, 41]


@running
async def test_producers_that_wait_for_one_block_all_get_an_id(tmp_path: Path) -> None:
    """The block has one id only: the others wait for the next ones."""
    broker = TransactionBroker(tmp_path, ids=Ids(block=1)).start()
    found = await asyncio.gather(*(broker.producer(f"tx{number}") for number in range(4)))
    assert {producer_id for producer_id, _ in found} == {0, 1, 2, 3}
    broker.stop()


@running
async def test_without_a_controller_there_are_no_ids_until_it_is_back(tmp_path: Path) -> None:
    source = Ids()
    source.failing = True
    broker = TransactionBroker(tmp_path, ids=source).start()
    with pytest.raises(KafkaError) as refused:
        await broker.init()
    assert refused.value.code is E.COORDINATOR_LOAD_IN_PROGRESS
    source.failing = False
    assert await broker.producer() == (0, 0)
    assert await broker.runtime.new_producer_id() == 1
    broker.stop()


@running
async def test_a_partition_that_leaves_takes_its_waiting_markers_along(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    topic = broker.partitions[TOPIC, 0]
    broker.set_followers(topic, 2)
    written = broker.runtime.write_marker(PartitionMarker(TOPIC, 0, 7, 1, True, 0, 0))
    topic.apply_state(PartitionState(2, 1, (1, 2), (1, 2)))
    topic.retire()
    with pytest.raises(KafkaError) as raised:
        await written
    assert raised.value.code is E.NOT_LEADER_OR_FOLLOWER
    broker.stop()


@running
async def test_describe_shows_partitions_without_marker_while_ending(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    await broker.add(producer, (TOPIC, 0), (TOPIC, 1))
    slow = broker.partitions[TOPIC, 1]
    broker.set_followers(slow, 2)
    ending = broker.end(producer)
    assert broker.runtime.describe("tx").partitions == {(TOPIC, 0), (TOPIC, 1)}, "no marker is on its way yet"
    assert (await ending).error is E.NONE
    await turn()
    assert broker.shown() == "PrepareCommit"
    assert broker.runtime.describe("tx").partitions == {(TOPIC, 1)}
    broker.commit_all(slow)
    assert broker.shown() == "CompleteCommit"
    assert broker.runtime.describe("tx").partitions == frozenset()
    broker.stop()


@running
async def test_offsets_can_be_added_before_their_topic_exists(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path, {"offsets.topic.num.partitions": "1"}).start()
    producer = await broker.producer()
    broker.image = broker.image.without_topics([OFFSETS])
    assert broker.runtime.add_offsets("tx", producer, "g", 1).result() is E.NONE
    assert broker.runtime.describe("tx").partitions == {(OFFSETS, 0)}
    broker.stop()


@running
async def test_loaded_transactions_are_listed_by_state(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    await broker.add(producer, (TOPIC, 0))
    everything = broker.runtime.list_transactions(ListFilter())
    assert ([each.transactional_id for each in everything.listings], everything.unknown_states) == (["tx"], [])
    assert broker.runtime.list_transactions(ListFilter(states=["Empty", "Odd"])) == (["Odd"], [])
    broker.stop()


@running
async def test_id_is_idle_only_between_its_transactions(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    producer = await broker.producer()
    shard = broker.runtime._shard("tx")
    assert [shard.is_idle(name) for name in ("unknown", "tx")] == [False, True]
    await broker.add(producer, (TOPIC, 0))
    assert not shard.is_idle("tx")
    await broker.end(producer)
    await turn()
    assert shard.is_idle("tx")
    broker.stop()


@running
async def test_unknown_id_is_described_with_zeros(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path).start()
    found = broker.runtime.describe("unknown")
    assert found.error is E.TRANSACTIONAL_ID_NOT_FOUND
    assert (found.timeout_ms, found.start_ms, found.producer_id, found.producer_epoch) == (0, 0, 0, 0)
    broker.stop()
