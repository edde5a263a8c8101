"""Which topics a change of configurations concerns."""

from __future__ import annotations

import pytest

from odradek.controller.config_effects import MIN_IN_SYNC, topics_with_changed
from odradek.metadata.image import ClusterImage, PartitionState, Topic

STATE = PartitionState(1, 0, (1,), (1,))
Configs = dict[str, str]


def image(brokers: dict[str, Configs], **topics: Configs) -> ClusterImage:
    found = ClusterImage("c").with_topics(
        [Topic(name, name.encode() * 16, (STATE,), configs=configs) for name, configs in topics.items()]
    )
    found.broker_configs = brokers
    return found


TWO, THREE = {MIN_IN_SYNC: "2"}, {MIN_IN_SYNC: "3"}
OTHER = {"segment.bytes": "1"}


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({}, {}, []),
        ({"": TWO}, {"": TWO}, []),
        ({"": TWO}, {"": {**TWO, **OTHER}}, []),
        ({"": TWO}, {"": THREE}, ["a"]),
        ({"": TWO}, {}, ["a"]),
        ({}, {"1": TWO}, ["a"]),
        ({"1": TWO}, {"1": TWO, "2": {}}, []),
    ],
)
def test_change_of_brokers_concerns_topics_without_a_setting_of_their_own(
    before: dict[str, Configs], after: dict[str, Configs], changed: list[str]
) -> None:
    topics: dict[str, Configs] = {"a": OTHER, "b": TWO}
    found = topics_with_changed(MIN_IN_SYNC, image(before, **topics), image(after, **topics))
    assert [topic.name for topic in found] == changed


def test_change_of_a_topic_concerns_it_alone() -> None:
    before = image({}, a=TWO, b=TWO, c={}, d=TWO)
    after = image({}, a=THREE, b={**TWO, **OTHER}, c={}, d={}, new=THREE)
    assert [topic.name for topic in topics_with_changed(MIN_IN_SYNC, before, after)] == ["a", "d"]


def test_unchanged_topic_is_not_compared() -> None:
    before = image({}, a=TWO)
    after = before.with_topics([])
    assert topics_with_changed(MIN_IN_SYNC, before, after) == []
    after.broker_configs = {"": THREE}
    assert topics_with_changed(MIN_IN_SYNC, before, after) == [], "it has a setting of its own"
