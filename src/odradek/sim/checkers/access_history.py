"""What administrators changed of ACLs and passwords, and what brokers answered to the others."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from odradek.wire.acls import AclBinding, AclOperation, ResourceType


class Change(NamedTuple):
    """One request to change something; `value` is what is there if it took effect, None for nothing."""

    asked_at: float
    done_at: float
    value: str | None
    is_certain: bool


class Question(NamedTuple):
    """Who asked a broker for what."""

    user: str
    address: str
    operation: AclOperation
    kind: ResourceType
    name: str


class Asked(NamedTuple):
    """One request to a broker, answered or not."""

    question: Question
    broker: str
    asked_at: float


class Probe(NamedTuple):
    """A broker's decision on one request."""

    question: Question
    broker: str
    asked_at: float
    done_at: float
    informed_since: float
    """Since when every broker that decided reached the metadata store and was awake."""
    is_allowed: bool


class LoginTry(NamedTuple):
    """One login, or one request on a session that a login began (`is_session`)."""

    user: str
    password: str
    broker: str
    asked_at: float
    done_at: float
    informed_since: float
    is_accepted: bool
    is_session: bool = False


class AccessHistory:
    """What administrators changed and what others were answered."""

    __slots__ = ("acls", "asked", "final", "logins", "probes", "users")

    def __init__(self) -> None:
        self.acls: dict[AclBinding, list[Change]] = defaultdict(list)
        self.users: dict[str, list[Change]] = defaultdict(list)
        """Changes of passwords, by user."""
        self.asked: list[Asked] = []
        """Every request for a decision."""
        self.probes: list[Probe] = []
        """Those requests that were decided."""
        self.logins: list[LoginTry] = []
        self.final: dict[Question, dict[str, bool]] = {}
        """After all faults, the decision of each broker."""
