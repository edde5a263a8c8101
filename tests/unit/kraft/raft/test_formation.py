"""Which node of a list forms a new cluster."""

from __future__ import annotations

import pytest

from odradek.kraft.raft.formation import Formation, FoundNode, decide_formation

EMPTY, MEMBER = FoundNode(None), FoundNode("cluster")


@pytest.mark.parametrize(
    ("position", "others", "expected"),
    [
        (0, (EMPTY, EMPTY), Formation.FORM),
        (0, (), Formation.FORM),
        (1, (EMPTY, EMPTY), Formation.WAIT),
        (0, (EMPTY, None), Formation.WAIT),
        (0, (None, None), Formation.WAIT),
        (0, (None, MEMBER), Formation.JOIN),
        (2, (EMPTY, MEMBER), Formation.JOIN),
        (2, (None, MEMBER), Formation.JOIN),
    ],
)
def test_only_the_first_node_forms_a_cluster_and_only_among_empty_ones(
    position: int, others: tuple[FoundNode | None, ...], expected: Formation
) -> None:
    assert decide_formation(position, others) is expected


def test_first_node_that_lost_its_disk_joins_its_former_cluster() -> None:
    assert decide_formation(0, (MEMBER, None)) is Formation.JOIN
