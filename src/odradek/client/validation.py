"""Checks after a change of leader whether an unclean election truncated records that were read (KIP-320)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping

from odradek.client.consumer.positions import PartitionState
from odradek.client.errors import ClientError, UnsupportedByBroker
from odradek.client.network.cluster import Cluster, error_of
from odradek.client.offsets import Failures, with_each_leader
from odradek.records.topic_partition import TopicPartition
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


async def check_positions(
    cluster: Cluster,
    states: Mapping[TopicPartition, PartitionState],
    truncated: Callable[[PartitionState, int], None],
) -> Failures:
    """Ask the leaders of partitions that were read under earlier ones, once, and return the failures.

    `truncated` is called for each partition whose log ends, for the epoch of the last record read, before the position,
    with that end offset; it sets a position, or the partition stays unchecked, and is not fetched. The others are
    marked as valid for the leader epoch. Raises ClientError.
    """
    suspects = _suspects(cluster, states)
    if not suspects:
        return {}

    async def ask(node_id: int, keys: Collection[TopicPartition]) -> Failures:
        # Partitions that were revoked or moved meanwhile need no check.
        asked = {
            key: _Asked(states[key], cluster.metadata.leader_epoch(*key))
            for key in keys
            if key in states and states[key].has_position
        }
        if not asked:
            return {}
        request = OffsetForLeaderEpochRequest(_CONSUMER, _topics(asked))
        try:
            response = await cluster.request(node_id, request, OffsetForLeaderEpochResponse)
        except UnsupportedByBroker:
            for key, each in asked.items():
                if key in states:
                    states[key].validated_epoch = each.leader_epoch
            return {}
        except ClientError as error:
            return dict.fromkeys(asked, error)
        failures: Failures = {}
        for key, answer in _answers(response):
            if answer.error_code:
                failures[key] = error_of(answer.error_code, f"{key}")
                continue
            state = states.get(key)
            if state is None or key not in asked or not asked[key].still_of(state):
                continue
            if 0 <= answer.end_offset < state.position:
                truncated(state, answer.end_offset)
            else:
                state.validated_epoch = asked[key].leader_epoch
        return failures

    return await with_each_leader(cluster, suspects, ask)


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
