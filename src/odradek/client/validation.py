"""Checks after a change of leader whether an unclean election truncated records that were read (KIP-320)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from odradek.client.consumer.positions import PartitionState
from odradek.client.errors import UnsupportedByBroker
from odradek.client.network.cluster import Cluster, error_of
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
)

_CONSUMER = -1


class _Asked:
    """A position as it was when a leader was asked about it, and the epoch of that leader."""

    __slots__ = ("leader_epoch", "position", "position_epoch")

    def __init__(self, state: PartitionState, leader_epoch: int) -> None:
        self.position = state.position
        self.position_epoch = state.position_epoch
        self.leader_epoch = leader_epoch

    def still_of(self, state: PartitionState) -> bool:
        """Whether the position is still the same: the answer says nothing about another one."""
        return state.has_position and (state.position, state.position_epoch) == (self.position, self.position_epoch)


async def find_truncated(
    cluster: Cluster, states: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, int]:
    """Partitions whose log ends, for the epoch of the last record read, before the position; and that end offset.

    Other partitions are marked as valid for the leader epoch. Truncated ones stay unchecked, so that they are not
    fetched before the caller has set a position. Raises KafkaError, CallTimedOut.
    """
    metadata = cluster.metadata
    truncated: dict[TopicPartition, tuple[int, _Asked]] = {}
    suspects = _suspects(cluster, states)
    if not suspects:
        return {}

    async def attempt() -> None:
        leaders: dict[int, list[TopicPartition]] = defaultdict(list)
        for key in suspects:
            if key in states and metadata.leader_epoch(*key) > states[key].validated_epoch:
                leaders[(await cluster.leader(*key)).leader].append(key)
        for node_id, keys in leaders.items():
            # Partitions that were revoked or moved meanwhile need no check.
            states_asked = [states[key] for key in keys if key in states and states[key].has_position]
            asked = {each.key: _Asked(each, metadata.leader_epoch(*each.key)) for each in states_asked}
            if not asked:
                continue
            request = OffsetForLeaderEpochRequest(_CONSUMER, _topics(asked))
            try:
                response = await cluster.request(node_id, request, OffsetForLeaderEpochResponse)
            except UnsupportedByBroker:
                for each in states_asked:
                    each.validated_epoch = asked[each.key].leader_epoch
                continue
            for key, answer in _answers(response):
                if answer.error_code:
                    if answer.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                        await cluster.refresh_metadata()
                    raise error_of(answer.error_code, f"{key}")
                state = states.get(key)
                if state is None or key not in asked or not asked[key].still_of(state):
                    continue
                if 0 <= answer.end_offset < state.position:
                    truncated[key] = answer.end_offset, asked[key]
                else:
                    state.validated_epoch = asked[key].leader_epoch
                    truncated.pop(key, None)

    await cluster.retrying(attempt, "OffsetForLeaderEpoch")
    return {
        key: end_offset
        for key, (end_offset, asked) in truncated.items()
        if key in states and asked.still_of(states[key])
    }


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


def _topics(asked: Mapping[TopicPartition, _Asked]) -> list[OffsetForLeaderEpochRequestTopic]:
    topics: dict[str, list[OffsetForLeaderEpochRequestPartition]] = defaultdict(list)
    for key, each in asked.items():
        topics[key.topic].append(
            OffsetForLeaderEpochRequestPartition(key.partition, each.leader_epoch, each.position_epoch)
        )
    return [OffsetForLeaderEpochRequestTopic(topic, partitions) for topic, partitions in topics.items()]
