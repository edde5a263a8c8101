"""Leases of leadership: who may act as a leader while brokers or the metadata store are cut off."""

from __future__ import annotations

import asyncio
import random

import pytest

from odradek.broker.cluster.controller_link import ControllerLink
from odradek.controller.lease_table import Grant
from odradek.metadata.image import NO_LEADER, ClusterImage
from odradek.replication.leadership import Leadership
from odradek.sim.controllers.active_controller import ActiveController
from odradek.sim.controllers.model_quorum import ModelQuorum
from odradek.sim.faults.cluster_faults import controller_of, started_again, store_is_away, store_is_silent
from odradek.sim.faults.nemesis import PROFILES, Kind, Profile
from odradek.sim.run import run_seed
from odradek.sim.workloads.witness import COMMITTED_WITHOUT_STORE
from odradek.sim.world.hosts import BrokerHost, World

AWAY = Profile("stale", (Kind(store_is_away, 1),), 2.0, ("witness",), brokers=3)
SILENT = Profile("silent", (Kind(store_is_silent, 1),), 2.0, ("producers",), brokers=3)


def test_offsets_are_committed_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "away", AWAY)
    result = run_seed(1, "away", safety_seconds=20.0)
    assert not result.violation, result.story
    assert result.marks[COMMITTED_WITHOUT_STORE] > 50


def test_partitions_stay_writable_while_the_store_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "quiet", SILENT)
    result = run_seed(1, "quiet", safety_seconds=20.0)
    assert not result.violation, result.story
    assert result.faults["store is silent"] > 1


def test_leader_that_waits_for_a_silent_store_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ControllerLink.lease

    async def lease(self: ControllerLink, timeout_ms: float) -> Grant:
        return await right(self, timeout_ms * 1000)

    monkeypatch.setattr(ControllerLink, "lease", lease)
    monkeypatch.setitem(PROFILES, "quiet", SILENT)
    assert run_seed(1, "quiet", safety_seconds=20.0).violation == "partitions stay writable while the store is away"


async def successor_restarts(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A leader does not reach the controller and acts by promises; its successor is killed and restarts at once."""
    controller = controller_of(world)
    if controller is None:
        return
    led = {
        key: state.leader
        for key, state in sorted(world.stored.states.items())
        if controller.node_id not in (state.leader, *state.isr) and state.leader != NO_LEADER and len(state.isr) > 1
    }
    if not led:
        return
    leader = world.brokers[rng.choice(sorted(set(led.values()))) - 1]
    for way in ((leader, controller), (controller, leader)):
        world.network.link(way[0].host, way[1].host).cut_until = world.now() + 14.0
    elected: list[int] = []
    for _ in range(1400):
        await asyncio.sleep(0.01)
        now = {world.stored.states[key].leader for key, was in led.items() if was == leader.node_id}
        elected = sorted(now - {leader.node_id, controller.node_id, NO_LEADER})
        if elected:
            break
    else:
        return
    successor = world.brokers[elected[0] - 1]
    await asyncio.sleep(rng.uniform(0.0, 0.3))
    successor.kill()
    assert successor.store is not None
    successor.store.expire()
    await started_again(world, successor, rng, (0.0, 0.1))
    world.mark("a successor has restarted")


RESTARTS = Profile("restarts", (Kind(successor_restarts, 1),), 1.0, ("producers",), brokers=5, overlapping=0.0)


def test_promise_outlasts_the_process_that_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "restarts", RESTARTS)
    result = run_seed(2, "restarts")
    assert not result.violation, result.story
    assert result.marks["a successor has restarted"] > 1


def test_promise_that_ends_with_its_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leadership, "promise_before", lambda _self, _until: None)
    monkeypatch.setitem(PROFILES, "restarts", RESTARTS)
    assert run_seed(2, "restarts").violation == "one leader speaks at a time"


async def deposed_leader_is_cut_off(world: World, host: BrokerHost, rng: random.Random) -> None:
    """A broker stops, starts and is elected again, while a leader that it follows is cut off from the controllers."""
    quorum = world.controllers
    assert isinstance(quorum, ModelQuorum)
    if not host.is_up:
        return
    await host.stop()
    await host.start()
    for _ in range(100):
        await asyncio.sleep(0.1)
        active = None if quorum.leader is None else quorum.leader.active
        led = _led_elsewhere(active.image, host) if isinstance(active, ActiveController) else []
        if led:
            break
    else:
        return
    former = world.brokers[rng.choice(led) - 1]
    until = world.now() + 8.0
    for each in quorum.controllers:
        for way in ((former.host, each.host), (each.host, former.host)):
            world.network.link(*way).cut_until = until
    await asyncio.sleep(rng.uniform(0.0, 0.2))
    assert isinstance(active, ActiveController)
    await active.decide(lambda records: records.balance_leaders(0))
    world.mark("a leader that was cut off is deposed")
    await asyncio.sleep(until - world.now())


def _led_elsewhere(image: ClusterImage, host: BrokerHost) -> list[int]:
    """The leaders of partitions of which the broker is the preferred leader, and in sync."""
    states = [state for topic in image.topics.values() for state in topic.partitions]
    return sorted({s.leader for s in states if s.replicas[0] == host.node_id in s.isr and s.leader != host.node_id})


DEPOSED = Profile(
    "deposed", (Kind(deposed_leader_is_cut_off, 1),), 1.0, ("producers", "witness"), brokers=3, has_quorum=True
)


def test_former_leader_that_is_cut_off_delays_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a KRaft cluster it is not fenced for a session, and does not know of its successor."""
    monkeypatch.setitem(PROFILES, "deposed", DEPOSED)
    result = run_seed(2, "deposed")
    assert not result.violation, result.story
    assert result.marks["a leader that was cut off is deposed"] > 1
