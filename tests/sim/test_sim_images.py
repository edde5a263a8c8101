"""The images of simulated clusters, as differences in the records of KRaft."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.record_controller import RecordController
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.difference import difference
from odradek.metadata.kraft.replay import replay
from odradek.ports.randomness import SeededRandom
from odradek.sim.run import run_seed
from tests.unit.metadata.kraft.contents import content, through_bytes

CONFIG = BrokerConfig({"min.insync.replicas": "2"})
Steps = list[tuple[ClusterImage, ClusterImage]]


@pytest.fixture(scope="module")
def steps() -> Steps:
    """Each change of a broker's image in a simulated cluster: the image before and after it."""
    found: Steps = []
    publish = ClusterView.publish

    async def recorded(self: ClusterView, image: ClusterImage, **options: Any) -> None:
        found.append((self.image, image))
        await publish(self, image, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterView, "publish", recorded)
        outcome = run_seed(2, "cluster", safety_seconds=5)
    assert outcome.violation == ""
    return found


def test_replayed_difference_is_each_next_image(steps: Steps) -> None:
    kinds: set[str] = set()
    for before, after in steps:
        records = difference(before, after)
        kinds.update(type(record).__name__ for record in records)
        assert content(replay(through_bytes(records), before)) == content(after)
        assert content(replay(difference(ClusterImage(), after), ClusterImage())) == content(after)
    assert {"TopicRecord", "PartitionRecord", "PartitionChangeRecord", "RegisterBrokerRecord"} <= kinds


def test_controller_on_records_decides_the_same_on_replayed_images(steps: Steps) -> None:
    changed = 0
    for _, image in steps[::2]:
        # A failed directory is in records as one that the broker has not registered; simulated brokers have no ids.
        topics = [
            topic._replace(partitions=tuple(state._replace(offline_replicas=()) for state in topic.partitions))
            for topic in image.topics.values()
        ]
        known = image.with_topics(topics)
        replayed = replay(through_bytes(difference(ClusterImage(), known)), ClusterImage())
        for broker_id in image.brokers:
            outcomes = []
            for each in (known, replayed):
                controller = RecordController(each, CONFIG, SeededRandom(1))
                begun = controller.begin()
                fenced = controller.fence_brokers([broker_id])
                outcomes.append((content(begun.image), content(fenced.image), sorted(fenced.replies)))
            assert outcomes[0] == outcomes[1]
            changed += len(outcomes[0][2])
    assert changed > 0
