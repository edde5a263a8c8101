"""The shell around the group coordinator, on a real log."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.coordinators import runtime as coordinator_runtime
from odradek.broker.coordinators.shard import CoordinatorState
from odradek.groups.events import ConsumerHeartbeat, JoinResult, LeavingMember, OffsetToCommit, SyncResult
from odradek.groups.settings import GroupSettings
from odradek.log.append import Origin
from odradek.log.cleaner.candidates import cleanable
from odradek.log.cleaner.log_cleaner import facts, plan
from odradek.log.cleaner.segment_rewrite import CleanedSegment, Compaction, CompactionResult
from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from odradek.log.reader import LogReader
from odradek.metadata.image import PartitionState, Topic
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.records.batch import parse_header
from odradek.records.builder import encode_batch
from odradek.records.control import encode_end_transaction
from odradek.replication.partition import release_clients
from odradek.wire.errors import ErrorCode as E
from odradek.wire.errors import KafkaError
from tests.unit.broker.coordinators.group_broker import (
    QUICK,
    GroupBroker,
    commit_request,
    join_request,
    stable_member,
    sync_request,
    until,
)


def running(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    """Run a coroutine test on a loop of its own."""

    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))  # type: ignore[arg-type]

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def code_of(answer: Awaitable[object]) -> E:
    with pytest.raises(KafkaError) as failed:
        await answer
    return failed.value.code


async def committed(broker: GroupBroker, topic: str = "t", partition: int = 0, group_id: str = "g") -> int:
    ((_, (found,)),) = await broker.runtime.fetch_offsets(group_id, [(topic, [partition])], False)
    return found.offset if found.error is E.NONE else -int(found.error)


@running
async def test_a_group_lives_through_a_restart(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    member = await stable_member(broker)
    commit = commit_request(("t", 0, 5), member_id=member, generation_id=1)
    assert await broker.commit(commit) == [E.NONE]
    broker.stop()
    broker = GroupBroker(tmp_path).start()
    assert broker.runtime.heartbeat("g", member, None, 1) is E.NONE
    assert await committed(broker) == 5
    described = broker.runtime.describe_group("g")
    assert (described.state, described.members[0].assignment) == ("Stable", b"all")
    broker.stop()


@running
async def test_commits_of_one_turn_share_a_batch(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    waiting = [broker.commit(commit_request(("t", i, i), group_id=f"g{i}")) for i in range(20)]
    assert await asyncio.gather(*waiting) == [[E.NONE]] * 20
    log = broker.partitions[0].log
    assert log.end_offset == 20
    assert len(list(log.reader.read_batches(0, 20))) == 1
    assert await committed(broker, partition=7, group_id="g7") == 7
    broker.stop()


@running
async def test_large_commits_do_not_share(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    offsets = [("t" * 200, i, i) for i in range(600)]
    waiting = [broker.commit(commit_request(*offsets, group_id=f"g{i}")) for i in range(5)]
    await asyncio.gather(*waiting)
    sizes = [len(batch) for batch in broker.partitions[0].log.reader.read_batches(0, 3000)]
    assert len(sizes) >= 3
    assert max(sizes) < 512 * 1024
    broker.stop()


@running
async def test_one_commit_that_is_too_large_costs_only_itself(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path)
    broker.partitions[0].log.set_config(LogConfig(cleanup_policy=frozenset({"compact"}), max_message_bytes=2_000))
    broker.start()
    small = broker.commit(commit_request(("t", 0, 1)))
    large = broker.commit(commit_request(*[("t", i, 1) for i in range(200)], group_id="large"))
    other = broker.commit(commit_request(("t", 1, 2)))
    assert await small == await other == [E.NONE]
    assert await code_of(large) is E.UNKNOWN_SERVER_ERROR
    assert await committed(broker, group_id="large") == -1
    broker.stop()


@running
async def test_deletion_too_large_for_one_batch_is_divided(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path)
    broker.start()
    commits = [broker.commit(commit_request(*[("t", i, 1) for i in range(20)], group_id=f"g{n}")) for n in range(10)]
    await asyncio.gather(*commits)
    log = broker.partitions[0].log
    log.set_config(LogConfig(cleanup_policy=frozenset({"compact"}), max_message_bytes=2_000, segment_bytes=1_000))
    broker.runtime.topics_deleted(["t"])
    assert [await committed(broker, partition=19, group_id=f"g{n}") for n in range(10)] == [-1] * 10
    assert log.end_offset == 400
    broker.stop()


@running
async def test_partition_is_loaded_again_when_its_log_could_not_be_read(tmp_path: Path) -> None:
    """As when no descriptor was left at that moment."""
    broker = GroupBroker(tmp_path).start()
    assert await broker.commit(commit_request(("t", 0, 5))) == [E.NONE]
    broker.stop()
    broker = GroupBroker(tmp_path)
    log = broker.partitions[0].log
    failures = [OSError(errno.EMFILE, "Too many open files")]
    read_batches = LogReader.read_batches

    def fails_once(self: LogReader, offset: int, upper_offset: int) -> Iterator[memoryview]:
        if failures:
            error = failures.pop()
            raise KafkaError(E.KAFKA_STORAGE_ERROR, str(error)) from error
        yield from read_batches(self, offset, upper_offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogReader, "read_batches", fails_once)
        patch.setattr(coordinator_runtime, "RELOAD_SECONDS", 0.01)
        broker.start()
        await until(lambda: not failures)
        assert broker.runtime.state_of(0) is CoordinatorState.FAILED
        await until(lambda: broker.runtime.state_of(0) is CoordinatorState.ACTIVE)
    assert not log.is_offline
    assert await committed(broker) == 5
    broker.stop()


@running
async def test_partition_is_loaded_again_that_was_offline_during_its_move(tmp_path: Path) -> None:
    """There was no descriptor to open its log in the other log directory when this broker was elected."""
    broker = GroupBroker(tmp_path / "before").start()
    assert await broker.commit(commit_request(("t", 0, 5))) == [E.NONE]
    broker.stop()
    moved = broker.partitions[0].log
    broker = GroupBroker(tmp_path / "after")
    (partition,) = broker.partitions
    partition.log.fail("it was moved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator_runtime, "RELOAD_SECONDS", 0.01)
        broker.start()
        await until(lambda: broker.runtime.state_of(0) is CoordinatorState.FAILED)
        partition.replace_log(moved)
        partition.restore_high_watermark(moved.end_offset)
        await until(lambda: broker.runtime.state_of(0) is CoordinatorState.ACTIVE)
    assert await committed(broker) == 5
    broker.stop()


@running
async def test_commit_accepts_the_longest_retention(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    assert await broker.commit(commit_request(("t", 0, 5), retention_ms=(1 << 63) - 1)) == [E.NONE]
    assert await committed(broker) == 5
    broker.stop()


@running
async def test_a_record_that_cannot_be_written_fails_alone(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    bad = broker.commit(commit_request(("t", 0, 1), group_id="g" * 40_000))
    good = broker.commit(commit_request(("t", 0, 1)))
    assert await code_of(bad) is E.UNKNOWN_SERVER_ERROR
    assert await good == [E.NONE]
    broker.stop()


@running
async def test_answers_wait_for_the_followers(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    (partition,) = broker.partitions
    broker.set_followers(partition, 2)
    commit = broker.commit(commit_request(("t", 0, 1)))
    await until(lambda: partition.log.end_offset == 1)
    fetch = asyncio.ensure_future(committed(broker))
    await asyncio.sleep(0)
    assert not commit.done()
    assert not fetch.done()
    broker.commit_all(partition)
    assert await commit == [E.NONE]
    assert await fetch == 1
    broker.stop()


@running
async def test_repeated_request_is_answered_only_when_the_state_is_committed(tmp_path: Path) -> None:
    """A repeated request, as after a lost response, finds nothing left to do."""
    broker = GroupBroker(tmp_path).start()
    (partition,) = broker.partitions
    assert await broker.commit(commit_request(("t", 0, 5), ("t", 1, 6))) == [E.NONE] * 2
    broker.set_followers(partition, 2)
    first, again = (broker.runtime.delete_offsets("g", [("t", 0)]) for _ in range(2))
    await asyncio.sleep(0)
    assert not first.done()
    assert not again.done()
    broker.commit_all(partition)
    assert (await first, await again) == ([E.NONE], [E.NONE])
    broker.set_followers(partition, 2)
    first, again = (broker.runtime.delete_offsets("g", [("t", 1)]) for _ in range(2))
    partition.apply_state(PartitionState(2, 1, (1, 2), (1, 2)))
    assert [await code_of(first), await code_of(again)] == [E.NOT_COORDINATOR] * 2
    broker.stop()


@running
async def test_a_commit_that_takes_too_long_is_not_available(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, GroupSettings(offset_commit_timeout_ms=5)).start()
    (partition,) = broker.partitions
    broker.set_followers(partition, 2)
    assert await code_of(broker.commit(commit_request(("t", 0, 1)))) is E.COORDINATOR_NOT_AVAILABLE
    broker.commit_all(partition)
    assert await committed(broker) == 1
    broker.stop()


@running
async def test_commit_rejected_for_too_few_replicas_changes_nothing(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path)
    (partition,) = broker.partitions
    partition.log.config = LogConfig(cleanup_policy=frozenset({"compact"}), min_insync_replicas=2)
    broker.start()
    partition.replicas, partition.isr = (1, 2), (1,)
    assert await code_of(broker.commit(commit_request(("t", 0, 1)))) is E.COORDINATOR_NOT_AVAILABLE
    assert partition.log.end_offset == 0
    assert await committed(broker) == -1
    broker.stop()


@running
async def test_deposed_coordinator_answers_every_request_not_coordinator(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, GroupSettings(initial_rebalance_delay_ms=60_000)).start()
    (partition,) = broker.partitions
    join = broker.runtime.join(join_request(member_id_required=False))
    broker.set_followers(partition, 2)
    commit = broker.commit(commit_request(("t", 0, 1), group_id="other"))
    await until(lambda: partition.log.end_offset == 2)
    broker.runtime.resigned(0)
    assert (await join).error is E.NOT_COORDINATOR
    assert await code_of(commit) is E.NOT_COORDINATOR
    for call in (
        lambda: broker.runtime.heartbeat("g", "m", None, 1),
        lambda: broker.commit(commit_request(("t", 0, 1))),
        lambda: broker.runtime.describe_group("g"),
        lambda: broker.runtime.join(join_request()),
    ):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is E.NOT_COORDINATOR
    assert broker.runtime.list_groups([], []) == []
    broker.stop()


async def all_that_waits(broker: GroupBroker) -> dict[str, asyncio.Future[Any]]:
    """One request of each kind whose answer has to wait: for members, for the leader of a group, for followers."""
    runtime, (partition,) = broker.runtime, broker.partitions

    def join(group_id: str, member_id: str = "") -> asyncio.Future[JoinResult]:
        return runtime.join(
            join_request(
                group_id, member_id, member_id_required=False, session_timeout_ms=1000, rebalance_timeout_ms=1000
            )
        )

    first = await join("two")
    second = join("two")
    both = await asyncio.gather(join("two", first.member_id), second)
    follower = next(each for each in both if each.leader != each.member_id)
    await join("joined")
    alone = await join("alone")
    loop = asyncio.get_running_loop()
    now = loop.time()
    with pytest.MonkeyPatch.context() as patch:
        # No member times out before all wait, on however slow a machine.
        patch.setattr(loop, "time", lambda: now)
        broker.set_followers(partition, 2)
        waiting: dict[str, asyncio.Future[Any]] = {
            "join": join("joined"),
            "sync of a follower": runtime.sync(sync_request("two", follower.member_id, follower.generation_id, {})),
            "sync of a leader": runtime.sync(sync_request("alone", alone.member_id, 1, {alone.member_id: b"all"})),
            "commit": broker.commit(commit_request(("t", 0, 1), group_id="c")),
            "commit in a transaction": runtime.commit_transactional_offsets(
                commit_request(("t", 0, 1), group_id="x"), 7, 0
            ),
            "fetch": runtime.fetch_offsets("c", [("t", [0])], False),
        }
        for _ in range(3):
            await asyncio.sleep(0)
        assert [name for name, answer in waiting.items() if answer.done()] == []
    waiting["commit that has not been appended"] = broker.commit(commit_request(("t", 0, 1), group_id="late"))
    return waiting


async def codes_of(waiting: dict[str, asyncio.Future[Any]]) -> dict[str, E]:
    async with asyncio.timeout(20):
        answers = await asyncio.gather(*waiting.values(), return_exceptions=True)
    codes = {}
    for name, answer in zip(waiting, answers, strict=True):
        assert isinstance(answer, KafkaError | JoinResult | SyncResult), name
        codes[name] = answer.code if isinstance(answer, KafkaError) else answer.error
    return codes


@running
async def test_every_waiting_request_is_answered_when_the_partition_leaves(tmp_path: Path) -> None:
    """Answers leave a connection in the order of requests: one that never came would hold up all behind it."""
    broker = GroupBroker(tmp_path).start()
    waiting = await all_that_waits(broker)
    broker.runtime.resigned(0)
    assert await codes_of(waiting) == dict.fromkeys(waiting, E.NOT_COORDINATOR)
    broker.stop()


@running
async def test_waiting_members_are_answered_when_the_lease_ends(tmp_path: Path) -> None:
    """A coordinator that is cut off from the cluster kept them for up to five minutes, while another one led."""
    broker = GroupBroker(tmp_path).start()
    waiting = await all_that_waits(broker)
    partition = broker.partitions[0]
    members = {name: answer for name, answer in waiting.items() if name.startswith(("join", "sync"))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(partition), "may_lead", False)
        release_clients([partition])
        assert await codes_of(members) == dict.fromkeys(members, E.NOT_COORDINATOR)
    # The lease has come back: the members rejoin, and are released again when it ends again.
    again = broker.runtime.join(join_request("joined", member_id_required=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(partition), "may_lead", False)
        release_clients([partition])
        assert (await again).error is E.NOT_COORDINATOR
    broker.stop()


@running
async def test_every_waiting_request_is_answered_when_the_log_fails(tmp_path: Path) -> None:
    """Until another broker leads the partition, or for ever without another broker."""
    broker = GroupBroker(tmp_path, replace(QUICK, offset_commit_timeout_ms=100)).start()
    waiting = await all_that_waits(broker)
    broker.partitions[0].log.fail("its directory has failed")
    codes = await codes_of(waiting)
    assert codes.pop("join") is E.NONE, "the next generation is in memory only, and its assignment is refused"
    assert codes.pop("sync of a follower") is E.REBALANCE_IN_PROGRESS
    assert codes.pop("commit that has not been appended") is E.NOT_COORDINATOR
    assert codes == dict.fromkeys(codes, E.COORDINATOR_NOT_AVAILABLE)
    broker.runtime.close()


@running
async def test_offsets_of_a_topic_deleted_while_loading_are_deleted(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    await broker.commit(commit_request(("doomed", 0, 5), ("kept", 0, 6)))
    for i in range(40):
        await broker.commit(commit_request(*[("t" * 100, p, i) for p in range(200)], group_id=f"g{i}"))
    broker.stop()
    broker = GroupBroker(tmp_path).start()
    assert broker.is_loading
    broker.runtime.topics_deleted(["doomed"])
    await until(lambda: not broker.is_loading)
    assert await committed(broker, "kept") == 6
    assert await committed(broker, "doomed") == -1
    broker.stop()


@running
async def test_offsets_are_deleted_of_topics_deleted_before_the_load(tmp_path: Path) -> None:
    """As soon as this broker knows all topics: until then a topic outside the image may still be announced."""
    broker = GroupBroker(tmp_path).start()
    ids = {name: name.encode().ljust(16, b"-") for name in ("doomed", "kept")}
    offsets = [OffsetToCommit(name, 0, 5, topic_id=topic_id) for name, topic_id in ids.items()]
    assert await broker.commit(commit_request()._replace(offsets=offsets)) == [E.NONE, E.NONE]
    broker.stop()
    broker = GroupBroker(tmp_path)
    state = PartitionState(1, 0, (1,), (1,))
    broker.image = broker.image.with_topic(Topic("kept", ids["kept"], (state,)))
    broker.start()
    assert await committed(broker, "doomed") == 5
    broker.knows_all_topics = True
    await until(lambda: broker.partitions[0].log.end_offset == len(offsets) + 1)
    assert [await committed(broker, name) for name in ("kept", "doomed")] == [5, -1]
    broker.stop()


@running
async def test_requests_get_load_in_progress_while_loading(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    for i in range(40):
        await broker.commit(commit_request(*[("t" * 100, p, i) for p in range(200)], group_id=f"g{i}"))
    broker.stop()
    broker = GroupBroker(tmp_path).start()
    assert broker.runtime.heartbeat("g1", "m", None, 1) is E.NONE
    for call in (
        lambda: broker.commit(commit_request(("t", 0, 1))),
        lambda: broker.runtime.list_groups([], []),
        lambda: broker.runtime.join(join_request()),
        lambda: broker.runtime.fetch_offsets("g1", None, False),
    ):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is E.COORDINATOR_LOAD_IN_PROGRESS
    await until(lambda: not broker.is_loading)
    assert len(broker.runtime.list_groups([], [])) == 40
    assert await committed(broker, "t" * 100, 199, "g39") == 39
    broker.stop()


def compact(log: PartitionLog) -> None:
    """All but the active segment."""
    log.durability.flush(log.active_base_offset)
    now_ms = SystemClock().now_ms()
    upper_offset = log.durability.recovery_point
    found = cleanable(facts(log), log.config, now_ms, checkpoint=None, log_start_offset=0, upper_offset=upper_offset)
    compaction = Compaction(plan(log, found, now_ms, 1 << 20), SystemDisk())
    while not isinstance(done := compaction.step(), CompactionResult):
        if isinstance(done, CleanedSegment):
            assert log.replace_segments(done)


@running
async def test_log_is_loaded_while_it_is_compacted(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    config = replace(broker.partitions[0].log.config, segment_bytes=8_000)
    broker.partitions[0].log.set_config(config)
    for i in range(40):
        await broker.commit(commit_request(*[("t" * 100, p, i) for p in range(20)], group_id=f"g{i % 8}"))
    broker.stop()
    broker = GroupBroker(tmp_path)
    log = broker.partitions[0].log
    log.set_config(config)
    broker.start()
    assert broker.is_loading
    size = sum(segment.size for segment in log.segments)
    compact(log)
    assert sum(segment.size for segment in log.segments) < size
    await until(lambda: not broker.is_loading)
    assert not log.is_offline
    assert [await committed(broker, "t" * 100, 19, f"g{i}") for i in range(8)] == list(range(32, 40))
    broker.stop()


@running
async def test_a_damaged_log_is_not_coordinated(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path)
    batch = encode_batch([(1, b"\x00\x01\x00", b"\x00\x04", ())])
    broker.partitions[0].append(memoryview(batch), now_ms=1, origin=Origin.COORDINATOR)
    broker.start()
    with pytest.raises(KafkaError) as refused:
        broker.runtime.describe_group("g")
    assert refused.value.code is E.NOT_COORDINATOR
    broker.stop()


@running
async def test_records_of_unknown_kinds_are_passed_over(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path)
    batch = encode_batch([(1, b"\x00\x63\x00\x01g", b"\x00\x00", ())])
    broker.partitions[0].append(memoryview(batch), now_ms=1, origin=Origin.COORDINATOR)
    broker.start()
    assert broker.runtime.list_groups([], []) == []
    broker.stop()


@running
async def test_a_session_ends_by_the_loops_clock(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    request = join_request(member_id_required=False, session_timeout_ms=20)
    member = (await broker.runtime.join(request)).member_id
    await broker.runtime.sync(sync_request("g", member, 1, {member: b""}))
    await until(lambda: broker.runtime.describe_group("g").state == "Empty")
    assert broker.runtime.heartbeat("g", member, None, 1) is E.UNKNOWN_MEMBER_ID
    broker.stop()


@running
async def test_transactional_commits_are_pending_across_a_restart(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    codes = await broker.runtime.commit_transactional_offsets(commit_request(("t", 0, 7)), 42, 3)
    assert codes == [E.NONE]
    (batch,) = broker.partitions[0].log.reader.read_batches(0, 1)
    header = parse_header(batch)
    assert (header.producer_id, header.producer_epoch, header.is_transactional) == (42, 3, True)

    async def stable() -> int:
        ((_, (found,)),) = await broker.runtime.fetch_offsets("g", [("t", [0])], True)
        return found.offset if found.error is E.NONE else -int(found.error)

    assert await stable() == -E.UNSTABLE_OFFSET_COMMIT
    broker.stop()
    broker = GroupBroker(tmp_path).start()
    assert await stable() == -E.UNSTABLE_OFFSET_COMMIT
    marker = encode_end_transaction(
        commit=True, producer_id=42, producer_epoch=3, coordinator_epoch=0, timestamp_ms=SystemClock().now_ms()
    )
    result = broker.partitions[0].append(memoryview(marker), now_ms=SystemClock().now_ms(), origin=Origin.COORDINATOR)
    broker.runtime.transaction_ended(0, 42, result.last_offset, committed=True)
    assert await stable() == 7
    broker.stop()
    broker = GroupBroker(tmp_path).start()
    assert await stable() == 7
    broker.stop()


@running
async def test_groups_are_spread_and_listed_over_all_shards(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, partitions=5).start()
    for i in range(20):
        await broker.commit(commit_request(("t", 0, i), group_id=f"group-{i}"))
    assert sum(partition.log.end_offset > 0 for partition in broker.partitions) > 1
    assert {group.group_id for group in broker.runtime.list_groups(["empty"], [])} == {f"group-{i}" for i in range(20)}
    names = ["group-1", "nowhere", "group-2"]
    assert await broker.runtime.delete_groups(names) == [E.NONE, E.GROUP_ID_NOT_FOUND, E.NONE]
    assert len(broker.runtime.list_groups([], [])) == 18
    broker.runtime.topics_deleted(["t"])
    assert await committed(broker, group_id="group-5") == -1
    broker.stop()


@running
async def test_groups_of_other_coordinators_are_not_deleted_beside_own_ones(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, partitions=2).start()
    names = [f"group-{number}" for number in range(8)]
    for name in names:
        await broker.commit(commit_request(("t", 0, 1), group_id=name))
    broker.runtime.resigned(1)
    own = {group.group_id for group in broker.runtime.list_groups([], [])}
    assert 0 < len(own) < len(names)
    assert await broker.runtime.delete_groups(names) == [E.NONE if n in own else E.NOT_COORDINATOR for n in names]
    assert broker.runtime.list_groups([], []) == []
    broker.stop()


@running
async def test_group_can_be_deleted_after_its_last_member_left(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    member = await stable_member(broker)
    assert await broker.runtime.delete_groups(["g"]) == [E.NON_EMPTY_GROUP]
    left = await broker.runtime.leave("g", [LeavingMember(member), LeavingMember("unknown")])
    assert [m.error for m in left] == [E.NONE, E.UNKNOWN_MEMBER_ID]
    await broker.commit(commit_request(("t", 0, 1)))
    assert await broker.runtime.delete_offsets("g", [("t", 0), ("t", 1)]) == [E.NONE, E.NONE]
    assert await broker.runtime.delete_groups(["g"]) == [E.NONE]
    broker.stop()
    broker = GroupBroker(tmp_path).start()
    assert broker.runtime.list_groups([], []) == []
    broker.stop()


@running
async def test_cancelled_request_does_not_affect_others(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, GroupSettings(initial_rebalance_delay_ms=5)).start()
    gone = broker.runtime.join(join_request(member_id_required=False))
    stays = broker.runtime.join(join_request(member_id_required=False))
    gone.cancel()
    assert (await stays).generation_id == 1
    broker.stop()


@running
async def test_marker_that_comes_while_loading_is_applied(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    for i in range(4):
        await broker.commit(commit_request(*[("t" * 200, p, i) for p in range(600)], group_id=f"g{i}"))
    await broker.runtime.commit_transactional_offsets(commit_request(("t", 0, 7)), 42, 0)
    broker.stop()
    broker = GroupBroker(tmp_path).start()
    assert broker.is_loading
    broker.runtime.transaction_ended(0, 42, broker.partitions[0].log.end_offset - 1, committed=True)
    await until(lambda: not broker.is_loading)
    assert await committed(broker) == 7
    broker.stop()


@running
async def test_a_commit_on_a_connection_that_was_given_up_is_late(tmp_path: Path) -> None:
    """Found by the simulator (network-35): a stalled OffsetCommit arrived after later ones and put the offsets back."""
    broker = GroupBroker(tmp_path).start()
    late = broker.runtime.is_late_commit
    assert not late("g", "m", 3, 10)
    assert not late("g", "m", 3, 11)
    assert late("g", "m", 3, 10)
    assert not late("g", "other", 3, 10)
    assert not late("g", "m", 4, 10), "a new generation may come on any connection"
    assert not late("g", "", -1, 2), "tools that are no members use the connections they like"
    assert not late("g", "", -1, 1)
    broker.stop()


@running
async def test_closed_coordinator_ignores_elections(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path).start()
    broker.runtime.close()
    broker.start()
    assert broker.runtime.state_of(0) is None
    broker.stop()


@running
async def test_the_assignment_interval_can_be_changed_while_groups_live(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, replace(QUICK, consumer_assignment_interval_ms=0)).start()

    async def epochs_after(member_id: str) -> tuple[int, int]:
        request = ConsumerHeartbeat("g", member_id, 0, None, None, "client", "/host", 60_000, ("t",), None, None, {})
        await broker.runtime.consumer_heartbeat(request)
        described = broker.runtime.describe_consumer_group("g")
        return described.epoch, described.assignment_epoch

    first = await epochs_after("a")
    assert first[0] == first[1]
    broker.runtime.configure(replace(QUICK, consumer_assignment_interval_ms=100_000))
    second = await epochs_after("b")
    assert second[0] > second[1] == first[1], "the next assignment has to wait"
    broker.runtime.configure(replace(QUICK, consumer_assignment_interval_ms=0))
    third = await epochs_after("c")
    assert third[0] == third[1]
    broker.stop()


@running
async def test_offsets_of_a_consumer_group_are_read_without_a_member(tmp_path: Path) -> None:
    """As `kafka-consumer-groups.sh --describe` reads them, which is no member of the group."""
    broker = GroupBroker(tmp_path).start()
    request = ConsumerHeartbeat("g", "m", 0, None, None, "client", "/host", 60_000, ("t",), None, None, {})
    await broker.runtime.consumer_heartbeat(request)
    assert await broker.runtime.fetch_offsets("g", None, False) == []
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        broker.runtime.fetch_offsets("g", None, False, (None, 1))
    broker.stop()


@running
async def test_classic_member_that_does_not_rejoin_is_removed_in_time(tmp_path: Path) -> None:
    """The deadline that begins with its heartbeat may be the next one of all."""
    broker = GroupBroker(tmp_path, replace(QUICK, consumer_assignment_interval_ms=0)).start()
    runtime = broker.runtime

    def modern(member_id: str) -> ConsumerHeartbeat:
        return ConsumerHeartbeat("g", member_id, 0, None, None, "client", "/host", 60_000, ("t",), None, None, {})

    await runtime.consumer_heartbeat(modern("a"))
    protocols = (("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"),)
    wanted = join_request(session_timeout_ms=60_000, rebalance_timeout_ms=50, protocols=protocols)
    joined = await runtime.join(wanted._replace(member_id_required=False))
    assert joined.error is E.NONE
    member_id, generation = joined.member_id, joined.generation_id
    await runtime.sync(sync_request("g", member_id, generation, {}))
    timer = runtime._runtime._contexts[0]._timer
    armed_ms = timer._armed_ms
    assert armed_ms is not None
    await until(lambda: (timer._armed_ms or 0) > armed_ms + 1000)
    await runtime.consumer_heartbeat(modern("b"))
    assert runtime.heartbeat("g", member_id, None, generation) is E.REBALANCE_IN_PROGRESS
    await until(lambda: {each.member_id for each in runtime.describe_consumer_group("g").members} == {"a", "b"})
    broker.stop()
