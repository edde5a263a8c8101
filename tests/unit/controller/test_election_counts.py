"""Which steps from one image to the next count as elections, and which of these as unclean."""

from __future__ import annotations

import pytest

from odradek.controller.election_counts import ElectionCounts
from odradek.metadata.image import NO_LEADER, ClusterImage, PartitionState, Topic

STATE = PartitionState(1, 4, (1, 2, 3), (1, 2))


def image(*states: PartitionState, name: str = "m") -> ClusterImage:
    return ClusterImage().with_topics([Topic(name, name.encode() * 16, states)])


@pytest.mark.parametrize(
    ("before", "after", "elected", "unclean"),
    [
        (STATE, STATE._replace(partition_epoch=9, isr=(1,)), 0, 0),
        (STATE, STATE._replace(leader=2), 1, 0),
        (STATE, STATE._replace(leader=3), 1, 1),
        (STATE._replace(elr=(3,)), STATE._replace(leader=3), 1, 0),
        (STATE, STATE._replace(leader=NO_LEADER), 0, 0),
        (STATE._replace(leader=NO_LEADER), STATE, 1, 0),
        (STATE._replace(leader=NO_LEADER, isr=()), STATE, 1, 1),
    ],
)
def test_leader_that_was_not_in_sync_is_an_unclean_election(
    before: PartitionState, after: PartitionState, elected: int, unclean: int
) -> None:
    counts = ElectionCounts()
    assert (counts.elected, counts.unclean) == (0, 0)
    counts.add(image(before), image(after))
    assert (counts.elected, counts.unclean) == (elected, unclean)


def test_elections_add_up_and_new_partitions_have_none() -> None:
    counts = ElectionCounts()
    moved, unclean = STATE._replace(leader=2), STATE._replace(leader=3)
    counts.add(image(), image(STATE, STATE, STATE))
    assert (counts.elected, counts.unclean) == (0, 0)
    counts.add(image(STATE, STATE, STATE), image(STATE, moved, unclean, STATE))
    counts.add(image(STATE, STATE, STATE), image(unclean, STATE, moved))
    assert (counts.elected, counts.unclean) == (4, 2)


def test_partition_whose_leader_stays_hides_no_election_of_the_next() -> None:
    counts = ElectionCounts()
    counts.add(image(STATE, STATE), image(STATE._replace(isr=(1,)), STATE._replace(leader=2)))
    assert (counts.elected, counts.unclean) == (1, 0)
