"""`VersionedMap` beside plain dicts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.metadata.versioned_map import VersionedMap

MANY = {f"key-{number}": number for number in range(1000)}

KEYS = st.integers(0, 150).map(lambda number: f"key-{number}")
CHANGES = st.lists(
    st.tuples(st.dictionaries(KEYS, st.integers(), max_size=4), st.lists(KEYS, max_size=3), st.booleans()),
    max_size=40,
)


def equal(found: VersionedMap[str, int], model: dict[str, int]) -> bool:
    probes = {*model, *(f"key-{number}" for number in range(151))}
    return (
        len(found) == len(model)
        and all(found.get(key) == model.get(key) and (key in found) == (key in model) for key in probes)
        and all(found[key] == value for key, value in model.items())
    )


@settings(max_examples=200)
@given(st.integers(0, 150), CHANGES)
def test_every_version_keeps_its_content(size: int, changes: list[tuple[dict[str, int], list[str], bool]]) -> None:
    model = {f"key-{number}": number for number in range(size)}
    versions = [(VersionedMap(model), dict(model))]
    for entries, removed, is_walked in changes:
        found, model = versions[-1]
        model = {key: value for key, value in model.items() if key not in removed} | entries
        found = found.changed(entries, removed)
        if is_walked:
            assert dict(found.items()) == model
        versions.append((found, model))
    assert all(equal(found, model) for found, model in versions)
    assert all(dict(found) == model for found, model in versions)


@settings(max_examples=200)
@given(st.integers(0, 150), CHANGES, st.data())
def test_no_change_between_two_versions_is_missed(
    size: int, changes: list[tuple[dict[str, int], list[str], bool]], data: st.DataObject
) -> None:
    versions = [VersionedMap({f"key-{number}": number for number in range(size)})]
    for entries, removed, _ in changes:
        versions.append(versions[-1].changed(entries, removed))
    before, after = data.draw(st.sampled_from(versions)), data.draw(st.sampled_from(versions))
    found = after.keys_changed_since(before)
    missing = object()
    differing = {key for key in {*before, *after} if before.get(key, missing) != after.get(key, missing)}
    assert differing <= set(found)


def test_versions_that_follow_each_other_name_only_what_changed() -> None:
    first = VersionedMap(MANY)
    second = first.changed({"key-1": 0, "new": 1}, ["key-2", "missing"])
    third = second.changed({"key-3": 0})
    assert list(second.keys_changed_since(first)) == ["key-2", "missing", "key-1", "new"]
    assert list(third.keys_changed_since(second)) == ["key-3"]
    assert list(third.keys_changed_since(first)) == ["key-2", "missing", "key-1", "new", "key-3"]
    assert list(third.keys_changed_since(third)) == []


def test_a_version_that_was_walked_still_names_only_what_changed() -> None:
    first = VersionedMap(MANY)
    second = first.changed({"key-1": 0})
    assert len(list(second)) == 1000
    third = second.changed({"key-2": 0})
    assert list(third.keys_changed_since(first)) == ["key-1", "key-2"]


def test_many_changes_later_few_keys_are_named() -> None:
    first = found = VersionedMap(MANY)
    for number in range(30):
        found = found.changed({f"key-{number}": -1})
    assert set(found.keys_changed_since(first)) == {f"key-{number}" for number in range(30)}


def test_keys_keep_the_order_in_which_they_were_added() -> None:
    found = VersionedMap(MANY).changed({"b": 1}).changed({"a": 1, "key-5": 0}, ["key-7"])
    assert list(found) == [*(key for key in MANY if key != "key-7"), "b", "a"]


def test_equal_content_is_equal() -> None:
    found = VersionedMap(MANY).changed({"b": 1})
    assert found == VersionedMap({**MANY, "b": 1})
    assert found == {**MANY, "b": 1}
    assert found != MANY
    assert found != 1


def test_a_key_that_is_removed_is_missing() -> None:
    found = VersionedMap(MANY).changed({}, ["key-1"])
    assert found.get("key-1", -1) == -1
    assert "key-1" not in found
    with pytest.raises(KeyError):
        found["key-1"]
