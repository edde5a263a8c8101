"""Directories that brokers have reported as failed are remembered when the image is loaded again."""

from __future__ import annotations

from odradek.broker.cluster.controller import _with_offline
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic


def cluster(*offline: tuple[int, ...], epochs: tuple[int, ...] = (11, 12), topic_id: bytes = b"t" * 16) -> ClusterImage:
    """Topic t, of which each partition has these replicas offline, and brokers 1, 2 with these registrations."""
    states = tuple(PartitionState(1, 4, (1, 2), (1,), offline_replicas=each) for each in offline)
    brokers = {index: Broker(index, epoch, None, {}) for index, epoch in enumerate(epochs, 1)}
    return ClusterImage("c").with_brokers(brokers).with_topics([Topic("t", topic_id, states)])


def offline_in(image: ClusterImage) -> list[tuple[int, ...]]:
    return [state.offline_replicas for state in image.topics["t"].partitions]


def test_failed_directories_of_the_same_registration_are_kept() -> None:
    loaded = cluster((), (), ())
    assert offline_in(_with_offline(loaded, cluster((2,), (), (1, 2)))) == [(2,), (), (1, 2)]


def test_failed_directories_of_another_registration_are_dropped() -> None:
    loaded = cluster((), (), epochs=(11, 99))
    assert offline_in(_with_offline(loaded, cluster((2,), (1, 2)))) == [(), (1,)]
    assert offline_in(_with_offline(cluster((), epochs=(11,)), cluster((2,)))) == [()]
    assert offline_in(_with_offline(cluster(()), cluster((2,), epochs=(11,)))) == [()]


def test_image_without_failed_directories_stays_the_same() -> None:
    loaded = cluster((), ())
    assert _with_offline(loaded, cluster((), ())) is loaded
    assert _with_offline(loaded, ClusterImage("c")) is loaded


def test_topic_of_another_id_has_no_failed_directories() -> None:
    loaded = cluster((), topic_id=b"u" * 16)
    assert offline_in(_with_offline(loaded, cluster((2,)))) == [()]


def test_partitions_that_were_added_or_are_missing_do_no_harm() -> None:
    assert offline_in(_with_offline(cluster((), (), ()), cluster((2,)))) == [(2,), (), ()]
    assert offline_in(_with_offline(cluster(()), cluster((2,), (1,), (2,)))) == [(2,)]
