"""The images of simulated clusters, as differences in the records of KRaft."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.difference import difference
from odradek.metadata.kraft.replay import replay
from odradek.sim.run import run_seed
from tests.unit.metadata.kraft.contents import content, through_bytes


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ClusterImage, ClusterImage]]:
    """Each change of a broker's image: the image before and after it."""
    found: list[tuple[ClusterImage, ClusterImage]] = []
    publish = ClusterView.publish

    async def recorded(self: ClusterView, image: ClusterImage, **options: Any) -> None:
        found.append((self.image, image))
        await publish(self, image, **options)

    monkeypatch.setattr(ClusterView, "publish", recorded)
    return found


def test_replayed_difference_is_each_next_image(steps: list[tuple[ClusterImage, ClusterImage]]) -> None:
    outcome = run_seed(2, "cluster", safety_seconds=5)
    assert outcome.violation == ""
    kinds: set[str] = set()
    for before, after in steps:
        records = difference(before, after)
        kinds.update(type(record).__name__ for record in records)
        assert content(replay(through_bytes(records), before)) == content(after)
        assert content(replay(difference(ClusterImage(), after), ClusterImage())) == content(after)
    assert {"TopicRecord", "PartitionRecord", "PartitionChangeRecord", "RegisterBrokerRecord"} <= kinds
