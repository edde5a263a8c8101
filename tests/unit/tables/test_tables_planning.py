"""What a batch changes, and that every record appears once, whatever crashes and whoever else writes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.tables.planning import Decoded, Rules, changes, wanted_columns


def record(offset: int, row: dict[str, Any] | None, partition: int = 0, *, tombstone: bool = False) -> Decoded:
    return Decoded(partition, offset, 0, None, None, row, tombstone, "" if row is not None else "not JSON")


def test_last_record_of_a_key_replaces_and_null_deletes() -> None:
    records = [
        record(0, {"k": "a", "n": 1}),
        record(1, {"k": "b", "n": 2}),
        record(2, {"k": "a", "n": 3}),
        record(3, {"k": "b"}, tombstone=True),
    ]
    made = changes({"k": "string", "n": "bigint"}, records, Rules(("k",)), {})
    assert (made.rows, made.deleted, made.bad) == ([{"k": "a", "n": 3}], [{"k": "b"}], [])


def test_appended_tombstone_is_a_row() -> None:
    made = changes({"k": "string"}, [record(0, {"k": "a"}, tombstone=True)], Rules(), {})
    assert made.rows == [{"k": "a"}]


def test_record_without_its_key_is_bad_and_adds_no_column() -> None:
    records = [record(0, {"k": None, "n": 1})]
    assert wanted_columns({"k": "string"}, records, Rules(("k",))) == {}
    made = changes({"k": "string"}, records, Rules(("k",)), {})
    assert made.bad[0].reason == "the key has no k: rows are replaced by it"


def test_bad_records_that_are_in_their_table_are_not_repeated() -> None:
    made = changes({}, [record(4, None), record(5, None)], Rules(), {0: 5})
    assert [each.record.offset for each in made.bad] == [5]


@pytest.mark.parametrize(("new_fields", "columns", "rows"), [("add", {"a": "bigint"}, 0), ("drop", {}, 1)])
def test_new_fields_become_columns_or_are_dropped(new_fields: str, columns: dict[str, str], rows: int) -> None:
    rules = Rules((), new_fields)
    assert wanted_columns({}, [record(0, {"a": 1})], rules) == columns
    assert len(changes({}, [record(0, {"a": 1})], rules, {}).rows) == rows


class Tables:
    """A table and that of its bad records, with the rules of commits: a model of `DeltaStore.write`."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.positions = {0: 0, 1: 0}
        self.bad_positions: dict[int, int] = {}
        self.rows: list[tuple[int, int]] = []
        self.bad: list[tuple[int, int]] = []

    def write(self, held: dict[int, int], records: list[Decoded], ends: dict[int, int]) -> Iterator[None]:
        """Commit a batch; a crash or another runner may come at each yield. Ends early if another one was faster."""
        kinds = dict(self.kinds)
        if any(self.positions[each] != held[each] for each in ends):
            return
        yield
        wanted = wanted_columns(kinds, records, Rules())
        if wanted:
            if self.kinds != kinds:
                return
            self.kinds |= wanted
            kinds |= wanted
        yield
        bad_positions = dict(self.bad_positions)
        made = changes(kinds, records, Rules(), bad_positions)
        yield
        if made.bad:
            if self.bad_positions != bad_positions:
                return
            self.bad += [(each.record.partition, each.record.offset) for each in made.bad]
            self.bad_positions |= {each: max(end, bad_positions.get(each, 0)) for each, end in ends.items()}
        yield
        if self.kinds == kinds and all(self.positions[each] == held[each] for each in ends):
            self.rows += [divmod(each["id"], 100) for each in made.rows]
            self.positions |= ends


FIELDS = st.sampled_from([None, {}, {"x": 1}, {"x": "a"}, {"x": 1}, {"x": "a"}, {"y": True}])
LOGS = st.lists(st.tuples(st.integers(0, 1), FIELDS), min_size=2, max_size=8)
BATCH = st.tuples(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.booleans(), st.integers(0, 6))
"""Records of each partition at most, whether the second partition comes first, steps before a crash."""
ATTEMPTS = st.lists(st.tuples(BATCH, st.none() | st.tuples(st.integers(0, 4), BATCH)), max_size=6)
"""Batches, and rivals that come after a step with one of their own."""


class Runner:
    """Writes a log into tables, by attempts that may be interrupted."""

    def __init__(self, tables: Tables, logs: dict[int, list[Decoded]]) -> None:
        self.tables = tables
        self.logs = logs

    def attempt(self, sizes: tuple[int, int], *, is_turned: bool = False) -> Iterator[None]:
        """One batch from the table's positions."""
        held = dict(self.tables.positions)
        parts = {each: records[held[each] : held[each] + sizes[each]] for each, records in self.logs.items()}
        records = [each for number in sorted(parts, reverse=is_turned) for each in parts[number]]
        return self.tables.write(held, records, {each: held[each] + len(part) for each, part in parts.items()})

    def run(self, batch: tuple[tuple[int, int], bool, int]) -> Iterator[None]:
        """One batch up to its crash."""
        sizes, is_turned, steps = batch
        yield from itertools.islice(self.attempt(sizes, is_turned=is_turned), steps)


@given(LOGS, ATTEMPTS)
@settings(max_examples=200, deadline=None)
def test_every_record_appears_once_through_crashes_and_rivals(log: list[Any], attempts: list[Any]) -> None:
    """Two runners with batches of their own size and order, each killed at any step."""
    logs: dict[int, list[Decoded]] = {0: [], 1: []}
    for partition, fields in log:
        offset = len(logs[partition])
        row = None if fields is None else {**fields, "id": partition * 100 + offset}
        logs[partition].append(record(offset, row, partition))
    runner = Runner(Tables(), logs)
    for batch, rival in attempts:
        for step, _ in enumerate(runner.run(batch)):
            if rival is not None and rival[0] == step:
                list(runner.run(rival[1]))
    list(runner.attempt((len(log), len(log))))
    everything = sorted((each.partition, each.offset) for records in logs.values() for each in records)
    assert sorted(runner.tables.rows + runner.tables.bad) == everything
