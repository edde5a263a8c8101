"""Elections on request (KIP-460): the preferred replica, or any that is alive. Pure decisions over the cluster image.

Source: Kafka's `ReplicationControlManager.electLeaders`, messages included.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek.controller.outcome import Decision, Failure
from odradek.metadata.image import NO_LEADER, ClusterImage, PartitionState
from odradek.metadata.nodes import PartitionNode
from odradek.ports.store import Operation, Put
from odradek.wire.errors import ErrorCode, KafkaError


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class Elected(NamedTuple):
    """Without a failure the partition has a new leader."""

    topic: str
    partition: int
    failure: Failure | None


def elect_leaders(
    image: ClusterImage, election_type: int, partitions: Sequence[tuple[str, int]] | None
) -> Decision[Elected]:
    """One reply for every partition; of all partitions (None) those that needed no election are left out."""
    if election_type not in ElectionType.__members__.values():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
    everything = partitions is None
    asked = (
        [(name, index) for name, topic in sorted(image.topics.items()) for index in range(len(topic.partitions))]
        if partitions is None
        else list(dict.fromkeys(partitions))
    )
    replies = []
    operations: list[Operation] = []
    changed = image
    for topic, index in asked:
        try:
            before, after = _elected(image, ElectionType(election_type), topic, index)
        except KafkaError as error:
            if not (everything and error.code is ErrorCode.ELECTION_NOT_NEEDED):
                replies.append(Elected(topic, index, Failure(error.code, error.message)))
            continue
        operations.append(Put(PartitionNode.path(topic, index), PartitionNode.encode(after), before.partition_epoch))
        changed = changed.with_partition(topic, index, after)
        replies.append(Elected(topic, index, None))
    return Decision(operations, changed, replies)


def _elected(
    image: ClusterImage, election_type: ElectionType, topic: str, index: int
) -> tuple[PartitionState, PartitionState]:
    if topic not in image.topics or topic in image.topics_in_deletion:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    state = image.partition(topic, index)
    if state is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    preferred = state.replicas[0]
    if election_type is ElectionType.PREFERRED:
        if state.leader == preferred:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        if preferred not in state.isr or not _alive(image, preferred):
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        return state, _led_by(image, state, preferred, state.isr)
    if state.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    for broker in state.replicas:
        if _alive(image, broker):
            # Records that only the others have are lost: that is what was asked for.
            return state, _led_by(image, state, broker, state.isr if broker in state.isr else (broker,))
    raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)


def _alive(image: ClusterImage, broker: int) -> bool:
    return broker in image.brokers and not image.brokers[broker].fenced


def _led_by(image: ClusterImage, state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    return state._replace(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        partition_epoch=state.partition_epoch + 1,
        controller_epoch=image.controller_epoch,
    )
