"""What differs between two images, topic by topic and partition by partition."""

from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.metadata.topic_changes import deleted_topics, partition_changes, topic_changes
from tests.unit.metadata.images import with_partition

STATE = PartitionState(1, 0, (1,), (1,))
LED = STATE._replace(leader_epoch=1)


def topic(number: int, *, topic_id: int | None = None, partitions: int = 2) -> Topic:
    return Topic(f"topic-{number}", (topic_id or number).to_bytes(16, "big"), (STATE,) * partitions)


IMAGE = ClusterImage().with_topics(topic(number) for number in range(1, 200))


def test_only_the_partition_that_changed_is_named() -> None:
    after = with_partition(IMAGE, "topic-7", 1, LED)
    (change,) = partition_changes(IMAGE, after)
    assert (change.topic.name, change.partition, change.before, change.state) == ("topic-7", 1, STATE, LED)
    assert topic_changes(after, after) == []


def test_a_topic_that_was_created_again_is_deleted_and_new() -> None:
    again = topic(7, topic_id=1007)
    after = IMAGE.with_topic(again)
    assert topic_changes(IMAGE, after) == [(IMAGE.topics["topic-7"], None), (None, again)]
    assert deleted_topics(IMAGE, after) == [IMAGE.topics["topic-7"]]
    assert [(each.partition, each.before) for each in partition_changes(IMAGE, after)] == [(0, None), (1, None)]


def test_deleted_topics_come_first() -> None:
    after = IMAGE.with_topic(topic(500)).without_topics(["topic-3"])
    assert [before is not None for before, _ in topic_changes(IMAGE, after)] == [True, False]
    assert [each.topic.name for each in partition_changes(IMAGE, after)] == ["topic-500"] * 2


def test_added_partitions_have_no_state_before() -> None:
    grown = IMAGE.topics["topic-9"]
    after = IMAGE.with_topic(grown._replace(partitions=(STATE, LED, STATE)))
    assert [(each.partition, each.before) for each in partition_changes(IMAGE, after)] == [(1, STATE), (2, None)]


def test_images_that_have_nothing_in_common_are_compared() -> None:
    other = ClusterImage().with_topics(topic(number) for number in range(2, 201))
    changes = topic_changes(IMAGE, other)
    assert changes[0] == (IMAGE.topics["topic-1"], None)
    assert (None, other.topics["topic-200"]) in changes
