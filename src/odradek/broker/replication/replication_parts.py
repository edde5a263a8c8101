"""Parts of replication to which the partitions of a broker refer, made before the partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.replication.followed_replicas import FollowedReplicas
from odradek.broker.replication.followed_starts import FollowedStarts, WriteStarts
from odradek.broker.replication.isr_changes import ControllerLink, IsrChanges
from odradek.metadata.image import ClusterImage
from odradek.metrics.invariants import InvariantCounters
from odradek.ports.clock import Clock
from odradek.ports.randomness import Random
from odradek.replication.leadership import Leadership
from odradek.replication.partition import PartitionEnvironment
from odradek.replication.read_replicas import RACK_AWARE
from odradek.replication.replica_sessions import ReplicaSessions


class ReplicationParts(NamedTuple):
    """What partitions and the `ReplicationRuntime` share."""

    followed: FollowedReplicas
    """Replicas that this broker follows."""
    starts: FollowedStarts
    """Log start offsets of followed replicas, on their way to the disk."""
    isr_changes: IsrChanges
    """Changes of ISRs, on their way to the controller."""
    sessions: ReplicaSessions
    """Fetch sessions of this broker's followers."""
    environment: PartitionEnvironment
    """What each partition knows of all that."""


def replication_parts(
    config: BrokerConfig,
    link: ControllerLink,
    clock: Clock,
    random: Random,
    image: Callable[[], ClusterImage],
    write_starts: WriteStarts,
    leadership: Leadership | None,
    invariants: InvariantCounters,
) -> ReplicationParts:
    """Make the parts. Must run on the event loop that the broker uses."""

    def now_ms() -> int:
        return int(clock.monotonic() * 1000)

    followed = FollowedReplicas()
    starts = FollowedStarts(write_starts, followed.start_persisted)
    changes = IsrChanges(config.node_id, link, image)
    # Consumers that read from followers wait for them to learn of a new high watermark.
    sessions = ReplicaSessions(
        random, reports_commits=config.text("replica.selector.class") == RACK_AWARE, now_ms=now_ms
    )
    environment = PartitionEnvironment(
        now_ms,
        changes.is_eligible,
        changes.propose,
        starts.persist,
        config.number("replica.lag.time.max.ms"),
        leadership,
        invariants,
    )
    return ReplicationParts(followed, starts, changes, sessions, environment)
