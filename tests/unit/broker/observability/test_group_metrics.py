"""Metrics of groups: members, offsets and lag, as a scrape shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.observability import group_metrics as names
from odradek.broker.observability.group_metrics import GroupMetrics
from odradek.groups.events import GroupListing, GroupSurvey
from odradek.metrics.definition import Metric

Key = tuple[str, int]


class Ends:
    """Ends of partitions, and the age of a record as 100 ms for each that follows."""

    def __init__(self, **ends: int) -> None:
        self._ends = ends
        self.asked: list[Key] = []
        self.ageless: set[Key] = set()

    def find(self, key: Key) -> Any:
        end = self._ends.get(f"{key[0]}{key[1]}")
        return None if end is None else SimpleNamespace(high_watermark=end)

    def age_ms(self, key: Key, offset: int, end: Any) -> int | None:
        return None if key in self.ageless else max(0, end.high_watermark - offset) * 100

    async def refresh(self, keys: Iterable[Key]) -> None:
        self.asked += keys


def group(name: str, state: str = "Stable", members: int = 1, **offsets: int) -> GroupSurvey:
    """Offsets by topic and partition: t0=5."""
    stored: Any = {
        (key[0], int(key[1:])): SimpleNamespace(value=SimpleNamespace(offset=offset)) for key, offset in offsets.items()
    }
    return GroupSurvey(GroupListing(name, "consumer", state, "classic"), members, stored)


def scrape(*groups: GroupSurvey, ends: Ends | None = None, most: int = 100) -> dict[Metric, dict[str, float]]:
    metrics = GroupMetrics(lambda: iter(groups), ends or Ends(), lambda: most)  # type: ignore[arg-type]
    return {
        family.metric: {labels: value for _, labels, value in family.samples}
        for family in metrics.collect()
        if family is not None
    }


def test_scrape_has_every_family_once() -> None:
    found = scrape(group("g", t0=1))
    assert set(found) == set(GroupMetrics.metrics)


def test_groups_are_counted_by_state() -> None:
    found = scrape(group("a"), group("b", "Empty"), group("c", "Empty"))
    assert found[names.GROUPS] == {"": 3}
    states = {state: found[metric][""] for state, metric in names.BY_STATE.items()}
    assert {state: count for state, count in states.items() if count} == {"Stable": 1, "Empty": 2}


def test_group_shows_members_offsets_and_lags() -> None:
    found = scrape(group("g", members=3, t0=5, t1=7, u0=2), ends=Ends(t0=9, t1=7, u0=1))
    of_group, of_t, of_u = 'consumergroup="g"', 'consumergroup="g",topic="t"', 'consumergroup="g",topic="u"'
    places = f'{of_t},partition="0"', f'{of_t},partition="1"', f'{of_u},partition="0"'
    assert found[names.MEMBERS] == {of_group: 3}
    assert found[names.OFFSET] == dict(zip(places, (5, 7, 2), strict=True))
    assert found[names.OFFSET_SUM] == {of_t: 12, of_u: 2}
    assert found[names.LAG] == dict(zip(places, (4, 0, 0), strict=True)), "never negative"
    assert found[names.LAG_SUM] == {of_t: 4, of_u: 0}
    assert found[names.LAG_SECONDS] == dict(zip(places, (0.4, 0.0, 0.0), strict=True))
    assert found[names.MOST_SECONDS] == {of_group: 0.4}


def test_unknown_ends_and_ages_have_no_lag() -> None:
    ends = Ends(t0=9, t1=9)
    ends.ageless.add(("t", 1))
    found = scrape(group("g", t0=8, t1=6, u0=3), group("h", u0=3), ends=ends)
    of_t = 'consumergroup="g",topic="t"'
    assert found[names.LAG] == {f'{of_t},partition="0"': 1, f'{of_t},partition="1"': 3}
    assert found[names.LAG_SUM] == {of_t: 4}
    assert found[names.LAG_SECONDS] == {f'{of_t},partition="0"': 0.1}
    assert found[names.MOST_SECONDS] == {'consumergroup="g"': 0.1}
    assert len(found[names.OFFSET]) == 4


def test_largest_lag_in_seconds_is_that_of_any_partition() -> None:
    found = scrape(group("g", t0=9, t1=2, t2=8), ends=Ends(t0=10, t1=10, t2=10))
    assert found[names.MOST_SECONDS] == {'consumergroup="g"': 0.8}


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_first_groups_by_name_have_series(most: int) -> None:
    ends = Ends(t0=9)
    groups = [group(name, t0=1) for name in ("c", "a", "b")]
    found = scrape(*groups, ends=ends, most=most)
    shown = {f'consumergroup="{name}"' for name in ("a", "b", "c")[:most]}
    assert set(found[names.MEMBERS]) == set(found[names.MOST_SECONDS]) == shown
    assert found[names.GROUPS] == {"": 3}
    metrics = GroupMetrics(lambda: iter(groups), ends, lambda: most)  # type: ignore[arg-type]
    asyncio.run(metrics.refresh())
    assert ends.asked == [("t", 0)] * most


@pytest.mark.parametrize("count", [63, 64, 65, 130])
def test_scrape_pauses_after_some_groups_and_offsets(count: int) -> None:
    groups = [group(f"g{index:03}", t0=1) for index in range(count)]
    many = group("many", "Stable", 1, **{f"t{index}": 1 for index in range(count)})
    for found, least in ((groups, count // 64 + count), ([many], -(-count // 64))):
        metrics = GroupMetrics(lambda found=found: iter(found), Ends(t0=3), lambda: 1000)  # type: ignore[arg-type, misc]
        families = list(metrics.collect())
        pauses = sum(family is None for family in families)
        assert pauses == least + 1, "one more while the sums are made"
        offsets = next(family for family in families if family is not None and family.metric is names.OFFSET)
        assert len(list(offsets.samples)) == count
