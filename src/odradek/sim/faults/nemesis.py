"""Faults as data: what may go wrong in a profile, how often, and how it is done."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from odradek.sim.faults.cluster_faults import (
    alone_with_its_clients,
    blackout,
    controller_dies_half_way,
    cut_off,
    dark_in_a_write,
    freeze,
    given_up,
    kill_several,
    machine_loses_power,
    store_is_away,
    store_is_silent,
)
from odradek.sim.faults.controller_faults import (
    alone_with_a_controller,
    broker_freezes_in_a_heartbeat,
    controller_is_killed,
    controller_stands_still,
    controllers_are_away,
    cut_off_from_controllers,
    leadership_changes,
    metadata_commits_late,
    snapshot_is_taken,
)
from odradek.sim.faults.own_controller_faults import (
    broker_reaches_no_controller,
    own_controller_has_a_bad_disk,
    own_controller_is_cut_off,
    own_controller_is_killed,
    own_controller_is_succeeded_at_once,
    own_controller_is_succeeded_early,
    own_controller_loses_power,
    own_controller_stands_still,
)
from odradek.sim.faults.successions import (
    away_for_long,
    controller_speaks_late,
    coordinator_dies_deciding,
    deposed_in_a_write,
    deposed_leader_asks,
    deposed_unconfirmed,
    straggler_is_left,
    who_knows_least_leads,
)
from odradek.sim.world.disk import UNLIMITED
from odradek.sim.world.hosts import BrokerHost, World

ROTTEN = "rotten"
"""The topic in whose files bits may flip."""
Fault = Callable[[World, BrokerHost, random.Random], Coroutine[Any, Any, None]]


async def _restart(world: World, host: BrokerHost, rng: random.Random, down: tuple[float, float]) -> None:
    await asyncio.sleep(rng.uniform(*down))
    while not world.stopping and not host.is_up and not await host.start():
        await asyncio.sleep(0.5)


async def crash(world: World, host: BrokerHost, rng: random.Random) -> None:
    """kill -9 of the broker, started again; sometimes killed again while it starts."""
    host.kill()
    if rng.random() < 0.25:
        await asyncio.sleep(rng.uniform(0, 0.5))
        again = asyncio.get_running_loop().create_task(host.start())
        await asyncio.sleep(rng.uniform(0, 0.03))
        world.faults["crash while starting"] += 1
        host.kill()
        await again
    await _restart(world, host, rng, (0, 3.0))


async def crash_in_a_write(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The broker dies between two changes of the disk, wherever it is; the machine with it where power is lost."""
    faults = host.volume.faults
    faults.crash_in = 1 + int(rng.expovariate(1 / 12))
    stopping = rng.random() < 0.2
    task = asyncio.get_running_loop().create_task(host.stop()) if stopping else None
    for _ in range(50):
        await asyncio.sleep(0.1)
        if not host.is_up:
            break
    faults.crash_in = 0
    if task is not None:
        await task
    elif host.is_up:
        return
    if world.profile.loses_power and rng.random() < 0.8:
        host.lose_power(rng)
    if rng.random() < 0.3:
        # And again while it recovers.
        faults.crash_in = 1 + int(rng.expovariate(1 / 12))
        world.faults["crash while recovering"] += 1
        await host.start()
        await asyncio.sleep(rng.uniform(0, 0.2))
        faults.crash_in = 0
        if host.is_up:
            return
    await _restart(world, host, rng, (0, 2.0))


async def power_loss(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The broker's machine loses power and returns."""
    host.lose_power(rng)
    await _restart(world, host, rng, (0.1, 4.0))


async def restart(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A clean stop (sometimes killed in the middle of it) and a start."""
    task = asyncio.get_running_loop().create_task(host.stop())
    if rng.random() < 0.25:
        await asyncio.sleep(rng.uniform(0, 0.05))
        world.faults["crash while stopping"] += 1
        host.kill()
    await task
    if rng.random() < 0.3 and world.profile.loses_power:
        world.faults["power loss while stopped"] += 1
        host.lose_power(rng)
    await _restart(world, host, rng, (0, 2.0))


async def pause_broker(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Stop the broker's process for a while, as SIGSTOP does."""
    seconds = rng.choice((0.2, 1.0, 3.0, 8.0)) * rng.uniform(0.5, 1.5)
    host.pause(seconds)
    await asyncio.sleep(seconds)


async def pause_client(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Stop a client's process for a while, as SIGSTOP does."""
    client = rng.choice(world.clients)
    world.note(f"{client.name} is paused")
    world.loop.pause(client.process, rng.choice((0.5, 3.0, 9.0)) * rng.uniform(0.5, 1.5))


async def crash_client(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Kill a client; its host restarts it."""
    rng.choice(world.clients).crash()


async def jump_clock(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Move the wall clock of the broker's machine."""
    by_ms = rng.randrange(-3_000, 3_000)
    if rng.random() < 0.3:
        # Not further back than message.timestamp.after.max.ms allows: the broker would refuse what clients stamp.
        by_ms = rng.randrange(-1_800_000, 7_200_000)
        world.faults["clock jump of minutes or hours"] += 1
    host.clock.skew_ms += by_ms
    world.history.clock_error_s += abs(by_ms) / 1000


async def cut(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Nothing gets through between a client and the broker, in both directions or one."""
    client = rng.choice(world.clients).name
    until = world.now() + rng.choice((0.3, 2.0, 6.0, 10.0)) * rng.uniform(0.5, 1.5)
    ways = [(client, host.host), (host.host, client)]
    if rng.random() < 0.4:
        ways = [rng.choice(ways)]
        world.faults["one-way cut"] += 1
    world.note(f"cut {' '.join(f'{a}>{b}' for a, b in ways)} until {until:.3f}")
    for way in ways:
        world.network.link(*way).cut_until = until
    if rng.random() < 0.4:
        # What was under way when it began comes after what new connections bring.
        world.faults["late frames after a cut"] += 1
        for stream in world.network.between(client, host.host):
            stream.outgoing.stalled_until = until + rng.uniform(0.5, 8)


async def slow_link(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Delay the packets between the broker and a client for a while."""
    client = rng.choice(world.clients).name
    for way in ((client, host.host), (host.host, client)):
        world.network.link(*way).slow_until = world.now() + rng.uniform(1, 8)


async def reset(world: World, host: BrokerHost, rng: random.Random) -> None:
    """One connection is reset, what was under way on it lost in part."""
    streams = [s for s in world.network.streams if s.process.host != host.host]
    if streams:
        rng.choice(streams).reset()


async def stall(world: World, host: BrokerHost, rng: random.Random) -> None:
    """One connection stands still while others continue: what was sent on it arrives late."""
    streams = [s for s in world.network.streams if s.process.host != host.host]
    if streams:
        stream = rng.choice(streams)
        until = world.now() + rng.choice((1.0, 5.0, 12.0)) * rng.uniform(0.5, 1.5)
        world.note(f"a connection of {stream.process.name} stalls until {until:.3f}")
        (stream.outgoing if rng.random() < 0.7 else stream.incoming).stalled_until = until


async def half_open(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A client vanishes without a word; the broker keeps its connection."""
    client = rng.choice(world.clients)
    for stream in [s for s in world.network.streams if s.process is client.process]:
        stream.vanish()
    client.crash()


async def slow_disk(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Syncs and other slow calls take long; where power is lost, it may be lost in the middle of them."""
    host.volume.faults.slow = rng.uniform(0.05, 2.0)
    await asyncio.sleep(rng.uniform(0.5, 4))
    if world.profile.loses_power and rng.random() < 0.5:
        world.faults["power loss on a slow disk"] += 1
        host.lose_power(rng)
        host.volume.faults.slow = 0.0
        await _restart(world, host, rng, (0.1, 4.0))
    host.volume.faults.slow = 0.0


async def disk_full(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Limit the space of the broker's disk for a while."""
    volume = host.volume
    volume.capacity = volume.used() + rng.randrange(2_000)
    await asyncio.sleep(rng.uniform(0.2, 4))
    volume.capacity = UNLIMITED


async def disk_error(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Writes, reads or syncs fail for a while; then the disk is replaced by a healthy one and the broker restarted."""
    faults = host.volume.faults
    kind = rng.choice(("write_error", "sync_error", "read_error"))
    setattr(faults, kind, rng.choice((0.02, 0.2, 1.0)))
    world.note(f"{kind} on {host.host}")
    await asyncio.sleep(rng.uniform(0.05, 2))
    setattr(faults, kind, 0.0)
    host.kill()
    await _restart(world, host, rng, (0, 1.0))


async def few_files(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The process may have no more files and sockets open for a while (`ulimit -n`); some calls still get one."""
    chance = rng.choice((0.1, 0.5, 1.0))
    world.note(f"{host.host} has too many open files: {chance}")
    host.volume.faults.no_descriptor = chance
    if rng.random() < 0.5:
        world.network.no_descriptor[host.host] = chance
    if rng.random() < 0.2:
        host.kill()
        await host.start()
    await asyncio.sleep(rng.choice((0.1, 1.0, 5.0)) * rng.uniform(0.5, 1.5))
    host.volume.faults.no_descriptor = 0.0
    world.network.no_descriptor.pop(host.host, None)
    if host.lacks_a_directory or not host.is_up:
        # Where something could not be finished, the directory is out of use until a restart.
        if not host.volume.faults.injected and host.is_up:
            world.mark("a directory went offline for want of descriptors")
        host.kill()
        await _restart(world, host, rng, (0, 1.0))


async def lose_store(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Make the metadata store slow and lose requests or answers for a while."""
    world.store_faults.lost = rng.choice((0.1, 0.5, 1.0))
    world.store_faults.slow = rng.choice((0.0, 0.5))
    await asyncio.sleep(rng.uniform(0.2, 4))
    world.store_faults.lost = world.store_faults.slow = 0.0


async def flip_bits(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Some bits of a file at rest are others than what was written, on the device and in the cache."""
    files = host.volume.files
    names = sorted(n for n, inode in files.items() if f"/{ROTTEN}-" in n and n.endswith(".log") and inode.data)
    if not names:
        return
    name = rng.choice(names)
    for _ in range(rng.choice((1, 1, 5))):
        files[name].rot(rng.randrange(len(files[name].data)), 1 << rng.randrange(8))
    world.note(f"bits of {name} flip")


async def part_brokers(world: World, host: BrokerHost, rng: random.Random) -> None:
    """Two brokers cannot reach each other, or one cannot reach any other, in both directions or one."""
    others = [each for each in world.brokers if each is not host]
    if rng.random() < 0.6:
        others = [rng.choice(others)]
    until = world.now() + rng.choice((0.5, 3.0, 8.0, 12.0)) * rng.uniform(0.5, 1.5)
    for other in others:
        ways = [(host.host, other.host), (other.host, host.host)]
        if rng.random() < 0.3:
            ways = [rng.choice(ways)]
            world.faults["one-way cut between brokers"] += 1
        world.note(f"cut {' '.join(f'{a}>{b}' for a, b in ways)} until {until:.3f}")
        for way in ways:
            world.network.link(*way).cut_until = until


async def expire_session(world: World, host: BrokerHost, rng: random.Random) -> None:
    """The metadata store ends the session of a live broker: it learns of that late, others may lead meanwhile."""
    if host.store is not None:
        host.store.expire()


class Kind(NamedTuple):
    """A fault and its weight in the choice of the next one."""

    fault: Fault
    weight: float


class Profile(NamedTuple):
    """What happens in a run: faults by weight, the mean time between two of them, which workloads run."""

    name: str
    faults: tuple[Kind, ...]
    between_seconds: float
    workloads: tuple[str, ...]
    flushes: bool = False
    """Every log is synced before anything is acknowledged (log.flush.interval.messages=1)."""
    brokers: int = 1
    overlapping: float = 0.0
    """How often the next fault does not wait for the end of the one before."""
    audits: bool = False
    """Whether brokers have an audit topic, which is judged."""
    charges: bool = False
    """Whether brokers' work takes simulated time: see `costs`."""
    has_quorum: bool = False
    """Whether the metadata are a KRaft quorum's: see `odradek.sim.controllers`."""
    has_own_quorum: bool = False
    """Whether its controllers are Odradek's, and no model."""

    @property
    def loses_power(self) -> bool:
        """Whether machines lose power in this profile."""
        return any(kind.fault is power_loss for kind in self.faults)

    @property
    def removes_surely(self) -> bool:
        """Whether a file that the broker removed stays removed, and it could remove it."""
        return not any(kind.fault in (power_loss, disk_full, disk_error) for kind in self.faults)


_NETWORK = (Kind(cut, 3), Kind(slow_link, 1), Kind(reset, 5), Kind(stall, 4), Kind(half_open, 1))
_CLIENTS = (Kind(pause_client, 2), Kind(crash_client, 2))

_CLUSTER = (
    *_NETWORK, *_CLIENTS, Kind(crash, 3), Kind(crash_in_a_write, 2), Kind(restart, 3), Kind(pause_broker, 2),
    Kind(part_brokers, 4), Kind(expire_session, 2), Kind(lose_store, 1), Kind(controller_dies_half_way, 4),
    Kind(freeze, 3), Kind(cut_off, 3), Kind(kill_several, 2),
)  # fmt: skip

_LOGS = ("producers", "foreign", "retention", "compaction", "moves")
_BROKER = (Kind(restart, 2), Kind(pause_broker, 1), Kind(jump_clock, 1))
_POWER = (
    Kind(power_loss, 3), Kind(crash_in_a_write, 4), Kind(slow_disk, 3), Kind(restart, 2), Kind(crash_client, 1),
)  # fmt: skip

_ACCESS = (
    *_NETWORK, Kind(crash_client, 1), Kind(controller_dies_half_way, 3), Kind(crash, 2), Kind(restart, 1),
    Kind(pause_broker, 2), Kind(freeze, 1), Kind(expire_session, 4), Kind(part_brokers, 2),
    Kind(alone_with_its_clients, 2), Kind(store_is_away, 2), Kind(lose_store, 2),
)  # fmt: skip

_CONTROLLERS = (
    Kind(controller_is_killed, 3), Kind(controller_stands_still, 2), Kind(leadership_changes, 5),
    Kind(cut_off_from_controllers, 3), Kind(alone_with_a_controller, 3), Kind(controllers_are_away, 1),
    Kind(snapshot_is_taken, 4), Kind(metadata_commits_late, 2), Kind(broker_freezes_in_a_heartbeat, 2),
)  # fmt: skip

_OWN_CONTROLLERS = (
    Kind(own_controller_is_killed, 5), Kind(own_controller_loses_power, 4), Kind(own_controller_stands_still, 3),
    Kind(own_controller_is_cut_off, 4), Kind(broker_reaches_no_controller, 3),
)  # fmt: skip

PROFILES: dict[str, Profile] = {
    each.name: each
    for each in (
        Profile(
            "crash",
            (Kind(crash, 3), Kind(crash_in_a_write, 5), *_BROKER, Kind(reset, 1), *_CLIENTS),
            3.0,
            (*_LOGS, "groups", "transactions", "observer"),
        ),
        Profile(
            "network",
            (*_NETWORK, *_CLIENTS, Kind(pause_broker, 2)),
            1.5,
            ("producers", "foreign", "groups", "modern groups", "ghosts", "transactions", "observer"),
        ),
        Profile(
            "disk",
            (Kind(slow_disk, 2), Kind(disk_full, 3), Kind(disk_error, 3), Kind(crash_in_a_write, 3), Kind(restart, 1)),
            4.0,
            (*_LOGS, "groups", "transactions"),
        ),
        Profile(
            "descriptors",
            (Kind(few_files, 6), Kind(crash, 1), Kind(crash_in_a_write, 1), Kind(restart, 2), Kind(reset, 1)),
            3.0,
            (*_LOGS, "groups", "modern groups", "transactions", "rpw", "admin", "recreated"),
        ),
        Profile(
            "holds",
            (Kind(restart, 2), Kind(crash, 1), Kind(reset, 1), Kind(pause_broker, 1)),
            5.0,
            ("producers", "wide"),
            charges=True,
        ),
        Profile(
            "slow",
            (Kind(slow_disk, 6), Kind(crash, 2), Kind(crash_in_a_write, 2), Kind(restart, 1), Kind(part_brokers, 1)),
            1.5,
            ("producers", "transactions", "observer"),
            brokers=3,
            overlapping=0.3,
            charges=True,
        ),
        Profile(
            "rot",
            (Kind(flip_bits, 6), Kind(crash, 1), Kind(restart, 2), Kind(crash_in_a_write, 1), Kind(reset, 1)),
            1.5,
            ("rotten", "producers", "retention"),
        ),
        Profile("power", _POWER, 4.0, ("producers", "foreign", "flushed", "retention")),
        Profile("flush", _POWER, 4.0, (*_LOGS, "transactions", "groups", "rpw", "observer"), flushes=True),
        Profile(
            "store",
            (Kind(lose_store, 3), Kind(crash, 1), Kind(crash_in_a_write, 1), Kind(restart, 1), Kind(reset, 1)),
            3.0,
            ("producers", "admin", "groups", "observer"),
        ),
        Profile(
            "txn",
            (*_NETWORK, *_CLIENTS, Kind(crash, 2), Kind(crash_in_a_write, 3), *_BROKER),
            2.0,
            ("transactions", "more transactions", "rpw", "observer"),
        ),
        Profile("spark", (*_NETWORK, *_CLIENTS, *_BROKER, Kind(crash, 2), Kind(crash_in_a_write, 2)), 2.5, ("spark",)),
        Profile(
            "cluster",
            (
                *_NETWORK,
                *_CLIENTS,
                Kind(crash, 4),
                Kind(crash_in_a_write, 3),
                Kind(restart, 3),
                Kind(pause_broker, 3),
                Kind(part_brokers, 4),
                Kind(expire_session, 2),
                Kind(lose_store, 1),
            ),
            2.5,
            ("producers", "groups", "transactions", "rpw", "observer"),
            brokers=3,
        ),
        Profile(
            "cluster5",
            _CLUSTER,
            2.0,
            ("producers", "transactions", "more transactions", "modern groups", "observer", "reassignments", "topics"),
            brokers=5,
            overlapping=0.6,
        ),
        Profile(
            "disks",
            (
                Kind(slow_disk, 2),
                Kind(disk_full, 3),
                Kind(disk_error, 3),
                Kind(few_files, 4),
                Kind(crash_in_a_write, 2),
                Kind(crash, 2),
                Kind(restart, 2),
                Kind(part_brokers, 1),
            ),
            2.5,
            ("producers", "groups", "transactions", "rpw", "topics", "recreated"),
            brokers=3,
            overlapping=0.3,
        ),
        Profile(
            "upkeep",
            (
                Kind(crash, 3),
                Kind(crash_in_a_write, 4),
                Kind(restart, 2),
                Kind(part_brokers, 3),
                Kind(expire_session, 2),
                Kind(freeze, 1),
                Kind(jump_clock, 2),
                Kind(few_files, 1),
                Kind(slow_disk, 1),
            ),
            2.5,
            ("producers", "compaction", "retention", "moves", "transactions"),
            brokers=3,
            overlapping=0.3,
        ),
        Profile(
            "late",
            (
                Kind(given_up, 8),
                Kind(crash, 1),
                Kind(restart, 1),
                Kind(freeze, 1),
                Kind(expire_session, 2),
                Kind(part_brokers, 1),
                Kind(stall, 2),
            ),
            1.0,
            ("producers", "transactions", "more transactions", "reassignments", "topics", "recreated"),
            brokers=5,
            overlapping=0.5,
        ),
        Profile(
            "blackout",
            (
                Kind(machine_loses_power, 4),
                Kind(dark_in_a_write, 3),
                Kind(blackout, 2),
                Kind(crash, 2),
                Kind(restart, 1),
                Kind(reset, 1),
                Kind(part_brokers, 1),
                Kind(controller_dies_half_way, 1),
            ),
            3.5,
            ("producers", "flushed", "groups", "transactions", "rpw", "topics"),
            brokers=3,
            overlapping=0.5,
        ),
        Profile(
            "unclean",
            (*_CLUSTER, Kind(kill_several, 4)),
            2.0,
            ("producers", "groups", "transactions", "topics"),
            brokers=3,
        ),
        Profile(
            "succession",
            (
                Kind(who_knows_least_leads, 4),
                Kind(straggler_is_left, 3),
                Kind(coordinator_dies_deciding, 4),
                Kind(deposed_leader_asks, 3),
                Kind(away_for_long, 2),
                Kind(crash_client, 1),
            ),
            1.5,
            ("producers", "transactions", "more transactions", "rpw"),
            brokers=3,
        ),
        Profile(
            "unconfirmed",
            (Kind(deposed_unconfirmed, 8), Kind(crash, 1), Kind(expire_session, 1), Kind(crash_client, 1)),
            1.0,
            ("foreign transactions", "transactions"),
            brokers=3,
        ),
        Profile(
            "stale",
            (
                Kind(alone_with_its_clients, 8),
                Kind(store_is_away, 2),
                Kind(freeze, 2),
                Kind(pause_broker, 2),
                Kind(expire_session, 1),
                Kind(part_brokers, 2),
                Kind(crash, 1),
                Kind(restart, 1),
            ),
            1.5,
            ("producers", "groups", "transactions", "observer", "witness"),
            brokers=3,
            overlapping=0.3,
        ),
        Profile(
            "silent",
            (Kind(store_is_silent, 8), Kind(crash, 1), Kind(pause_broker, 1), Kind(part_brokers, 1)),
            2.0,
            ("producers", "groups", "witness"),
            brokers=3,
        ),
        Profile(
            "kraft",
            (
                *_NETWORK,
                *_CLIENTS,
                *_CONTROLLERS,
                Kind(crash, 4),
                Kind(crash_in_a_write, 3),
                Kind(restart, 4),
                Kind(pause_broker, 3),
                Kind(part_brokers, 3),
            ),
            1.5,
            ("producers", "groups", "transactions", "observer", "reassignments", "topics"),
            brokers=3,
            overlapping=0.4,
            has_quorum=True,
        ),
        Profile(
            "kraft-dark",
            (
                *_CONTROLLERS,
                Kind(machine_loses_power, 6),
                Kind(dark_in_a_write, 5),
                Kind(crash, 2),
                Kind(restart, 3),
                Kind(reset, 1),
                Kind(part_brokers, 1),
            ),
            2.5,
            ("producers", "flushed", "transactions", "topics"),
            brokers=3,
            overlapping=0.4,
            has_quorum=True,
        ),
        Profile(
            "controllers",
            (
                *_NETWORK,
                *_CLIENTS,
                *_OWN_CONTROLLERS,
                Kind(crash, 3),
                Kind(crash_in_a_write, 2),
                Kind(restart, 4),
                Kind(pause_broker, 2),
                Kind(part_brokers, 2),
            ),
            1.5,
            ("producers", "groups", "transactions", "observer", "reassignments", "topics"),
            brokers=3,
            overlapping=0.4,
            has_quorum=True,
            has_own_quorum=True,
        ),
        Profile(
            "controller-disks",
            (
                Kind(own_controller_has_a_bad_disk, 8),
                Kind(own_controller_is_killed, 2),
                Kind(own_controller_is_cut_off, 2),
                Kind(own_controller_loses_power, 1),
                Kind(crash, 2),
                Kind(restart, 2),
                Kind(part_brokers, 1),
            ),
            2.0,
            ("producers", "transactions", "topics"),
            brokers=3,
            overlapping=0.3,
            has_quorum=True,
            has_own_quorum=True,
        ),
        Profile(
            "early",
            (
                Kind(own_controller_is_succeeded_early, 8),
                Kind(own_controller_is_killed, 2),
                Kind(own_controller_stands_still, 1),
                Kind(pause_broker, 1),
                Kind(crash, 1),
                Kind(restart, 1),
            ),
            1.0,
            ("producers", "groups", "transactions", "topics"),
            brokers=3,
            overlapping=0.2,
            has_quorum=True,
            has_own_quorum=True,
        ),
        Profile(
            "at-once",
            (
                Kind(own_controller_is_succeeded_at_once, 8),
                Kind(own_controller_is_killed, 1),
                Kind(pause_broker, 1),
                Kind(restart, 1),
            ),
            2.0,
            # Without "topics": a follower of the deposed controller that has newer records rejects the seekers' votes.
            ("producers", "groups", "transactions"),
            brokers=3,
            has_quorum=True,
            has_own_quorum=True,
        ),
        Profile("acls", _ACCESS, 2.5, ("producers", "access"), brokers=3, overlapping=0.2),
        Profile("audit", _ACCESS, 2.5, ("access",), brokers=3, overlapping=0.2, audits=True),
        Profile(
            "handover",
            (
                Kind(controller_speaks_late, 3),
                Kind(deposed_in_a_write, 3),
                Kind(controller_dies_half_way, 2),
                Kind(freeze, 1),
                Kind(cut_off, 1),
                Kind(away_for_long, 1),
            ),
            2.5,
            ("producers", "handovers"),
            brokers=5,
            overlapping=0.2,
        ),
        Profile(
            "all",
            (
                *_NETWORK,
                *_CLIENTS,
                *_BROKER,
                Kind(crash, 2),
                Kind(crash_in_a_write, 3),
                Kind(slow_disk, 1),
                Kind(disk_full, 1),
            ),
            2.5,
            (*_LOGS, "groups", "transactions", "rpw", "observer", "admin", "modern groups"),
        ),
    )
}


async def torment(world: World, profile: Profile, seconds: float) -> None:
    """Faults of the profile until the time is over; each comes to its own end."""
    rng = random.Random(f"{world.seed}:nemesis")
    kinds = [kind.fault for kind in profile.faults]
    weights = [kind.weight for kind in profile.faults]
    end = world.now() + seconds
    under_way: list[asyncio.Task[None]] = []
    while True:
        await asyncio.sleep(rng.expovariate(1 / profile.between_seconds))
        if world.now() >= end:
            break
        host = rng.choice(world.brokers)
        fault = rng.choices(kinds, weights)[0]
        if not host.is_up:
            continue
        name = fault.__name__.replace("_", " ")
        world.faults[name] += 1
        world.note(f"fault: {name}")
        if profile.overlapping and rng.random() < profile.overlapping:
            under_way.append(asyncio.create_task(fault(world, host, rng)))
        else:
            await fault(world, host, rng)
    await asyncio.gather(*under_way)


async def heal(world: World) -> None:
    """The end of all faults: everything that is down comes up, everything that is cut is joined."""
    world.network.heal()
    if world.controllers is not None:
        world.controllers.heal()
    world.store_faults.lost = world.store_faults.slow = 0.0
    for host in world.brokers:
        faults = host.volume.faults
        faults.crash_in = 0
        faults.write_error = faults.sync_error = faults.read_error = faults.slow = faults.no_descriptor = 0.0
        host.volume.capacity = UNLIMITED
        if host.store is not None:
            host.store.slow = 0.0
            host.store.dies_in = 0
            host.store.reconnect()
        if (host.volume.faults.injected or host.lacks_a_directory) and host.is_up:
            # A log directory that went offline comes back with a restart.
            host.kill()
        while not host.is_up:
            await host.start()
    world.note("all is healed")
