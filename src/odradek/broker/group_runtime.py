"""The group coordinator of this broker: its shards, and requests on their way to them (see `group_shard`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from odradek.broker.config import ConfigError
from odradek.broker.coordinator_shard import RELOAD_SECONDS, ShardClock
from odradek.broker.group_shard import GroupShard
from odradek.groups.assignors import ASSIGNOR_CLASSES, ASSIGNORS
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.events import (
    CommitRequest,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    GroupDescription,
    GroupListing,
    JoinRequest,
    JoinResult,
    LeavingMember,
    LeftMember,
    SyncRequest,
    SyncResult,
)
from odradek.groups.placement import partition_for_group
from odradek.groups.service import Reply, TopicOffsets
from odradek.groups.settings import GroupSettings
from odradek.metadata.image import ClusterImage, Topic
from odradek.ports.clock import Clock
from odradek.ports.randomness import Random
from odradek.replication.partition import Partition
from odradek.transactions.connections import NewestConnections
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.api.context import Configuration


def group_settings(config: Configuration) -> GroupSettings:
    """The coordinator's settings as the broker is configured."""
    number = config.number
    return GroupSettings(
        min_session_timeout_ms=number("group.min.session.timeout.ms"),
        max_session_timeout_ms=number("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
        max_size=number("group.max.size"),
        offset_metadata_max_bytes=number("offset.metadata.max.bytes"),
        offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=number("offsets.retention.check.interval.ms"),
        offset_commit_timeout_ms=number("offsets.commit.timeout.ms"),
        consumer_session_timeout_ms=number("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=number("group.consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms=number("group.consumer.assignment.interval.ms"),
        consumer_max_size=number("group.consumer.max.size"),
        consumer_assignors=_assignors(config.words("group.consumer.assignors")),
        consumer_migration_policy=config.text("group.consumer.migration.policy"),
        unsettled_heartbeat_interval_ms=number("odradek.group.unsettled.heartbeat.interval.ms"),
        new_partitions_from_start=config.flag("odradek.group.new.partitions.from.start"),
    )


def _assignors(names: Sequence[str]) -> tuple[str, ...]:
    """By name or by Kafka's class name; others cannot be had here. Raises ConfigError."""
    found = tuple(ASSIGNOR_CLASSES.get(name, name) for name in names)
    unknown = [name for name in found if name not in ASSIGNORS]
    if unknown or not found:
        raise ConfigError(
            f"group.consumer.assignors: {', '.join(unknown) or 'empty'}; there are {', '.join(ASSIGNORS)}"
        )
    return found


DYNAMIC_GROUP_CONFIGS = ("group.consumer.assignment.interval.ms",)
"""All that Kafka lets an administrator change while the broker runs; a group's own settings come with the image."""

_AGAIN_SECONDS = 1.0
_REMEMBERED_COMMITTERS = 10_000
_ANY_PRODUCER = 0


class GroupRuntime:
    """Serves `groups.service.GroupService`.

    The broker tells it when it begins (`elected`) and ceases (`resigned`) to lead a partition of
    `__consumer_offsets`, and when topics come, go or grow.
    """

    __slots__ = (
        "_clock",
        "_closed",
        "_committers",
        "_image",
        "_loop",
        "_partition_count",
        "_random",
        "_settings",
        "_shards",
        "knows_all",
    )

    def __init__(
        self,
        settings: GroupSettings,
        partition_count: Callable[[], int],
        image: Callable[[], ClusterImage],
        clock: Clock,
        random: Random,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.knows_all: Callable[[], bool] = lambda: True
        """Whether a topic that is not in the image does not exist; else it may just not have been told of yet."""
        self._settings = settings
        self._partition_count = partition_count
        self._image = image
        self._clock = ShardClock(clock)
        self._random = random
        self._loop = loop
        self._shards: dict[int, GroupShard] = {}
        self._closed = False
        self._committers = NewestConnections(_REMEMBERED_COMMITTERS)

    # --- what the broker says ---

    def elected(self, partition: Partition) -> None:
        """Load the partition's groups and coordinate them; a shard that is there already stays."""
        if partition.index not in self._shards and not self._closed:
            coordinator = GroupCoordinator(self._settings, self._random, self._image)
            shard = GroupShard(partition, coordinator, self._settings, self._clock, self._loop)
            self._shards[partition.index] = shard
            shard.on_failed = lambda: self._failed(partition, shard)
            shard.load()
            self._look_for_missed(partition.index, shard)

    def _look_for_missed(self, index: int, shard: GroupShard) -> None:
        """Drop the offsets of topics that were deleted while nobody could say so in the shard's log.

        A broker is told what it leads before it is told of the topics that are not here.
        """
        if self._shards.get(index) is not shard:
            return
        if self.knows_all():
            shard.tell(lambda coordinator, _now_ms, _token: coordinator.topics_missed())
        else:
            self._loop.call_later(_AGAIN_SECONDS, self._look_for_missed, index, shard)

    def _failed(self, partition: Partition, shard: GroupShard) -> None:
        self._loop.call_later(RELOAD_SECONDS, self._reload, partition, shard)

    def _reload(self, partition: Partition, failed: GroupShard) -> None:
        if self._shards.get(partition.index) is failed:
            self.resigned(partition.index)
            self.elected(partition)

    def configure(self, settings: GroupSettings) -> None:
        """A setting has been changed (`DYNAMIC_GROUP_CONFIGS`)."""
        self._settings = settings
        for shard in self._shards.values():
            shard.coordinator.configure(settings)

    def resigned(self, index: int) -> None:
        """Stop coordinating the groups of a partition."""
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.unload()

    def close(self) -> None:
        """Coordinate nothing any more, whatever the controller says."""
        self._closed = True
        for index in list(self._shards):
            self.resigned(index)

    def topics_deleted(self, topics: Iterable[str]) -> None:
        names = list(topics)
        for shard in self._shards.values():
            shard.tell(lambda coordinator, _now_ms, _token: coordinator.topics_deleted(names))

    def topics_changed(self, topics: Sequence[str], grown: Sequence[tuple[Topic, int]]) -> None:
        """`grown` are those that have more partitions now, with the number that they had."""
        for shard in self._shards.values():
            shard.tell(lambda coordinator, now_ms, _token: coordinator.topics_changed(now_ms, topics, grown))

    def transaction_ended(self, index: int, producer_id: int, last_offset: int, *, committed: bool) -> None:
        """A transaction's marker was appended to a partition at `last_offset`."""
        shard = self._shards.get(index)
        if shard is not None:
            shard.transaction_ended(producer_id, last_offset, committed=committed)

    def _shard(self, group_id: str) -> GroupShard:
        shard = self._shards.get(partition_for_group(group_id, self._partition_count()))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return shard

    # --- requests ---

    def join(self, request: JoinRequest) -> asyncio.Future[JoinResult]:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard(request.group_id).run(lambda shard, now_ms, token: shard.join(now_ms, token, request))

    def sync(self, request: SyncRequest) -> asyncio.Future[SyncResult]:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard(request.group_id).run(lambda shard, now_ms, token: shard.sync(now_ms, token, request))

    def consumer_heartbeat(self, request: ConsumerHeartbeat) -> asyncio.Future[ConsumerHeartbeatResult]:
        return self._shard(request.group_id).run(
            lambda shard, now_ms, token: shard.consumer_heartbeat(now_ms, token, request)
        )

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        shard = self._shard(group_id)
        if shard.is_loading:
            # Whether the member is known will show; until then it must not be told to join again.
            return ErrorCode.NONE
        now_ms = self._clock.now_ms()
        return shard.check().heartbeat(now_ms, group_id, member_id, group_instance_id, generation_id)

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> asyncio.Future[list[LeftMember]]:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard(group_id).run(lambda shard, now_ms, token: shard.leave(now_ms, token, group_id, leaving))

    def is_late_commit(self, group_id: str, member_id: str, generation_id: int, connection: int) -> bool:
        if not member_id or generation_id < 0:
            return False
        return self._committers.has_gone_on((group_id, member_id), _ANY_PRODUCER, generation_id, connection)

    def commit_offsets(self, request: CommitRequest, reply: Reply) -> None:
        self._shard(request.group_id).commit(request, reply)

    def commit_transactional_offsets(
        self, request: CommitRequest, producer_id: int, producer_epoch: int
    ) -> asyncio.Future[list[ErrorCode]]:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard(request.group_id).commit_in_transaction(
            lambda shard, now_ms, token: shard.commit_offsets(now_ms, token, request, transactional=True),
            producer_id,
            producer_epoch,
        )

    def fetch_offsets(
        self,
        group_id: str,
        topics: Sequence[tuple[str, Sequence[int]]] | None,
        require_stable: bool,
        member: tuple[str | None, int] = (None, -1),
    ) -> asyncio.Future[TopicOffsets]:
        shard = self._shard(group_id)
        shard.check().check_fetch(group_id, *member)
        return shard.read(lambda found: found.fetch_offsets(group_id, topics, require_stable=require_stable))

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> asyncio.Future[list[ErrorCode]]:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard(group_id).run(lambda shard, _, token: shard.delete_offsets(token, group_id, partitions))

    async def delete_groups(self, group_ids: Sequence[str]) -> list[ErrorCode]:
        waiting: list[ErrorCode | asyncio.Future[Any]] = []
        for group_id in group_ids:
            try:
                waiting.append(self._delete_group(group_id))
            except KafkaError as error:
                waiting.append(error.code)
        return [await _code_of(answer) for answer in waiting]

    def _delete_group(self, group_id: str) -> asyncio.Future[Any]:
        return self._shard(group_id).run(lambda shard, _, token: shard.delete_groups(token, [group_id]))

    def describe_group(self, group_id: str) -> GroupDescription:
        shard = self._shard(group_id)
        coordinator = shard.check()
        shard.flush()
        return coordinator.describe_groups([group_id])[0]

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        shard = self._shard(group_id)
        coordinator = shard.check()
        shard.flush()
        return coordinator.describe_consumer_group(group_id)

    def list_groups(self, states: Sequence[str], types: Sequence[str]) -> list[GroupListing]:
        found: list[GroupListing] = []
        for shard in self._shards.values():
            if shard.is_loading:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            shard.flush()
            found += shard.coordinator.list_groups(states, types)
        return found


async def _code_of(answer: ErrorCode | asyncio.Future[Any]) -> ErrorCode:
    if isinstance(answer, ErrorCode):
        return answer
    try:
        codes: list[ErrorCode] = await answer
    except KafkaError as error:
        return error.code
    return codes[0]
