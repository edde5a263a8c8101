"""Offsets over the wire: look-ups by time, and what groups have committed. Shared by consumer and admin."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from odradek.client.errors import ClientError
from odradek.client.model import READ_UNCOMMITTED, OffsetAndMetadata, OffsetAndTimestamp
from odradek.client.network.cluster import GROUP_COORDINATOR, Cluster, error_of, is_retriable, is_stale_metadata
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from odradek.wire.primitives import ZERO_UUID

_NAMES_UNTIL = 9
"""OffsetCommit and OffsetFetch name topics up to this version, and give their ids after it."""
_NO_SUCH_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_OF_A_PARTITION: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }
)
"""Errors of OffsetCommit that concern one partition; all others concern the group."""
Failures = dict[TopicPartition, KafkaError | ClientError]
"""By partition."""


class Member(NamedTuple):
    """The member of a group that commits, in a generation; by default the anonymous one, for groups without members."""

    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None


class Positions(dict[TopicPartition, OffsetAndMetadata]):
    """Positions of a consumer, and of which topics they are: a commit does not reach later topics of the same names."""

    __slots__ = ("topic_ids",)

    def __init__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, bytes]) -> None:
        """`topic_ids` by name, zeros for unknown ones."""
        super().__init__(offsets)
        self.topic_ids = topic_ids


def by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the given order."""
    grouped: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        grouped[topic].append(partition)
    return grouped


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The first offset at or after each timestamp (ms, or EARLIEST, LATEST, MAX_TIMESTAMP); offset -1 without one.

    Raises CallTimedOut, KafkaError, UnsupportedByBroker.
    """
    found: dict[TopicPartition, OffsetAndTimestamp] = {}

    async def attempt() -> None:
        left = {key: timestamp for key, timestamp in timestamps.items() if key not in found}
        raise_one(await ask_leaders(cluster, left, isolation_level, found.update))

    await cluster.retrying(attempt, "ListOffsets", timeout_ms)
    return found


async def ask_leaders(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int,
    answered: Callable[[Mapping[TopicPartition, OffsetAndTimestamp]], None],
) -> Failures:
    """Ask the leader of each partition once, as `list_offsets`, and return the failures.

    `answered` is called with the offsets of each leader as its answer arrives.
    """

    async def ask(node_id: int, keys: Collection[TopicPartition]) -> Failures:
        try:
            answers = await ask_leader(cluster, node_id, keys, timestamps, isolation_level)
        except ClientError as error:
            cluster.want_metadata()
            return dict.fromkeys(keys, error)
        answered({key: each for key, each in answers.items() if not isinstance(each, KafkaError)})
        return {key: each for key, each in answers.items() if isinstance(each, KafkaError)}

    return await with_each_leader(cluster, timestamps, ask)


async def with_each_leader(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[int, Collection[TopicPartition]], Awaitable[Failures]],
) -> Failures:
    """Call `ask(broker id, its partitions)` once for each leader, side by side, and return all failures.

    Partitions without a leader are among them. Raises ClientError, and what `ask` raises.
    """
    leaders, lacking = await cluster.leaders(partitions)
    failures: Failures = {**lacking}
    for found in await asyncio.gather(*(ask(node_id, keys) for node_id, keys in leaders.items())):
        failures.update(found)
    if any(isinstance(each, KafkaError) and is_stale_metadata(each.code) for each in failures.values()):
        with contextlib.suppress(ClientError, KafkaError):
            await cluster.refresh_metadata()
    return failures


def raise_one(failures: Failures) -> None:
    """Raise one of the failures, if there is one: preferably an error that is not retriable."""
    if failures:
        raise min(failures.values(), key=is_retriable)


async def ask_leader(
    cluster: Cluster,
    node_id: int,
    keys: Collection[TopicPartition],
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int,
) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
    """Ask one broker for the offsets of partitions that it leads, once. Raises ClientError."""
    topics = [
        ListOffsetsRequestTopic(
            topic,
            [
                ListOffsetsRequestPartition(
                    each, cluster.metadata.leader_epoch(topic, each), timestamps[TopicPartition(topic, each)]
                )
                for each in partitions
            ],
        )
        for topic, partitions in by_topic(keys).items()
    ]
    request = ListOffsetsRequest(-1, isolation_level, topics, cluster.options["request_timeout_ms"])
    response = await cluster.request(node_id, request, ListOffsetsResponse)
    found: dict[TopicPartition, OffsetAndTimestamp | KafkaError] = {}
    for answer in response.topics:
        for part in answer.partitions:
            key = TopicPartition(answer.name, part.partition_index)
            if part.error_code:
                found[key] = error_of(part.error_code, f"{key}")
            else:
                found[key] = OffsetAndTimestamp(part.offset, part.timestamp, part.leader_epoch)
    return found


async def fetch_committed(
    cluster: Cluster,
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    *,
    require_stable: bool = True,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Committed offsets of a group, of these partitions or of all; partitions without one are left out.

    With require_stable it waits until open transactions on the offsets have ended (KIP-447).
    """

    async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
        # Version 8 brought several groups per request: both forms are filled in, the version takes one.
        grouped = None if partitions is None else by_topic(partitions)
        connection = await cluster.coordinator_connection(GROUP_COORDINATOR, group_id)
        version = connection.version_of(OffsetFetchRequest, _NAMES_UNTIL)
        if version >= 8:
            topics = (
                None
                if grouped is None
                else [OffsetFetchRequestGroupTopic(name=name, partition_indexes=each) for name, each in grouped.items()]
            )
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])
        else:
            old = None if grouped is None else [OffsetFetchRequestTopic(name, each) for name, each in grouped.items()]
            request = OffsetFetchRequest(group_id=group_id, topics=old)
        request.require_stable = require_stable and version >= 7
        response = await cluster.request_coordinator(
            GROUP_COORDINATOR, group_id, request, OffsetFetchResponse, at_most=_NAMES_UNTIL
        )
        answer = response.groups[0] if response.groups else response
        cluster.check_coordinator(GROUP_COORDINATOR, group_id, answer.error_code)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                cluster.check_coordinator(GROUP_COORDINATOR, group_id, each.error_code)
                if each.committed_offset >= 0:
                    found[TopicPartition(topic.name, each.partition_index)] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", each.committed_leader_epoch
                    )
        return found

    return await cluster.retrying(attempt, f"committed offsets of group {group_id}", timeout_ms)


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    member: Member,
    *,
    timeout_ms: float | None = None,
) -> None:
    """Commit offsets of a group. Raises KafkaError (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, ...), CallTimedOut.

    `Positions` are left out once neither the coordinator nor the metadata have their topic any longer: a rebalance
    would wait for it, too. Other offsets are of the topics that have the names now.
    """
    if not offsets:
        return
    request = _commit_request(group_id, offsets, member)
    topic_ids = offsets.topic_ids if isinstance(offsets, Positions) else None
    ids = topic_ids or {}
    for each in request.topics:
        each.topic_id = ids.get(each.name, ZERO_UUID)
    names = {each.topic_id: each.name for each in request.topics}
    at_most = _NAMES_UNTIL if ZERO_UUID in names else 0x7FFF

    async def attempt() -> None:
        response = await cluster.request_coordinator(
            GROUP_COORDINATOR, group_id, request, OffsetCommitResponse, at_most=at_most
        )
        for topic in response.topics:
            name = topic.name or names.get(topic.topic_id, "")
            known = cluster.metadata.topics.get(name)
            is_gone = topic_ids is not None and (known is None or known.topic_id != ids.get(name))
            for each in topic.partitions:
                if is_gone and each.error_code in _NO_SUCH_TOPIC:
                    continue
                message = f"{name}-{each.partition_index} of group {group_id}"
                cluster.check_coordinator(GROUP_COORDINATOR, group_id, each.error_code, message)

    await cluster.retrying(attempt, f"commit of group {group_id}", timeout_ms)


async def alter_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, KafkaError | None]:
    """Set the offsets of a group without members, with an outcome for each partition.

    Raises KafkaError for what concerns the group (UNKNOWN_MEMBER_ID: it has members), CallTimedOut.
    """
    if not offsets:
        return {}
    request = _commit_request(group_id, offsets, Member())

    async def attempt() -> dict[TopicPartition, KafkaError | None]:
        response = await cluster.request_coordinator(
            GROUP_COORDINATOR, group_id, request, OffsetCommitResponse, at_most=_NAMES_UNTIL
        )
        done: dict[TopicPartition, KafkaError | None] = {}
        for topic in response.topics:
            for each in topic.partitions:
                key = TopicPartition(topic.name, each.partition_index)
                if each.error_code in _OF_A_PARTITION:
                    done[key] = error_of(each.error_code, f"{key} of group {group_id}")
                else:
                    cluster.check_coordinator(GROUP_COORDINATOR, group_id, each.error_code, f"group {group_id}")
                    done[key] = None
        return done

    return await cluster.retrying(attempt, f"offsets of group {group_id}")


def _commit_request(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: Member
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(each, at.offset, at.leader_epoch, at.metadata)
                    for each in partitions
                    for at in (offsets[TopicPartition(topic, each)],)
                ],
            )
            for topic, partitions in by_topic(list(offsets)).items()
        ],
    )
