"""A quorum of machines without time, disk or network of its own: a test moves each message by hand."""

from __future__ import annotations

from typing import Any

from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.effects import Answered, Effects, Event, Received, Synced, Tick
from odradek.kraft.raft.log_index import LogIndex
from odradek.kraft.raft.machine import RaftMachine
from odradek.kraft.raft.messages import Answer, Request
from odradek.kraft.raft.quorum import Identity
from odradek.kraft.raft.settings import QuorumSettings
from odradek.wire.messages.quorum_state import QuorumStateData

CLUSTER = "cluster"


class Replica:
    """Replica 1 of voters 1, 2, 3 with the default settings and no jitter; each test sets what differs."""

    def __init__(
        self,
        *,
        voters: tuple[int, ...] = (1, 2, 3),
        node: int = 1,
        log: LogIndex | None = None,
        state: QuorumStateData | None = None,
        identity: Identity | None = None,
        auto_join: bool = False,
    ) -> None:
        self.now_ms = 0.0
        self.machine = RaftMachine(
            identity or Identity(CLUSTER, node, frozenset(voters)),
            QuorumSettings(append_linger_ms=0.0, auto_join=auto_join),
            log or LogIndex(),
            state or QuorumStateData(leader_epoch=0),
            lambda: 0.0,
            0.0,
        )
        self.last = self.step(Tick())

    @property
    def role(self) -> str:
        """The name of the role."""
        return type(self.machine.quorum.role).__name__

    def step(self, event: Event) -> Effects:
        """Take an event at the present time."""
        self.last = self.machine.step(event, self.now_ms)
        return self.last

    def wait(self, time_ms: float) -> Effects:
        """Let time pass, and tick."""
        self.now_ms += time_ms
        return self.step(Tick())

    def ask(self, request: Request) -> Any:
        """The immediate answer to a request."""
        return self.step(Received(request, "token")).replies[-1].answer

    def answer(self, kind: type, answer: Answer, sender: int) -> Effects:
        """Answer the request of this kind that the last step sent to `sender`."""
        sent = next(each for each in self.last.sends if isinstance(each.request, kind) and each.to == sender)
        return self.step(Answered(sent.request_id, answer))

    def sync(self) -> Effects:
        """Sync the complete log."""
        end = self.machine.quorum.log.end
        return self.step(Synced(LogEnd(end.offset, end.epoch)))

    def sent(self, kind: type) -> list[Any]:
        """The requests of this kind of the last step."""
        return [each.request for each in self.last.sends if isinstance(each.request, kind)]
