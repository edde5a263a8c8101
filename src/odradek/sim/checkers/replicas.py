"""Several brokers: what must hold of their replicas at every moment, and when all is quiet again."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.lifecycle import Inspection
from odradek.broker.storage.partitions import Partitions
from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import PartitionState
from odradek.metadata.kraft.durable_log import DIRECTORY as METADATA_DIRECTORY
from odradek.records.topic_partition import PartitionKey, TopicIdPartition
from odradek.replication.partition import Partition
from odradek.sim.checkers.history import Violation
from odradek.sim.checkers.isr_changes import check_isr_change, leader_knowledge
from odradek.sim.checkers.store_membership import StoreMembership
from odradek.sim.checkers.stored_metadata import StoredStates
from odradek.sim.checkers.writability import BROKER_SESSION_SECONDS, WritabilityWatch, WritabilityWithoutStoreWatch
from odradek.sim.world.hosts import BrokerHost, World

LOOK_SECONDS: Final = 0.05
LED_SECONDS: Final = 12.0
"""Within so long after its leader has gone a partition is led again, if a replica in sync and a controller live.

A controller of a quorum gives each broker a session from its election, a broker that has ended included.
"""
QUIET_SECONDS: Final = 60.0
"""Within so long after the last fault every replica is in sync again."""
SESSION_SECONDS: Final = 6.0
"""How long the metadata store believes in a broker that says nothing."""

FLUSHED, ONE_AT_A_TIME, ALL_AT_ONCE = "every write is synced", "one machine at a time", "all machines at once"
"""Which power losses a cluster suffers: any, with all synced; others only when the one before is overcome; any."""


def _replicas(host: BrokerHost) -> dict[PartitionKey, Partition]:
    """What the broker has open; nothing while it is down, or begins to start."""
    found = host.inspect() if host.is_up else None
    return {} if found is None else {(each.topic, each.index): each for each in found.partitions.opened()}


def sealed_end(world: World, key: PartitionKey) -> int:
    """The first offset of the oldest active segment among the replicas of a partition; 0 if none is open."""
    found = [replicas[key] for host in world.brokers if key in (replicas := _replicas(host))]
    return min((each.log.active_base_offset for each in found), default=0)


def shape_of(world: World) -> None:
    """What the seed makes of the profile: which power losses there are, racks, how much the store takes at once."""
    world.session_seconds = SESSION_SECONDS
    rng = random.Random(f"{world.seed}:cluster")
    name = world.profile.name
    if name in ("blackout", "kraft-dark"):
        world.power = rng.choice((FLUSHED, FLUSHED, ONE_AT_A_TIME, ONE_AT_A_TIME, ALL_AT_ONCE))
        world.keeps_producers = world.power != ALL_AT_ONCE
        world.mark(f"power losses: {world.power}")
    elif name in ("cluster5", "succession", "handover"):
        world.racks = ("rack-0", "rack-1", "rack-2")
    elif name == "unclean":
        world.unclean_topics = frozenset({"plain"})
    if name == "stale":
        world.clocks_drift = True
        world.bound_seconds = BROKER_SESSION_SECONDS
    if name == "handover":
        # Nothing but the smallest changes is done in one write.
        world.store_faults.max_transaction_bytes = 600
    elif name not in ("cluster", "succession"):
        world.store_faults.max_transaction_bytes = rng.choice((0, 2_000, 600))
    world.membership = StoreMembership(world)
    world.stored = StoredStates(world.unclean_topics)
    world.store_faults.watch_changes(world.stored.applied)


def cluster_settings(world: World, settings: dict[str, str]) -> dict[str, str]:
    """What brokers of a cluster are configured with beyond those that stand alone."""
    rng = random.Random(f"{world.seed}:cluster settings")
    settings = {
        **settings,
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "min.insync.replicas": "2",
        "replica.lag.time.max.ms": "4000",
        "zookeeper.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    }
    if world.power == FLUSHED:
        settings["log.flush.interval.messages"] = "1"
    if world.clocks_drift:
        settings["broker.session.timeout.ms"] = str(int(BROKER_SESSION_SECONDS * 1000))
    if world.profile.name == "cluster5":
        settings["leader.imbalance.check.interval.seconds"] = rng.choice(("2", "300"))
    elif world.racks or world.clocks_drift:
        settings["leader.imbalance.check.interval.seconds"] = "5"
        settings["leader.imbalance.per.broker.percentage"] = "0"
    if world.racks:
        settings["replica.selector.class"] = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    return settings


class ClusterWatch:
    """Looks at all replicas again and again. Raises Violation."""

    __slots__ = (
        "_deciding_epoch", "_half_done", "_leaderless", "_leaders", "_marks", "_obeyed", "_seen", "_stored", "_world",
        "_writability", "_writability_without_store",
    )  # fmt: skip

    def __init__(self, world: World, stored: StoredStates) -> None:
        self._world = world
        self._stored = stored
        self._leaders: dict[tuple[bytes, int, int], tuple[int, float]] = {}
        self._marks: dict[tuple[str, PartitionKey], tuple[Partition, int, int]] = {}
        self._seen: dict[str, dict[PartitionKey, tuple[int, int, int, int, int]]] = {}
        self._deciding_epoch: int | None = None
        self._leaderless: dict[TopicIdPartition, float] = {}
        self._half_done: dict[str, float] = {}
        self._obeyed: dict[str, int] = {}
        self._writability = WritabilityWatch(world)
        self._writability_without_store = WritabilityWithoutStoreWatch(world)
        stored.watch_states(self._on_stored)

    async def run(self) -> None:
        """Look at the replicas until the run ends. Raises Violation."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self._look_at_all()
            except Violation as violation:
                self._world.loop.broken = violation
                return

    def _on_stored(self, key: PartitionKey, before: PartitionState | None, after: PartitionState) -> None:
        """Check at the very moment at which the ISR changes. The calling broker must not see a Violation."""
        try:
            self._see_committed(key)
            if before is not None:
                topic_id = self._stored.topic_id(key[0])
                check_isr_change(key, before, after, leader_knowledge(self._world, key, before, topic_id))
        except Violation as violation:
            self._world.loop.broken = violation

    def _look_at_all(self) -> None:
        if self._stored.broken is not None:
            raise self._stored.broken
        changed: set[PartitionKey] = set()
        inspected: list[tuple[BrokerHost, Inspection]] = []
        for host in self._world.brokers:
            if host.is_dark and is_whole(self._world, host):
                host.is_dark = False
            found = host.inspect() if host.is_up else None
            if found is None or host.process is None:
                continue
            name = host.process.name
            self._look_at_obedience(found.view, name)
            inspected.append((host, found))
            seen = self._seen.setdefault(name, {})
            for each in found.partitions.opened():
                key = each.topic, each.index
                now = (each.leader, each.leader_epoch, each.partition_epoch, each.high_watermark, each.log.end_offset)
                if seen.get(key) != now:
                    seen[key] = now
                    self._look(host, key, each)
                    changed.add(key)
        for key in sorted(changed):
            self._see_committed(key)
        self._see_one_speaks(inspected)
        self._see_led()
        if self._world.clocks_drift:
            self._writability.look()
        if self._world.profile.name == "silent":
            self._writability_without_store.look()
        self._look_at_counters(inspected)

    def _look_at_counters(self, inspected: list[tuple[BrokerHost, Inspection]]) -> None:
        """What brokers count of their own invariants stays 0, unless the world loses records by its rules."""
        world = self._world
        if world.power == ALL_AT_ONCE or world.unclean_topics:
            return
        for host, found in inspected:
            counts = found.partitions.invariants.counts
            if violated := [each.value for each, count in counts.items() if count]:
                raise Violation("brokers count no violation", f"{host.host}: {', '.join(violated)}")

    def _see_one_speaks(self, inspected: list[tuple[BrokerHost, Inspection]]) -> None:
        """At no moment two brokers may act as the leader of a partition."""
        unclean = self._world.unclean_topics
        leaders: dict[tuple[bytes, int], list[tuple[BrokerHost, Partition]]] = {}
        for host, found in inspected:
            for each in found.partitions.opened():
                if each.is_leader and each.topic not in unclean:
                    leaders.setdefault((each.topic_id, each.index), []).append((host, each))
        for several in leaders.values():
            if len(several) == 1:
                continue
            key = several[0][1].topic, several[0][1].index
            speakers = [f"{host.host} in epoch {each.leader_epoch}" for host, each in several if each.may_lead]
            if len(speakers) > 1:
                raise Violation("one leader speaks at a time", f"{key}: {', '.join(speakers)}")

    def _look_at_obedience(self, view: ClusterView, name: str) -> None:
        """Once a broker has obeyed a controller it rejects requests of earlier ones."""
        epoch = view.image.controller_epoch
        if epoch < self._obeyed.get(name, epoch):
            raise Violation("a replaced controller is not obeyed", f"{name}: {epoch} after {self._obeyed[name]}")
        self._obeyed[name] = epoch

    def _see_led(self) -> None:
        """A replica that could lead a partition without a leader does so after a while."""
        world = self._world
        alive = {host.node_id for host in world.brokers if _is_awake(world, host)}
        epoch, before = world.membership.deciding_epoch(alive), self._deciding_epoch
        self._deciding_epoch = epoch
        if epoch is None or epoch != before:
            self._leaderless.clear()
            self._half_done.clear()
        if epoch is None:
            return
        states = self._stored.states
        partitions = {host.node_id: _partitions(host) for host in world.brokers}
        # A leader that stands still is gone for others once the store has given its session up.
        registered = {host.node_id for host in world.brokers if world.membership.is_registered(host)}
        leaderless = [
            key
            for key, state in states.items()
            if (state.leader not in registered or not _has(partitions[state.leader], key))
            and any(b in alive and _has(partitions[b], key) for b in state.isr)
        ]
        # A deleted partition is not leaderless: the next topic of the name starts afresh.
        lives = [(self._stored.topic_id(name), index) for name, index in leaderless]
        self._leaderless = {life: self._leaderless.get(life, world.now()) for life in lives}
        for key, life in zip(leaderless, lives, strict=True):
            if world.now() > self._leaderless[life] + LED_SECONDS:
                raise Violation(
                    "a partition is led if a replica in sync lives",
                    f"{key} for {LED_SECONDS} s: {states[key]}; {sorted(alive)} live and are registered",
                )
        begun = {name: f"{name} is to be deleted" for name in self._stored.deletions}
        for name, content in self._stored.topics.items():
            for index, replicas in enumerate(content.replicas):
                if (name, index) not in self._stored.states and not alive.isdisjoint(replicas):
                    begun.setdefault(name, f"{name} has no partition {index}, which belongs to {list(replicas)}")
        self._half_done = {name: self._half_done.get(name, world.now()) for name in begun}
        for name, since in self._half_done.items():
            if world.now() > since + LED_SECONDS:
                raise Violation("a new controller finishes what was begun", f"for {LED_SECONDS} s {begun[name]}")

    def _look(self, host: BrokerHost, key: PartitionKey, partition: Partition) -> None:
        if partition.leader >= 0 and partition.topic_id:
            self._one_leader(host, key, partition)
        name = host.process.name if host.process is not None else ""
        where = (name, (partition.topic_id.hex(), key[1]))
        if partition.leader != partition.local_id:
            self._marks.pop(where, None)
            return
        if not set(partition.isr) <= set(partition.replicas):
            raise Violation("ISR within the replicas", f"{key} at {host.host}: {partition.isr}, {partition.replicas}")
        mark, epoch = partition.high_watermark, partition.leader_epoch
        before = self._marks.get(where)
        self._marks[where] = partition, epoch, mark
        # A replica that was moved away and came back is another one: it begins with its leader's offsets. So does
        # one that followed another leader, were it only between two looks.
        if before is not None and before[0] is partition and epoch <= before[1] + 1 and mark < before[2]:
            raise Violation("high watermark goes back", f"{key} at {name}, epoch {epoch}: {mark} after {before[2]}")
        if mark > partition.log.end_offset:
            raise Violation("high watermark within the log", f"{key} at {name}: {mark} > {partition.log.end_offset}")

    def _one_leader(self, host: BrokerHost, key: PartitionKey, partition: Partition) -> None:
        identity = (partition.topic_id, key[1], partition.leader_epoch)
        known = self._leaders.setdefault(identity, (partition.leader, self._world.now()))
        if known[0] != partition.leader:
            raise Violation(
                "one leader in an epoch",
                f"{key} epoch {partition.leader_epoch}: broker {known[0]} since {known[1]:.3f}, and for {host.host} "
                f"{partition.leader} at {self._world.now():.3f}",
            )

    def _see_committed(self, key: PartitionKey) -> None:
        """Each replica in sync has every record that any leader considers committed, of the same epochs."""
        world = self._world
        state = self._stored.states.get(key)
        if state is None or world.power == ALL_AT_ONCE or key[0] in world.unclean_topics:
            return
        topic_id = self._stored.topic_id(key[0])
        found: list[tuple[BrokerHost, Partition]] = []
        for host in world.brokers:
            inspected = host.inspect() if host.is_up else None
            partition = None if inspected is None else inspected.partitions._open.get(key)
            if partition is not None and partition.topic_id == topic_id and partition.log.end_offset >= 0:
                found.append((host, partition))
        leaders = [each for each in found if each[1].is_leader]
        if not leaders:
            return
        leader_host, leader = max(leaders, key=lambda each: each[1].high_watermark)
        mark = leader.high_watermark
        for host, member in found:
            if member is leader or host.node_id not in state.isr or host.is_dark or member.log.is_offline:
                continue
            where = f"{key}: {leader_host.host} (epoch {leader.leader_epoch}) holds what is below {mark} for committed"
            if member.log.end_offset < mark:
                raise Violation(
                    "committed records are in all in-sync replicas",
                    f"{where}, {host.host}, in the ISR {state.isr}, ends at {member.log.end_offset}",
                )
            start = max(leader.log.log_start_offset, member.log.log_start_offset)
            if mark <= start:
                continue
            ours, theirs = (
                leader.log.history.leader_epochs.epoch_for(mark - 1),
                member.log.history.leader_epochs.epoch_for(mark - 1),
            )
            if ours == theirs:
                continue
            # What compaction has removed before it was copied, or before a lost file of epochs was rebuilt from the
            # batches, is of no epoch that a replica could know.
            if not member.log.config.compact or all(_holds(each.log, mark - 1) for each in (leader, member)):
                raise Violation(
                    "committed records are in all in-sync replicas",
                    f"{where}, offset {mark - 1} of epoch {ours}; at {host.host}, in the ISR {state.isr}, it is of "
                    f"epoch {theirs}",
                )


def _holds(log: PartitionLog, offset: int) -> bool:
    headers = (header for segment in log.segments for _, header in segment.scan(0))
    return any(header.base_offset <= offset <= header.last_offset for header in headers)


def _is_awake(world: World, host: BrokerHost) -> bool:
    """Whether the broker lives, does not stand still, and is registered in its session."""
    process = host.process
    return process is not None and process.paused_until <= world.now() and world.membership.is_registered(host)


def _partitions(host: BrokerHost) -> Partitions | None:
    found = host.inspect()
    return None if found is None else found.partitions


def _has(partitions: Partitions | None, key: PartitionKey) -> bool:
    """Whether the directory of the broker's replica is in use."""
    return partitions is None or not partitions.is_offline(*key)


def is_whole(world: World, host: BrokerHost) -> bool:
    """Whether the broker is in sync everywhere, under a registration that the controller trusts again."""
    epoch = world.membership.registered_epoch(host)
    if not host.is_up or epoch is None or not world.membership.is_trusted(host):
        return False
    found = host.inspect()
    if found is None or epoch != found.participation.broker_epoch:
        return False
    return all(host.node_id in s.isr for s in world.stored.states.values() if host.node_id in s.replicas)


async def see_replicas_agree(world: World) -> None:
    """All replicas come in sync, and have the same batches; all brokers know the same. Raises Violation."""
    until = world.now() + QUIET_SECONDS
    while behind := _behind(world) or _disagreement(world) or _strays(world) or _starts(world):
        if world.now() > until:
            raise Violation("replicas come in sync", f"{QUIET_SECONDS} s after all faults: {behind}")
        await asyncio.sleep(0.5)
    world.mark("all replicas in sync")
    for key, found in sorted(_by_partition(world).items()):
        if key[0] != "table" and not key[0].startswith("__"):
            _compare(key, found)


def _starts(world: World) -> str:
    """Where replicas do not begin where their leader does; each replica applies retention by itself.

    A former leader may begin later if it deleted records, and neither the others nor the client learned of it.
    """
    unheard_of = {each.partition for each in world.history.deletions if each.kept_since is None}
    for key, found in _by_partition(world).items():
        starts = {each.local_id: each.log.log_start_offset for each in found}
        if key[0] in ("short", "table") or key[0].startswith("__") or len(set(starts.values())) <= 1:
            continue
        leaders = [each.log.log_start_offset for each in found if each.is_leader]
        if key not in unheard_of or not leaders or min(starts.values()) < leaders[0]:
            return f"{key} begins at {starts}"
    return ""


def _disagreement(world: World) -> str:
    """Where a broker's image is not what the store has."""
    states = world.stored.states
    for host in world.brokers:
        found = host.inspect()
        if not host.is_up or found is None:
            return f"{host.host} is down"
        known = {
            (name, index): state
            for name, topic in found.view.image.topics.items()
            for index, state in enumerate(topic.partitions)
        }
        for key in sorted(states.keys() | known.keys()):
            if key not in known or key not in states:
                return f"{host.host} {'knows' if key in known else 'does not know'} {key}, the store does not agree"
            if _essence(known[key]) != _essence(states[key]):
                return f"{host.host} has {key} as {known[key]}, the store as {states[key]}"
        for name, topic in found.view.image.topics.items():
            if topic.id != world.stored.topic_id(name):
                return f"{host.host} knows {name} by the id of another topic"
        if set(found.view.image.brokers) != {each.node_id for each in world.brokers}:
            return f"{host.host} knows brokers {sorted(found.view.image.brokers)}"
    return ""


def _essence(state: PartitionState) -> tuple[object, ...]:
    return (
        state.leader, state.leader_epoch, state.partition_epoch, state.replicas, set(state.isr), state.adding_replicas,
        state.removing_replicas,
    )  # fmt: skip


def _strays(world: World) -> str:
    """Find a replica that the metadata does not name, or one that is missing where it should be."""
    for host in world.brokers:
        there = {
            name
            for path in host.volume.directories
            for where, _, name in (path.rpartition("/"),)
            if where in ("/data/a", "/data/b")
            and not name.endswith(("-delete", "-stray"))
            and name != METADATA_DIRECTORY
        }
        wanted = {f"{topic}-{index}" for (topic, index), s in world.stored.states.items() if host.node_id in s.replicas}
        if there != wanted:
            return f"{host.host} has {sorted(there - wanted)} and lacks {sorted(wanted - there)}"
    return ""


def _by_partition(world: World) -> dict[PartitionKey, list[Partition]]:
    found: dict[PartitionKey, list[Partition]] = {}
    for host in world.brokers:
        for key, partition in _replicas(host).items():
            found.setdefault(key, []).append(partition)
    return found


def _behind(world: World) -> str:
    for key, found in _by_partition(world).items():
        for each in found:
            if each.leader == each.local_id and set(each.isr) != set(each.replicas):
                return f"{key}: led by {each.leader}, ISR {each.isr} of {each.replicas}"
    for key, state in world.stored.states.items():
        if (
            state.leader < 0
            or set(state.isr) != set(state.replicas)
            or state.adding_replicas
            or state.removing_replicas
        ):
            return f"{key}: in the store {state}"
    return ""


def _compare(key: PartitionKey, found: list[Partition]) -> None:
    start = max(each.log.log_start_offset for each in found)
    end = min(each.high_watermark for each in found)
    if start >= end:
        return
    first = [bytes(batch) for batch in found[0].log.reader.read_batches(start, end)]
    for other in found[1:]:
        for ours, theirs in zip(first, other.log.reader.read_batches(start, end), strict=False):
            if ours != bytes(theirs):
                raise Violation(
                    "divergent replicas",
                    f"{key} at offset {int.from_bytes(ours[:8], 'big')}: brokers {found[0].local_id} and "
                    f"{other.local_id} have different batches",
                )
