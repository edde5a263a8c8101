"""After a change of leader: does the log still hold what was read (KIP-320)? An unclean election may have cut it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from odradek.client.cluster import Cluster, error_of
from odradek.client.errors import UnsupportedByBroker
from odradek.client.model import TopicPartition
from odradek.client.offsets import by_topic
from odradek.client.positions import PartitionState
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
)

_CONSUMER = -1


async def find_truncated(
    cluster: Cluster, states: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, int]:
    """Partitions whose log ends, for the epoch of the last record read, before the position; and where it ends.

    Marks what it checked as valid for the leader epoch. Raises KafkaError, CallTimedOut.
    """
    metadata = cluster.metadata
    truncated: dict[TopicPartition, int] = {}
    suspects = _suspects(cluster, states)
    if not suspects:
        return truncated

    async def attempt() -> None:
        leaders: dict[int, list[TopicPartition]] = defaultdict(list)
        for key in suspects:
            if key in states and metadata.leader_epoch(*key) > states[key].validated_epoch:
                leaders[(await cluster.leader(*key)).leader].append(key)
        for node_id, keys in leaders.items():
            asked = {key: (states[key].position, states[key].position_epoch) for key in keys}
            request = OffsetForLeaderEpochRequest(_CONSUMER, _topics(cluster, keys, states))
            try:
                response = await cluster.request(node_id, request, OffsetForLeaderEpochResponse)
            except UnsupportedByBroker:
                for key in keys:
                    states[key].validated_epoch = metadata.leader_epoch(*key)
                continue
            for key, each in _answers(response):
                if each.error_code:
                    if each.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                        await cluster.refresh_metadata()
                    raise error_of(each.error_code, f"{key}")
                state = states.get(key)
                if state is None or not state.has_position:
                    continue
                if asked.get(key) != (state.position, state.position_epoch):
                    # It has read on, or was set elsewhere, since: where the old epoch ends says nothing of that.
                    continue
                state.validated_epoch = metadata.leader_epoch(*key)
                if 0 <= each.end_offset < state.position:
                    truncated[key] = each.end_offset

    await cluster.retrying(attempt, "OffsetForLeaderEpoch")
    return truncated


def _suspects(cluster: Cluster, states: Mapping[TopicPartition, PartitionState]) -> list[TopicPartition]:
    """Partitions that were read under an older leader than now; all others are marked as valid."""
    suspects: list[TopicPartition] = []
    for key, state in states.items():
        epoch = cluster.metadata.leader_epoch(*key)
        if not state.has_position or epoch < 0 or epoch <= state.validated_epoch:
            continue
        if 0 <= state.position_epoch < epoch:
            suspects.append(key)
        else:
            state.validated_epoch = epoch
    return suspects


def _answers(
    response: OffsetForLeaderEpochResponse,
) -> Iterator[tuple[TopicPartition, OffsetForLeaderEpochResponseEpochEndOffset]]:
    for topic in response.topics:
        for each in topic.partitions:
            yield TopicPartition(topic.topic, each.partition), each


def _topics(
    cluster: Cluster, keys: list[TopicPartition], states: Mapping[TopicPartition, PartitionState]
) -> list[OffsetForLeaderEpochRequestTopic]:
    return [
        OffsetForLeaderEpochRequestTopic(
            topic,
            [
                OffsetForLeaderEpochRequestPartition(
                    each, cluster.metadata.leader_epoch(topic, each), states[TopicPartition(topic, each)].position_epoch
                )
                for each in partitions
            ],
        )
        for topic, partitions in by_topic(keys).items()
    ]
