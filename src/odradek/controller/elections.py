"""Elections on request (KIP-460): the preferred replica, or any that is alive. Pure decisions over the cluster image.

Source: Kafka's `ReplicationControlManager.electLeaders`, messages included.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek.controller.aliveness import BY_SESSIONS, Aliveness
from odradek.controller.outcome import Decision, Failure
from odradek.controller.partition_changes import (
    Defaults,
    Election,
    PartitionChanges,
    Rules,
    eligible_below,
    is_alive,
    next_state,
)
from odradek.metadata.image import NO_LEADER, ClusterImage, PartitionState
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError


class ElectionType(IntEnum):
    """Kinds of elections that clients ask for, by Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


class Elected(NamedTuple):
    """Without a failure the partition has a new leader."""

    topic: str
    partition: int
    failure: Failure | None


def elect_leaders(
    image: ClusterImage,
    election_type: int,
    partitions: Sequence[PartitionKey] | None,
    defaults: Defaults,
    *,
    aliveness: Aliveness = BY_SESSIONS,
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
    changes = PartitionChanges(image)
    election = Election.PREFERRED if election_type == ElectionType.PREFERRED else Election.UNCLEAN
    for name, index in asked:
        try:
            before, after = _elected(image, name, index, _rules(image, name, election, defaults, aliveness))
        except KafkaError as error:
            if not (everything and error.code is ErrorCode.ELECTION_NOT_NEEDED):
                replies.append(Elected(name, index, Failure(error.code, error.message)))
            continue
        changes.put(image.topics[name], index, before, after)
        replies.append(Elected(name, index, None))
    return changes.decision(replies)


def can_lead_as_preferred(image: ClusterImage, state: PartitionState) -> bool:
    """Whether the first replica is alive and in sync."""
    preferred = state.replicas[0]
    return preferred in state.isr and is_alive(state, preferred, image.brokers)


def _rules(image: ClusterImage, name: str, election: Election, defaults: Defaults, aliveness: Aliveness) -> Rules:
    topic = image.topics.get(name)
    if topic is None or name in image.topics_in_deletion:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    below = eligible_below(image, topic, defaults)
    return Rules(image.brokers, image.controller_epoch, below, election, aliveness=aliveness)


def _elected(image: ClusterImage, name: str, index: int, rules: Rules) -> tuple[PartitionState, PartitionState]:
    state = image.partition(name, index)
    if state is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if rules.election is Election.PREFERRED:
        if state.leader == state.replicas[0]:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        if not can_lead_as_preferred(image, state):
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        return state, next_state(state, state, rules)
    if state.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    # Records that only the others have may be lost: that is what was asked for.
    after = next_state(state, state, rules)
    if after.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return state, after
