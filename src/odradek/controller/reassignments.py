"""Moving partitions to other brokers (KIP-455): what is asked for, what is under way. Pure decisions over the image.

A move is recorded as replicas that are being added and removed; it ends in the change that brings the last added
replica into the ISR (`partition_changes.next_state`). Those that merely change their order are done at once.
Source: Kafka's `ReplicationControlManager.alterPartitionReassignments`, messages included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.controller.aliveness import BY_SESSIONS, Aliveness
from odradek.controller.outcome import Decision, Failure
from odradek.controller.partition_changes import Defaults, PartitionChanges, next_state, rules_of
from odradek.metadata.image import ClusterImage, PartitionState
from odradek.wire.errors import ErrorCode, KafkaError


class Reassignment(NamedTuple):
    """No replicas: give up the move that is under way."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


class Reassigned(NamedTuple):
    """The result for one partition; no failure means that its reassignment was accepted."""

    topic: str
    partition: int
    failure: Failure | None


def alter_reassignments(
    image: ClusterImage,
    moves: Sequence[Reassignment],
    defaults: Defaults,
    *,
    allow_replication_factor_change: bool = True,
    aliveness: Aliveness = BY_SESSIONS,
) -> Decision[Reassigned]:
    """One reply for every distinct partition, whose last move counts. A move that adds no replica is done at once."""
    changes = PartitionChanges(image)
    replies = []
    for move in {(move.topic, move.partition): move for move in moves}.values():
        topic = image.topics.get(move.topic)
        try:
            if topic is None or move.topic in image.topics_in_deletion:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {move.topic}.")
            before = changes.state(move.topic, move.partition)
            if before is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {move.topic}:{move.partition}."
                )
            wanted = _wanted(image, before, move, allow_replication_factor_change)
        except KafkaError as error:
            replies.append(Reassigned(move.topic, move.partition, Failure(error.code, error.message)))
            continue
        replies.append(Reassigned(move.topic, move.partition, None))
        if wanted != before:
            rules = rules_of(image, topic, defaults, aliveness)
            changes.put(topic, move.partition, before, next_state(before, wanted, rules))
    return changes.decision(replies)


def _wanted(
    image: ClusterImage, state: PartitionState, move: Reassignment, allow_replication_factor_change: bool
) -> PartitionState:
    final = tuple(replica for replica in state.replicas if replica not in state.adding_replicas)
    if move.replicas is None:
        if not state.adding_replicas and not state.removing_replicas:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return _in_sync_of(state._replace(replicas=final, adding_replicas=(), removing_replicas=()))
    target = move.replicas
    _check_target(image, target)
    if not allow_replication_factor_change and len(target) != len(final):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(final)} to {len(target)}",
        )
    adding = tuple(replica for replica in target if replica not in final)
    removing = tuple(replica for replica in final if replica not in target)
    return _in_sync_of(state._replace(replicas=target + removing, adding_replicas=adding, removing_replicas=removing))


def _in_sync_of(state: PartitionState) -> PartitionState:
    """With the ISR and eligible replicas that are left; replicas that have the records must stay."""
    isr = tuple(replica for replica in state.isr if replica in state.replicas)
    if not isr and state.isr:
        raise _bad(f"None of the replicas {list(state.replicas)} would be in sync: the ISR is {list(state.isr)}.")
    return state._replace(isr=isr, elr=tuple(replica for replica in state.elr if replica in state.replicas))


def _check_target(image: ClusterImage, target: tuple[int, ...]) -> None:
    if not target:
        raise _bad("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker in sorted(target):
        if broker not in image.brokers:
            raise _bad(f"The manual partition assignment includes broker {broker}, but no such broker is registered.")
        if broker == previous:
            raise _bad(f"The manual partition assignment includes the broker {broker} more than once.")
        previous = broker


def _bad(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def list_reassignments(
    image: ClusterImage, asked: Mapping[str, Sequence[int]] | None
) -> dict[str, dict[int, PartitionState]]:
    """Moves under way, of these partitions or of all; what does not exist is left out."""
    found: dict[str, dict[int, PartitionState]] = {}
    for name in sorted(image.topics if asked is None else asked):
        topic = image.topics.get(name)
        if topic is None:
            continue
        wanted = range(len(topic.partitions)) if asked is None else asked[name]
        for index in wanted:
            state = image.partition(name, index)
            if state is not None and (state.adding_replicas or state.removing_replicas):
                found.setdefault(name, {})[index] = state
    return found
