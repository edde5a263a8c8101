"""Leases of leadership: who may act as a leader while brokers or the metadata store are cut off."""

from __future__ import annotations

import pytest

from odradek.broker.cluster.controller_link import ControllerLink
from odradek.controller.lease_table import Grant
from odradek.sim.faults.cluster_faults import store_is_away, store_is_silent
from odradek.sim.faults.nemesis import PROFILES, Kind, Profile
from odradek.sim.run import run_seed
from odradek.sim.workloads.witness import COMMITTED_WITHOUT_STORE

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
