"""The group coordinator of this broker (Kafka's GroupCoordinatorService): requests on their way to their partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.coordinators.context import CoordinatorContext, CoordinatorEnvironment
from odradek.broker.coordinators.group_shard import GroupShard
from odradek.broker.coordinators.runtime import CoordinatorRuntime
from odradek.broker.coordinators.shard import CoordinatorState, RecordCodec
from odradek.broker.coordinators.timers import CoordinatorClock
from odradek.groups.codec import decode_record, encode_record
from odradek.groups.consumer.assignors import ASSIGNOR_CLASSES, ASSIGNORS
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.events import (
    CommitRequest,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    GroupDescription,
    GroupListing,
    GroupSurvey,
    JoinRequest,
    JoinResult,
    LeavingMember,
    LeftMember,
    SyncRequest,
    SyncResult,
)
from odradek.groups.placement import partition_for_group
from odradek.groups.records import GroupRecord
from odradek.groups.service import Reply, TopicOffsets
from odradek.groups.settings import GroupSettings
from odradek.metadata.image import GROUP_METADATA_TOPIC, ClusterImage, Topic
from odradek.ports.clock import Clock
from odradek.ports.randomness import Random
from odradek.records.topic_partition import PartitionKey
from odradek.replication.partition import Partition
from odradek.transactions.connections import NewestConnections
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.api.requests.context import Configuration


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

_REMEMBERED_COMMITTERS = 10_000
_ANY_PRODUCER = 0

logger = logging.getLogger("odradek.groups")


class GroupCoordinatorService:
    """Serves `groups.service.GroupService`.

    The broker calls `elected` and `resigned` as it gains and loses partitions of `__consumer_offsets`, and
    `topics_deleted` and `topics_changed` when topics are created, deleted or get more partitions.
    """

    __slots__ = (
        "_clock",
        "_committers",
        "_default_partitions",
        "_image",
        "_knows_all_topics",
        "_loop",
        "_random",
        "_runtime",
        "_settings",
    )

    def __init__(
        self,
        settings: GroupSettings,
        default_partitions: int,
        image: Callable[[], ClusterImage],
        clock: Clock,
        random: Random,
        loop: asyncio.AbstractEventLoop,
        knows_all_topics: Callable[[], bool],
    ) -> None:
        """`default_partitions` of `__consumer_offsets` are created with it (`offsets.topic.num.partitions`).

        `knows_all_topics`: whether a topic outside the image does not exist; else the image may be incomplete.
        """
        self._settings = settings
        self._default_partitions = default_partitions
        self._image = image
        self._clock = CoordinatorClock(clock)
        self._random = random
        self._loop = loop
        self._knows_all_topics = knows_all_topics
        environment = CoordinatorEnvironment("group", logger, self._clock, loop, settings.offset_commit_timeout_ms)
        self._runtime: CoordinatorRuntime[GroupShard, GroupRecord] = CoordinatorRuntime(
            RecordCodec(encode_record, decode_record), self._open_shard, environment
        )
        self._committers = NewestConnections(_REMEMBERED_COMMITTERS)

    def _open_shard(self, context: CoordinatorContext[Any, GroupRecord]) -> GroupShard:
        coordinator = GroupCoordinator(self._settings, self._random, self._image, self._knows_all_topics)
        return GroupShard(context, coordinator, self._clock, self._loop, self._knows_all_topics)

    # --- what the broker calls ---

    def elected(self, partition: Partition) -> None:
        """Load the partition's groups and coordinate them; a partition that is loaded already stays."""
        self._runtime.elected(partition)

    def resigned(self, index: int) -> None:
        """Stop coordinating the groups of a partition."""
        self._runtime.resigned(index)

    def close(self) -> None:
        """Resign from every partition, and ignore later elections."""
        self._runtime.close()

    def state_of(self, index: int) -> CoordinatorState | None:
        """The state of a partition, or None if this broker does not coordinate it."""
        return self._runtime.state_of(index)

    def configure(self, settings: GroupSettings) -> None:
        """A setting has been changed (`DYNAMIC_GROUP_CONFIGS`)."""
        self._settings = settings
        for shard in self._runtime.shards():
            shard.coordinator.configure(settings)

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Delete the offsets that groups have committed in these topics."""
        names = list(topics)
        for shard in self._runtime.shards():
            shard.run_when_loaded(lambda coordinator, _now_ms, _token: coordinator.topics_deleted(names))

    def topics_changed(self, topics: Sequence[str], grown: Sequence[tuple[Topic, int]]) -> None:
        """These were created or deleted or grew; `grown` has the last, each with its previous number of partitions."""
        for shard in self._runtime.shards():
            shard.run_when_loaded(lambda coordinator, now_ms, _token: coordinator.topics_changed(now_ms, topics, grown))

    def transaction_ended(self, index: int, producer_id: int, last_offset: int, *, committed: bool) -> None:
        """A transaction's marker was appended to a partition at `last_offset`."""
        context = self._runtime.context(index)
        if context is not None:
            context.end_transaction(producer_id, last_offset, committed=committed)

    def _shard(self, group_id: str) -> GroupShard:
        topic = self._image().topics.get(GROUP_METADATA_TOPIC)
        count = self._default_partitions if topic is None else len(topic.partitions)
        return self._runtime.shard(partition_for_group(group_id, count))

    # --- requests ---

    def join(self, request: JoinRequest) -> asyncio.Future[JoinResult]:
        """See `GroupService`."""
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard(request.group_id).run(lambda shard, now_ms, token: shard.join(now_ms, token, request))

    def sync(self, request: SyncRequest) -> asyncio.Future[SyncResult]:
        """See `GroupService`."""
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard(request.group_id).run(lambda shard, now_ms, token: shard.sync(now_ms, token, request))

    def consumer_heartbeat(self, request: ConsumerHeartbeat) -> asyncio.Future[ConsumerHeartbeatResult]:
        """See `GroupService`."""
        return self._shard(request.group_id).run(
            lambda shard, now_ms, token: shard.consumer_heartbeat(now_ms, token, request)
        )

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """See `GroupService`."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        shard = self._shard(group_id)
        if shard.is_loading:
            # Until the member is known it must not be made to join again.
            return ErrorCode.NONE
        now_ms = self._clock.now_ms()
        code = shard.active_coordinator().heartbeat(now_ms, group_id, member_id, group_instance_id, generation_id)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            # With this answer begins the time that a classic member of a consumer group has to join again.
            shard.arm_timer()
        return code

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> asyncio.Future[list[LeftMember]]:
        """See `GroupService`."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard(group_id).run(lambda shard, now_ms, token: shard.leave(now_ms, token, group_id, leaving))

    def is_late_commit(self, group_id: str, member_id: str, generation_id: int, connection: int) -> bool:
        """See `GroupService`."""
        if not member_id or generation_id < 0:
            return False
        return not self._committers.admit((group_id, member_id), _ANY_PRODUCER, generation_id, connection)

    def commit_offsets(self, request: CommitRequest, reply: Reply) -> None:
        """See `GroupService`."""
        self._shard(request.group_id).commit(request, reply)

    def commit_transactional_offsets(
        self, request: CommitRequest, producer_id: int, producer_epoch: int
    ) -> asyncio.Future[list[ErrorCode]]:
        """See `GroupService`."""
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
        """See `GroupService`."""
        shard = self._shard(group_id)
        shard.active_coordinator().check_fetch(group_id, *member)
        return shard.read(lambda found: found.fetch_offsets(group_id, topics, require_stable=require_stable))

    def delete_offsets(self, group_id: str, partitions: Sequence[PartitionKey]) -> asyncio.Future[list[ErrorCode]]:
        """See `GroupService`."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard(group_id).run(lambda shard, _, token: shard.delete_offsets(token, group_id, partitions))

    async def delete_groups(self, group_ids: Sequence[str]) -> list[ErrorCode]:
        """See `GroupService`."""
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
        """See `GroupService`."""
        shard = self._shard(group_id)
        coordinator = shard.active_coordinator()
        shard.flush()
        return coordinator.describe_groups([group_id])[0]

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        """See `GroupService`."""
        shard = self._shard(group_id)
        coordinator = shard.active_coordinator()
        shard.flush()
        return coordinator.describe_consumer_group(group_id)

    def survey(self) -> Iterator[GroupSurvey]:
        """Every group of the partitions that are loaded, for metrics."""
        for shard in self._runtime.shards():
            if not shard.is_loading:
                yield from shard.coordinator.survey()

    def list_groups(self, states: Sequence[str], types: Sequence[str]) -> list[GroupListing]:
        """See `GroupService`."""
        found: list[GroupListing] = []
        for shard in self._runtime.listed_shards():
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
