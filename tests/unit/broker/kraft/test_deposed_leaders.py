"""Which brokers may act as the leader of a partition, though another one has been elected since."""

from __future__ import annotations

import pytest

from odradek.broker.kraft.deposed_leaders import DeposedLeaders
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic

SELF = 3
SESSION = 9.0
ID = b"t" * 16
PLACE = (ID, 0)


def led(
    leader: int, epoch: int, replicas: tuple[int, ...] = (1, 2, SELF), fenced: tuple[int, ...] = (), topic: bytes = ID
) -> ClusterImage:
    """One partition of this state."""
    brokers = {i: Broker(i, 10 + i, None, {}, fenced=i in fenced) for i in (1, 2, SELF, 4)}
    states = (PartitionState(leader, epoch, replicas, replicas),)
    return ClusterImage("c").with_brokers(brokers).with_topics([Topic("t", topic, states)])


class Followed:
    """What a broker knows that has followed these images, one in each second."""

    def __init__(self, *images: ClusterImage) -> None:
        self.now = 100.0
        self.deposed = DeposedLeaders(SELF, lambda: self.now, lambda: SESSION)
        self.image = ClusterImage("c")
        for each in images:
            self.follow(each)

    def follow(self, image: ClusterImage) -> None:
        self.now += 1.0
        self.deposed.follow(self.image, image)
        self.image = image

    def acting(self, place: tuple[bytes, int] = PLACE) -> set[int]:
        return self.deposed.acting(place, self.image)


CREATED = led(1, 0)


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        ([CREATED, led(2, 1)], {1}),
        ([CREATED, led(2, 1), led(SELF, 2)], {1, 2}),
        ([CREATED, led(2, 1), led(SELF, 2, fenced=(2,))], {1}),
        ([CREATED, led(2, 1, fenced=(1,)), led(SELF, 2)], {2}),
        ([CREATED, led(2, 1), led(2, 1, fenced=(1,)), led(SELF, 2, fenced=(1,))], {2}),
        ([led(4, 0, (4, SELF)), led(2, 1, (2, 4, SELF)), led(SELF, 2, (2, SELF))], {4, 2}),
        ([CREATED, led(2, 1), led(NO_LEADER, 2, fenced=(2,)), led(SELF, 3, fenced=(2,))], {1}),
        ([CREATED, led(SELF, 1), led(SELF, 2)], {1}),
    ],
    ids=[
        "the former one",
        "two that were deposed one after the other",
        "the one before a fenced one",
        "deposed and fenced together",
        "fenced later",
        "not a replica any longer",
        "without a leader between",
        "next epoch of the same leader",
    ],
)
def test_leaders_act_until_they_are_fenced(images: list[ClusterImage], expected: set[int]) -> None:
    assert Followed(*images).acting() == expected


def test_leaders_before_the_start_of_this_broker_may_act() -> None:
    """Its first image has a leader that may have been elected, and not have begun, just before."""
    assert Followed(led(2, 5), led(SELF, 6, fenced=(2,))).acting() == {1}


def test_leader_acts_no_longer_than_a_session() -> None:
    followed = Followed(CREATED, led(2, 1))
    followed.now += SESSION - 1.5
    followed.follow(led(2, 1))
    assert followed.acting() == {1}
    followed.follow(led(SELF, 2))
    assert followed.acting() == {2}


def test_leader_of_a_deleted_topic_does_not_count_for_the_next_one() -> None:
    followed = Followed(CREATED, led(2, 1), led(1, 0, topic=b"u" * 16), led(SELF, 1, topic=b"u" * 16))
    assert followed.acting((b"u" * 16, 0)) == {1}


def test_partition_of_others_costs_nothing() -> None:
    assert not Followed(led(1, 0, (1, 2)), led(2, 1, (1, 2))).acting()


def test_leaders_that_ended_do_not_act() -> None:
    followed = Followed(CREATED, led(SELF, 1))
    followed.deposed.ended(PLACE)
    assert not followed.acting()
    followed.follow(led(2, 2))
    followed.follow(led(SELF, 3))
    assert followed.acting() == {2}
