"""Partitions come and go with the cluster image without holding up the loop."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.storage.partitions import Partitions
from odradek.broker.storage.replica_directories import ReplicaDirectories
from odradek.log.config import LogConfig
from odradek.log.directories.log_directories import LogDirectories
from odradek.metadata.image import DEFAULT_BROKER, ClusterImage, PartitionState, Topic
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.records.builder import BatchFields, encode_batch
from odradek.replication.leadership import Leadership
from odradek.replication.partition import Partition, PartitionEnvironment
from odradek.wire.errors import ErrorCode, KafkaError

MANY = 300


def image_with(*topics: Topic) -> ClusterImage:
    image = ClusterImage()
    for topic in topics:
        image = image.with_topic(topic)
    return image


def a_topic(name: str, topic_id: bytes, partitions: int) -> Topic:
    state = PartitionState(leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
    return Topic(name, topic_id, (state,) * partitions)


def start(
    *paths: Path, disk: SystemDisk | None = None, clock: Any = None, environment: PartitionEnvironment | None = None
) -> tuple[LogDirectories, Partitions]:
    random, names = SeededRandom("partitions"), [str(path) for path in paths]
    directories = LogDirectories(disk or SystemDisk(), clock or SystemClock(), random, names)
    directories.startup.load(cluster_id="c", node_id=1)
    return directories, Partitions(1, ReplicaDirectories(1, directories), lambda _: LogConfig(), environment)


async def turns_during(work: Partitions) -> int:
    """How often other work of the loop got its turn."""
    turns = 0
    settling = asyncio.ensure_future(work.change_directories())
    while not settling.done():
        await asyncio.sleep(0)
        turns += 1
    await settling
    return turns


def test_many_directories_come_and_go_in_many_turns(tmp_path: Path) -> None:
    async def scenario() -> None:
        directories, partitions = start(tmp_path)
        partitions.apply(image_with(a_topic("t", b"t" * 16, MANY)))
        assert partitions.find("t", MANY - 1) is not None, "it does not have to wait for the others"
        assert await turns_during(partitions) > 5
        assert len(directories.partitions()) == MANY
        partitions.apply(ClusterImage())
        assert partitions.find("t", MANY - 1) is None
        assert await turns_during(partitions) > 5
        assert directories.partitions() == []
        await directories.close()

    asyncio.run(scenario())


class SlowDisk(SystemDisk):
    """A clock as well, by which each new directory takes 3 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def make_directories(self, path: str) -> None:
        self.made += 1
        super().make_directories(path)

    def now_ms(self) -> int:
        return self.made * 3

    def monotonic(self) -> float:
        return self.made * 0.003


def test_turn_of_a_slow_disk_creates_few_directories(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        disk = SlowDisk()
        directories, partitions = start(tmp_path, disk=disk, clock=disk)
        partitions.apply(image_with(a_topic("t", b"t" * 16, 20)))
        made, before, work = [], disk.made, asyncio.ensure_future(partitions.change_directories())
        while not work.done():
            await asyncio.sleep(0)
            made.append(disk.made - before)
            before = disk.made
        await directories.close()
        return made

    made = asyncio.run(scenario())
    assert (sum(made), max(made)) == (20, 2)


def test_a_topic_recreated_before_the_old_one_is_gone_from_the_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        directories, partitions = start(tmp_path)
        partitions.apply(image_with(a_topic("t", b"1" * 16, 2)))
        await partitions.change_directories()
        partitions.apply(ClusterImage())
        partitions.apply(image_with(a_topic("t", b"2" * 16, 2)))
        new = partitions.find("t", 0)
        assert new is not None
        await partitions.change_directories()
        assert new.log is directories.log("t", 0)
        assert not new.log.is_offline
        assert sorted(directories.partitions()) == [("t", 0), ("t", 1)]
        for index in (0, 1):
            assert partitions.find("t", index) is not None
            assert (tmp_path / f"t-{index}" / "partition.metadata").exists()
        await directories.close()

    asyncio.run(scenario())


def test_open_logs_obey_a_default_that_is_set_while_the_broker_runs(tmp_path: Path) -> None:
    """Acknowledged below the new `min.insync.replicas` otherwise, and kept as long as before."""

    async def scenario() -> None:
        directories, _ = start(tmp_path)
        config = BrokerConfig({})
        partitions = Partitions(
            1, ReplicaDirectories(1, directories), lambda topic: LogConfig.build(config.topic_settings(topic.configs))
        )
        own = a_topic("own", b"o" * 16, 1)._replace(configs={"retention.ms": "7"})
        image = image_with(a_topic("t", b"1" * 16, 1), own)
        partitions.apply(image)
        await partitions.change_directories()
        log, other = partitions.require("t", 0).log, partitions.require("own", 0).log
        defaults = {"min.insync.replicas": "2", "log.retention.ms": "5"}
        config.apply_dynamic(defaults, {})
        partitions.apply(image.with_broker_configs(DEFAULT_BROKER, defaults))
        assert (log.config.min_insync_replicas, log.config.retention_ms) == (2, 5)
        assert (other.config.min_insync_replicas, other.config.retention_ms) == (2, 7)
        config.apply_dynamic({}, {})
        partitions.apply(image)
        assert log.config.min_insync_replicas == 1
        await directories.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("sets_default", [False, True])
def test_lower_minimum_of_replicas_commits_what_waits(tmp_path: Path, sets_default: bool) -> None:
    """No append and no fetch may come that would have the leader look again."""

    async def scenario() -> None:
        directories, _ = start(tmp_path)
        config = BrokerConfig({"min.insync.replicas": "2"})
        partitions = Partitions(
            1, ReplicaDirectories(1, directories), lambda topic: LogConfig.build(config.topic_settings(topic.configs))
        )
        state = PartitionState(leader=1, leader_epoch=0, isr=(1,), replicas=(1, 2))
        topic = Topic("t", b"1" * 16, (state,))
        partitions.apply(image_with(topic))
        partition = partitions.require("t", 0)
        partition.append(memoryview(encode_batch([(0, None, b"value", ())])), now_ms=0)
        committed: list[int] = []
        partition.when_committed(0, lambda: committed.append(partition.high_watermark))
        assert committed == []
        lower = {"min.insync.replicas": "1"}
        if sets_default:
            config.apply_dynamic(lower, {})
            partitions.apply(image_with(topic).with_broker_configs(DEFAULT_BROKER, lower))
        else:
            partitions.apply(image_with(topic._replace(configs=lower)))
        assert committed == [1]
        await directories.close()

    asyncio.run(scenario())


def test_a_recreated_topic_does_not_begin_with_the_open_log_of_the_old_one(tmp_path: Path) -> None:
    """Produced to while the directories of the old one, many of them, are still on their way out."""

    async def scenario() -> None:
        directories, partitions = start(tmp_path)
        partitions.apply(image_with(a_topic("t", b"1" * 16, 1)))
        await partitions.change_directories()
        old = partitions.require("t", 0)
        old.append(memoryview(encode_batch([(1, None, b"old", ())], BatchFields())), now_ms=1)
        partitions.apply(image_with(a_topic("t", b"2" * 16, 1)))
        new = partitions.require("t", 0)
        assert (new.topic_id, new.log.end_offset) == (b"2" * 16, 0)
        new.append(memoryview(encode_batch([(1, None, b"new", ())], BatchFields())), now_ms=1)
        await partitions.change_directories()
        assert old.log.is_offline
        assert new.log is directories.log("t", 0)
        assert (new.log.is_offline, new.log.end_offset) == (False, 1)
        await directories.close()

    asyncio.run(scenario())


def test_stopped_replica_is_not_reopened_by_an_older_image(tmp_path: Path) -> None:
    """It would lead with an empty log, and followers without news of their new leader would cut theirs."""

    async def scenario() -> None:
        directories, partitions = start(tmp_path)
        state = PartitionState(1, 3, (1, 2), (1, 2), 5)
        partitions.apply(image_with(Topic("t", b"t" * 16, (state,))))
        await partitions.change_directories()
        assert partitions.find("t", 0) is not None
        partitions.stop([("t", 0)], delete=True)
        partitions.apply(image_with(Topic("t", b"t" * 16, (state,)), a_topic("other", b"o" * 16, 1)))
        await partitions.change_directories()
        assert partitions.find("t", 0) is None
        with pytest.raises(KafkaError) as caught:
            partitions.require(b"t" * 16, 0)
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert directories.partitions() == [("other", 0)]
        # It is a replica again, and no image showed that it was not one in between.
        again = state._replace(leader=2, leader_epoch=4, isr=(2,), partition_epoch=7)
        partitions.apply(image_with(Topic("t", b"t" * 16, (again,))))
        found = partitions.find("t", 0)
        assert found is not None
        assert (found.leader, found.log.end_offset) == (2, 0)
        await directories.close()

    asyncio.run(scenario())


def test_failed_directory_creation_does_not_stop_the_rest_of_an_image(tmp_path: Path) -> None:
    async def scenario() -> None:
        directories, partitions = start(tmp_path)
        partitions.apply(image_with(a_topic("old", b"o" * 16, 1)))
        await partitions.change_directories()
        (tmp_path / "t-0").write_bytes(b"in the way")
        partitions.apply(image_with(a_topic("t", b"t" * 16, 2)))
        await partitions.change_directories()
        assert directories.partitions() == []
        with pytest.raises(KafkaError) as caught:
            partitions.find("t", 0)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        await directories.close()

    asyncio.run(scenario())


def test_replica_that_may_be_in_an_unread_directory_is_offline(tmp_path: Path) -> None:
    async def scenario() -> None:
        good, bad = tmp_path / "good", tmp_path / "bad"
        directories, partitions = start(good, bad)
        old = a_topic("old", b"o" * 16, 4)
        partitions.apply(image_with(old))
        await partitions.change_directories()
        lost = {p for p in range(4) if directories.directory_of("old", p) is directories.directories[1]}
        assert len(lost) == 2
        assert not any(partitions.is_offline("old", p) for p in range(5))
        await directories.close()
        bad.rename(tmp_path / "away")
        bad.write_bytes(b"not a directory")
        directories, partitions = start(good, bad)
        partitions.apply(image_with(old))
        await partitions.change_directories()
        assert {p for p in range(4) if partitions.is_offline("old", p)} == lost
        for index in lost:
            with pytest.raises(KafkaError) as caught:
                partitions.find("old", index)
            assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        # Created while this process runs: they cannot have been written before.
        partitions.apply(image_with(old, a_topic("new", b"n" * 16, 2)))
        assert not partitions.is_offline("new", 0)
        assert partitions.find("new", 0) is not None
        await partitions.change_directories()
        grown = a_topic("old", b"o" * 16, 5)
        partitions.apply(image_with(grown, a_topic("new", b"n" * 16, 2)))
        await partitions.change_directories()
        assert partitions.find("old", 4) is not None
        assert not any((good / f"old-{p}").exists() for p in lost)
        assert {p for p in range(5) if partitions.is_offline("old", p)} == lost
        await directories.close()

    asyncio.run(scenario())


def test_replica_assigned_while_a_directory_is_unreadable_is_created(tmp_path: Path) -> None:
    async def scenario() -> None:
        bad = tmp_path / "bad"
        bad.write_bytes(b"not a directory")
        directories, partitions = start(tmp_path / "good", bad)
        elsewhere = PartitionState(leader=2, leader_epoch=0, isr=(2,), replicas=(2,))
        here = PartitionState(leader=2, leader_epoch=0, isr=(2,), replicas=(2, 1))
        partitions.apply(image_with(Topic("t", b"t" * 16, (elsewhere,))))
        assert not partitions.is_offline("t", 0)
        partitions.apply(image_with(Topic("t", b"t" * 16, (here,))))
        await partitions.change_directories()
        assert partitions.find("t", 0) is not None
        assert not partitions.is_offline("t", 0)
        await directories.close()

    asyncio.run(scenario())


def test_batches_behind_one_that_came_too_early_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a partition is checked after a crash its batches are refused: of one that knows nothing of the producer
    the third batch in flight would be taken for its first."""

    async def scenario() -> None:
        directories, partitions = start(tmp_path)
        partitions.apply(image_with(a_topic("t", b"t" * 16, 1)))

        def being_checked(*_: object, **__: object) -> None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "is checked after an unclean stop")

        def send(sequence: int) -> ErrorCode:
            fields = BatchFields(producer_id=7, producer_epoch=0, base_sequence=sequence)
            batch = memoryview(encode_batch([(1, None, b"x", ())], fields))
            try:
                partitions.require(b"t" * 16, 0).append(batch, now_ms=1)
            except KafkaError as error:
                partitions.refused(b"t" * 16, 0, batch, error.code, 1)
                return error.code
            return ErrorCode.NONE

        monkeypatch.setattr(LogDirectories, "open", being_checked)
        assert [send(0), send(1)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        monkeypatch.undo()
        assert send(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [send(0), send(1), send(2)] == [ErrorCode.NONE] * 3
        await directories.close()

    asyncio.run(scenario())


def test_settings_are_known_of_topics_that_exist(tmp_path: Path) -> None:
    async def scenario() -> None:
        directories, partitions = start(tmp_path)
        partitions.apply(image_with(a_topic("t", b"t" * 16, 1)))
        assert partitions.settings_of("t") == LogConfig()
        assert partitions.settings_of("u") is None
        await directories.close()

    asyncio.run(scenario())


def test_settings_of_a_log_are_known_without_opening_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        directories, partitions = start(tmp_path)
        partitions.apply(image_with(a_topic("t", b"t" * 16, 1)))
        with monkeypatch.context() as patched:
            patched.setattr(LogDirectories, "open", None)
            assert partitions.log_config("t", 0) == partitions.log_config(b"t" * 16, 0) == LogConfig()
            assert partitions.log_config("u", 0) is partitions.log_config(b"u" * 16, 0) is None
        assert partitions.log_config("t", 0) == partitions.require("t", 0).log.config
        await directories.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("replicas", "isr", "expected"), [((1,), (1,), True), ((1, 2), (1, 2), False), ((1, 2), (1,), True)]
)
def test_right_to_lead_is_known_without_opening_the_log(
    tmp_path: Path, replicas: tuple[int, ...], isr: tuple[int, ...], expected: bool
) -> None:
    """After a restart a Metadata request asks for all partitions: to open thousands of logs would hold the loop."""

    async def scenario() -> None:
        environment = PartitionEnvironment(leadership=Leadership(1, lambda: 0.0))
        directories, partitions = start(tmp_path, environment=environment)
        state = PartitionState(leader=1, leader_epoch=0, isr=isr, replicas=replicas)
        partitions.apply(image_with(Topic("t", b"t" * 16, (state,))))
        assert partitions.may_lead("t", 0) is expected
        assert partitions.opened() == []
        assert partitions.require("t", 0).may_lead is expected
        assert partitions.may_lead("t", 0) is expected
        await directories.close()

    asyncio.run(scenario())


class Broken(Exception):
    """No error that the program expects."""


def two_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[LogDirectories, Partitions]:
    """Topic `t` with two partitions, of which the first one cannot be opened."""
    directories, partitions = start(tmp_path)
    right = directories.open

    def fail_first(topic: str, index: int, *arguments: Any, **options: Any) -> Any:
        if index == 0:
            raise Broken
        return right(topic, index, *arguments, **options)

    monkeypatch.setattr(LogDirectories, "open", lambda _self, *args, **kwargs: fail_first(*args, **kwargs))
    partitions.apply(image_with(a_topic("t", b"t" * 16, 2)))
    return directories, partitions


def test_partition_that_cannot_be_opened_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories, partitions = two_replicas(tmp_path, monkeypatch)
    reported: list[str] = []
    directories.events.subscribe_failures(reported.append)
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            partitions.find("t", 0)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partitions.is_offline("t", 0)
    assert reported == ["t-0"]
    assert partitions.find("t", 1) is not None
    assert not partitions.is_offline("t", 1)


def test_replica_of_a_recreated_topic_has_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, partitions = two_replicas(tmp_path, monkeypatch)
    with pytest.raises(KafkaError):
        partitions.find("t", 0)
    partitions.apply(image_with(a_topic("t", b"u" * 16, 2)))
    assert not partitions.is_offline("t", 0)


def test_partition_whose_new_state_cannot_be_applied_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, partitions = start(tmp_path)
    topic = a_topic("t", b"t" * 16, 2)
    partitions.apply(image_with(topic))
    broken, sound = partitions.require("t", 0), partitions.require("t", 1)
    released: list[str] = []
    for partition in (broken, sound):
        partition.when_committed(0, partial(released.append, f"{partition.topic}-{partition.index}"))
    right = Partition.apply_state

    def apply_state(partition: Partition, state: PartitionState) -> None:
        if partition is broken:
            raise Broken
        right(partition, state)

    monkeypatch.setattr(Partition, "apply_state", apply_state)
    newer = PartitionState(leader=1, leader_epoch=5, isr=(1,), replicas=(1,))
    partitions.apply(image_with(topic._replace(partitions=(newer, newer))))
    assert partitions.is_offline("t", 0)
    assert sound.leader_epoch == 5
    assert (released, broken.is_leader) == (["t-0"], False), "no later state would end its leadership"


def test_directory_that_cannot_be_created_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories, partitions = start(tmp_path)
    right = directories.create

    def create(_self: LogDirectories, topic: str, index: int, *arguments: Any, **options: Any) -> Any:
        if index == 0:
            raise Broken
        return right(topic, index, *arguments, **options)

    monkeypatch.setattr(LogDirectories, "create", create)
    partitions.apply(image_with(a_topic("t", b"t" * 16, 2)))
    asyncio.run(partitions.change_directories())
    assert partitions.is_offline("t", 0)
    assert ("t", 1) in directories.partitions()
