"""A group coordinator on real partitions of `__consumer_offsets`, without a broker around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek.broker.coordinators.groups import GroupCoordinatorService
from odradek.broker.coordinators.shard import CoordinatorState
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.events import CommitRequest, JoinRequest, OffsetToCommit, SyncRequest
from odradek.groups.settings import GroupSettings
from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment
from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import ClusterImage, PartitionState
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode

QUICK = GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=1)
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}))


class GroupBroker:
    def __init__(self, directory: Path, settings: GroupSettings = QUICK, partitions: int = 1) -> None:
        self.directory = directory
        self.count = partitions
        self.image = ClusterImage()
        self.knows_all_topics = False
        """Most tests have no topics in the image."""
        self.runtime = GroupCoordinatorService(
            settings,
            partitions,
            lambda: self.image,
            SystemClock(),
            SeededRandom(1),
            asyncio.get_running_loop(),
            lambda: self.knows_all_topics,
        )
        self.partitions = [self._partition(index) for index in range(partitions)]

    def _partition(self, index: int, config: LogConfig = CONFIG) -> Partition:
        path = self.directory / f"__consumer_offsets-{index}"
        path.mkdir(exist_ok=True, parents=True)
        environment = LogEnvironment(SystemDisk(), SystemClock())
        log = PartitionLog.open("__consumer_offsets", index, str(path), config, environment)
        partition = Partition("__consumer_offsets", bytes(16), index, 1, log)
        partition.apply_state(PartitionState(1, 0, (1,), (1,)))
        return partition

    def start(self) -> GroupBroker:
        for partition in self.partitions:
            self.runtime.elected(partition)
        return self

    @property
    def coordinator(self) -> GroupCoordinator:
        """The state machine of the first partition."""
        return self.runtime._runtime.shard(0).coordinator

    @property
    def is_loading(self) -> bool:
        """Whether the first partition is being loaded."""
        return self.runtime.state_of(0) is CoordinatorState.LOADING

    def stop(self) -> None:
        self.runtime.close()
        for partition in self.partitions:
            partition.log.close()

    def commit(self, request: CommitRequest) -> asyncio.Future[list[ErrorCode]]:
        reply: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()
        self.runtime.commit_offsets(request, reply)
        return reply

    def set_followers(self, partition: Partition, *followers: int) -> None:
        """With followers in sync that never fetch, nothing more is committed."""
        replicas = (1, *followers)
        partition.apply_state(PartitionState(1, 0, replicas, replicas, partition.partition_epoch + 1))

    def commit_all(self, partition: Partition) -> None:
        """Without followers."""
        partition.apply_state(PartitionState(1, 0, (1,), (1,), partition.partition_epoch + 1))


def join_request(group_id: str = "g", member_id: str = "", **fields: Any) -> JoinRequest:
    protocols = (("range", b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"),)
    request = JoinRequest(group_id, member_id, None, "client", "/127.0.0.1", 10_000, 30_000, "consumer", protocols)
    return request._replace(**fields)


def commit_request(*offsets: tuple[str, int, int], group_id: str = "g", **fields: Any) -> CommitRequest:
    request = CommitRequest(group_id, "", None, -1, [OffsetToCommit(*offset) for offset in offsets])
    return request._replace(**fields)


def sync_request(group_id: str, member_id: str, generation: int, assignments: dict[str, bytes]) -> SyncRequest:
    return SyncRequest(group_id, member_id, None, generation, None, None, assignments)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("waited for ten seconds")


async def stable_member(broker: GroupBroker, group_id: str = "g") -> str:
    """A group of one member."""
    result = await broker.runtime.join(join_request(group_id, member_id_required=False))
    await broker.runtime.sync(
        sync_request(group_id, result.member_id, result.generation_id, {result.member_id: b"all"})
    )
    return result.member_id
