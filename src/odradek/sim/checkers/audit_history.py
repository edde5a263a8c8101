"""What the audit topic had in the end, and what brokers lost of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Instance = tuple[int, int]
"""A broker and when it started."""


class AuditEvent(NamedTuple):
    """One event, in the topic or in the memory of a broker."""

    at: float
    """When it was made, in seconds of the run."""
    broker: int
    started_ms: int
    sequence: int
    fields: Mapping[str, Any]

    @property
    def instance(self) -> Instance:
        """The process that made it."""
        return self.broker, self.started_ms

    def __str__(self) -> str:
        return f"event {self.sequence} of broker {self.broker} at {self.at:.3f}"


class AuditHistory:
    """What the audit topic had in the end, and what brokers lost."""

    __slots__ = ("known_until", "left", "lost", "passwords", "topic")

    def __init__(self) -> None:
        self.topic: list[AuditEvent] = []
        """In the order of offsets."""
        self.left: list[AuditEvent] = []
        """Events that waited in brokers when these were killed."""
        self.lost: dict[Instance, int] = {}
        """Losses that queues have counted."""
        self.known_until = 0.0
        """Until when all events are in the topic; 0.0 for a run without an audit."""
        self.passwords: tuple[bytes, ...] = ()
        """What no event may contain."""
