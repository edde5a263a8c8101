"""Elections of a quorum as metrics show them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.broker.observability.quorum_metrics import QuorumFigures
from odradek.broker.quorum.quorum_state import QuorumState


class World:
    """The replica of controller 1, and a clock of the test."""

    def __init__(self) -> None:
        self.seconds = 100.0
        log = SimpleNamespace(end_offset=9, end=SimpleNamespace(epoch=3))
        quorum = SimpleNamespace(role=object(), voted=SimpleNamespace(node_id=-1), epoch=3, log=log)
        replica: Any = SimpleNamespace(
            machine=SimpleNamespace(quorum=quorum), leader=SimpleNamespace(leader_id=-1), known_high_watermark=None
        )
        part = SimpleNamespace(current_voters=(), observers=())
        described = SimpleNamespace(topics=[SimpleNamespace(partitions=[part])])
        raft: Any = SimpleNamespace(describe=lambda *_: described)
        metadata: Any = SimpleNamespace(end_offset=5)
        clock: Any = SimpleNamespace(monotonic=lambda: self.seconds, now_ms=lambda: 0)
        self.state = QuorumState(replica, raft, metadata, clock, 1000)

    def note(self, seconds: float, leader_id: int) -> QuorumFigures:
        self.seconds += seconds
        self.state.note_leader(leader_id)
        return self.state.figures()


def elections(figures: QuorumFigures) -> tuple[int, float, float]:
    return figures.elections, figures.mean_election_ms, figures.longest_election_ms


def test_election_lasts_from_the_loss_of_a_leader_to_the_next_one() -> None:
    world = World()
    assert elections(world.state.figures()) == (0, 0.0, 0.0)
    assert elections(world.note(2.0, 1)) == (1, 2000.0, 2000.0)
    assert elections(world.note(50.0, -1)) == (1, 2000.0, 2000.0)
    assert elections(world.note(0.5, -1)) == (1, 2000.0, 2000.0), "another epoch without a leader"
    assert elections(world.note(0.5, 2)) == (2, 1500.0, 2000.0)
    assert elections(world.note(8.0, 3)) == (3, 1000.0, 2000.0), "a leader that follows at once"


def test_controller_with_id_zero_is_a_leader() -> None:
    assert elections(World().note(2.0, 0)) == (1, 2000.0, 2000.0)
