"""A reason why a cluster is not in order."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple


class Severity(IntEnum):
    """How bad a problem is; a larger number is worse."""

    OK = 0
    """All is well."""
    WARNING = 1
    """Something has less redundancy or room than it should."""
    CRITICAL = 2
    """Clients cannot use something."""


class HealthProblem(NamedTuple):
    """A reason why a cluster is not in order."""

    check: str
    severity: Severity
    reason: str
    number: int
    """How many partitions, brokers or directories it concerns."""
    examples: tuple[str, ...]
    """The first of their names."""

    def row(self) -> dict[str, Any]:
        """The problem as a row of a table."""
        return {**self._asdict(), "severity": self.severity.name.lower(), "examples": list(self.examples)}
