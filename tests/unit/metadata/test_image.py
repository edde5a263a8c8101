from odradek.metadata.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from tests.unit.metadata.images import with_partition, without_broker

STATE = PartitionState(1, 0, (1,), (1,))


def topic(name: str, number: int, partitions: int = 1) -> Topic:
    return Topic(name, bytes([number]) * 16, (STATE,) * partitions)


def test_a_change_leaves_the_image_before_as_it_was() -> None:
    first = ClusterImage("c")
    second = first.with_topics([topic("a", 1), topic("b", 2)])
    third = second.without_topics(["a"])
    assert (first.version, second.version, third.version) == (0, 1, 2)
    assert (set(first.topics), set(second.topics), set(third.topics)) == (set(), {"a", "b"}, {"b"})
    assert second.topic_by_id(bytes([1]) * 16) is second.topics["a"]
    assert third.topic_by_id(bytes([1]) * 16) is None


def test_what_does_not_change_is_shared() -> None:
    image = ClusterImage().with_topics([topic("a", 1), topic("b", 2)]).with_broker(Broker(1, 1, None, {}))
    changed = with_partition(image, "a", 0, STATE._replace(leader_epoch=1))
    assert changed.topics["b"] is image.topics["b"]
    assert changed.topic_names is image.topic_names
    assert changed.brokers is image.brokers
    assert changed.topics["a"].partitions[0].leader_epoch == 1
    assert image.topics["a"].partitions[0].leader_epoch == 0


def test_a_topic_recreated_under_its_name_loses_its_old_id() -> None:
    image = ClusterImage().with_topic(topic("a", 1)).with_topic(topic("a", 2))
    assert image.topic_names == {bytes([2]) * 16: "a"}


def test_partitions_are_found_or_none() -> None:
    image = ClusterImage().with_topic(topic("a", 1, 2))
    assert image.partition("a", 1) is not None
    assert image.partition("a", 2) is None
    assert image.partition("a", -1) is None
    assert image.partition("b", 0) is None


def test_fenced_brokers_are_not_live() -> None:
    here = {"PLAINTEXT": Endpoint("h", 1, "PLAINTEXT")}
    image = ClusterImage().with_broker(Broker(2, 1, None, here)).with_broker(Broker(1, 1, None, here, fenced=True))
    assert [broker.id for broker in image.live_brokers()] == [2]
    assert without_broker(image, 2).live_brokers() == []


def test_empty_configs_are_no_configs() -> None:
    image = ClusterImage().with_broker_configs("1", {"a": "b"}).with_group_configs("g", {"c": "d"})
    assert image.with_broker_configs("1", {}).broker_configs == {}
    assert image.with_group_configs("g", {}).group_configs == {}
    assert image.with_topic(topic("a", 1)).with_topic_configs("a", {"x": "y"}).topic_configs("a") == {"x": "y"}
    assert image.topic_configs("none") == {}
