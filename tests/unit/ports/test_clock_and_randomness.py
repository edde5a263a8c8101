"""Clocks and random streams."""

from __future__ import annotations

import base64
import time

import pytest

from odradek.ports.clock import SystemClock, process_age
from odradek.ports.randomness import Random, SeededRandom, SystemRandom


def test_clock_returns_milliseconds_since_the_epoch() -> None:
    clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 60_000
    assert clock.monotonic() <= clock.monotonic()
    assert process_age() > 0


@pytest.mark.parametrize("random", [SystemRandom(), SeededRandom("seed")], ids=["system", "seeded"])
def test_uuids_are_of_version_4_and_never_look_like_an_option(random: Random) -> None:
    made = {random.uuid() for _ in range(2000)}
    assert len(made) == 2000
    for uuid in made:
        assert len(uuid) == 16
        assert uuid[6] >> 4 == 4
        assert not base64.urlsafe_b64encode(uuid).startswith(b"-")
    assert 0 <= random.random() < 1
    assert {random.randrange(3) for _ in range(200)} == {0, 1, 2}


def test_one_seed_gives_one_sequence() -> None:
    one, two, other = SeededRandom("a"), SeededRandom("a"), SeededRandom("b")
    assert [one.uuid() for _ in range(5)] == [two.uuid() for _ in range(5)]
    assert one.random() == two.random()
    assert SeededRandom("a").uuid() != other.uuid()
