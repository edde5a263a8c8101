"""Leases of leadership: who may act as a leader while brokers or the metadata store are cut off."""

from __future__ import annotations

import pytest

from odradek.sim.faults.cluster_faults import store_is_away
from odradek.sim.faults.nemesis import PROFILES, Kind, Profile
from odradek.sim.run import run_seed
from odradek.sim.workloads.witness import COMMITTED_WITHOUT_STORE

AWAY = Profile("stale", (Kind(store_is_away, 1),), 2.0, ("witness",), brokers=3)


def test_offsets_are_committed_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "away", AWAY)
    result = run_seed(1, "away", safety_seconds=20.0)
    assert not result.violation, result.story
    assert result.marks[COMMITTED_WITHOUT_STORE] > 50
