"""The first start of a quorum whose machines have the same list of nodes and empty directories. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple


class Formation(Enum):
    """What a node with an empty directory does next."""

    WAIT = auto()
    """Ask the listed nodes again."""
    FORM = auto()
    """Format the directory with a new cluster id and this node as the only voter (`storage format --standalone`)."""
    JOIN = auto()
    """Format it with the cluster id of the others and no voters; auto.join then makes this node a voter."""


class FoundNode(NamedTuple):
    """The answer of another listed node. A node with an empty directory answers that it has no cluster."""

    cluster_id: str | None


def decide_formation(position: int, others: Sequence[FoundNode | None]) -> Formation:
    """What the node at this position of the list does; `others` are the answers so far, None without one.

    Only the first listed node forms a cluster, and only when all other listed nodes have answered that they have none.
    All others wait for a cluster and join it, so that one voter set grows, one voter at a time (KIP-853, KIP-1186).

    A node that loses its disk has an empty directory again. If it is the first one, some other node holds the cluster:
    that node answers with the cluster id, and the first one joins. While any listed node is silent, the first one
    waits, for the silent node may be the last one that holds the cluster: a majority of empty answers does not suffice.
    The new disk has another directory id. Therefore it does not vote in the place of the former one, and auto.join
    removes the former entry before it adds the new one.

    A new cluster thus needs all listed machines once. Later starts read formatted directories and do not ask.
    """
    if any(each is not None and each.cluster_id is not None for each in others):
        return Formation.JOIN
    is_empty = all(each is not None for each in others)
    return Formation.FORM if position == 0 and is_empty else Formation.WAIT
