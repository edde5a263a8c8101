"""Registrations of brokers as KRaft's records carry them, and the log directories of brokers. Pure decisions.

Every image here was replayed from records, or is the next one after such an image (`aliveness.BY_RECORDS`).
Source: Kafka's `ClusterControlManager` and `ReplicationControlManager` (handleBrokerShutdown, handleDirectoriesOffline,
handleAssignReplicasToDirs).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from odradek.controller.aliveness import BY_RECORDS
from odradek.controller.brokers import reconsidered, registered
from odradek.controller.features import ensure_registrable
from odradek.controller.outcome import Decision
from odradek.controller.partition_changes import Defaults, PartitionChanges, next_state, rules_of
from odradek.metadata.directories import MIGRATING
from odradek.metadata.features import is_on_records
from odradek.metadata.image import Broker, ClusterImage
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError


def register_broker(
    image: ClusterImage, broker: Broker, previous_epoch: int, defaults: Defaults
) -> Decision[TopicPartition]:
    """Register a broker under `broker.epoch`, fenced; replies name the partitions that changed.

    A new incarnation ends what the previous one led and was in sync with. `previous_epoch`: the epoch under which the
    broker ended without a loss of records, -1 where it did not (KIP-966: a clean shutdown); under any other epoch than
    the registered one, its logs may lack records. The same incarnation amends its registration: it keeps its epoch and
    its state.

    The caller rejects another incarnation while the session of the registered one is valid. Raises KafkaError
    INVALID_REGISTRATION or UNSUPPORTED_VERSION for a broker that lacks a finalized feature.
    """
    if is_on_records(image):
        ensure_registrable(image, broker)
    known = image.brokers.get(broker.id)
    concerned = frozenset((broker.id,))
    if known is not None and known.incarnation_id == broker.incarnation_id:
        amended = broker._replace(
            epoch=known.epoch, fenced=known.fenced, in_controlled_shutdown=known.in_controlled_shutdown, unclean=False
        )
        return reconsidered(image.with_broker(amended), defaults, concerned, frozenset(), aliveness=BY_RECORDS)
    # The decision deals with an unclean end at once, so that no image has to remember it.
    new = broker._replace(fenced=True, in_controlled_shutdown=False, unclean=False)
    unclean = frozenset() if known is not None and known.epoch == previous_epoch else concerned
    return reconsidered(image.with_broker(new), defaults, concerned, unclean, aliveness=BY_RECORDS)


def unregister_broker(image: ClusterImage, broker_id: int, defaults: Defaults) -> Decision[TopicPartition]:
    """Remove a registration (KIP-631); replies name the partitions that changed.

    A broker that runs would take part no longer until it is restarted, and its successors would wait for the end of its
    lease. Apache Kafka's controller unregisters it. Raises KafkaError BROKER_ID_NOT_REGISTERED, INVALID_REQUEST for a
    broker that runs.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    if not broker.fenced:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is running; stop it before it is unregistered")
    rest = image.with_brokers({i: broker for i, broker in image.brokers.items() if i != broker_id})
    return reconsidered(rest, defaults, frozenset((broker_id,)), frozenset(), aliveness=BY_RECORDS)


def directories_failed(
    image: ClusterImage, broker_id: int, failed: Collection[bytes], defaults: Defaults
) -> Decision[TopicPartition]:
    """Take log directories of a broker offline (KIP-858); replies name the partitions that changed.

    A broker whose directories have all failed halts: it is fenced, and keeps them in its registration, as a
    registration without directories is one whose directories are unknown. Raises KafkaError BROKER_ID_NOT_REGISTERED.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    online = tuple(directory for directory in broker.log_dirs if directory not in failed)
    if len(online) == len(broker.log_dirs):
        return Decision((), image, ())
    changed = broker._replace(log_dirs=online) if online else broker._replace(fenced=True)
    concerned = frozenset((broker_id,))
    return reconsidered(image.with_broker(changed), defaults, concerned, frozenset(), aliveness=BY_RECORDS)


class ReplicaDirectory(NamedTuple):
    """The log directory of a broker's replica."""

    topic_id: bytes
    partition: int
    directory: bytes


def assign_directories(
    image: ClusterImage, broker_id: int, broker_epoch: int, assigned: Iterable[ReplicaDirectory], defaults: Defaults
) -> Decision[ErrorCode]:
    """Note the directories of a broker's replicas (AssignReplicasToDirs); one reply for each.

    A replica in a directory that is offline neither leads nor is in sync. Raises KafkaError BROKER_ID_NOT_REGISTERED or
    STALE_BROKER_EPOCH for all of them.
    """
    registered(image, broker_id, broker_epoch)
    changes = PartitionChanges(image)
    replies: Sequence[ErrorCode] = [_assign(changes, broker_id, each, defaults) for each in assigned]
    return changes.decision(replies)


def _assign(changes: PartitionChanges, broker_id: int, wanted: ReplicaDirectory, defaults: Defaults) -> ErrorCode:
    topic = changes.image.topic_by_id(wanted.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    before = changes.state(topic.name, wanted.partition)
    if before is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in before.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    known = before.directories or (MIGRATING,) * len(before.replicas)
    directories = tuple(
        wanted.directory if replica == broker_id else directory
        for replica, directory in zip(before.replicas, known, strict=True)
    )
    rules = rules_of(changes.image, topic, defaults, BY_RECORDS)
    after = next_state(before, before._replace(directories=directories), rules)
    changes.put(topic, wanted.partition, before, after)
    return ErrorCode.NONE
