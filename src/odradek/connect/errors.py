"""What can go wrong with a connector, and what the worker does about it."""

from __future__ import annotations


class ConnectError(Exception):
    """The task cannot continue: it fails, and stays failed until it is restarted."""


class Conflict(ConnectError):
    """The state of the connector does not allow what was asked for."""


class ConfigInvalid(ConnectError):
    """A configuration has errors, one line for each setting."""

    def __init__(self, errors: dict[str, list[str]]) -> None:
        """`errors` are lines by the name of the setting."""
        super().__init__("; ".join(line for lines in errors.values() for line in lines))
        self.errors = errors


class TargetAway(ConnectError):
    """The other system does not answer, or asks to try later: the same may succeed after a pause."""


class RecordRejected(ConnectError):
    """One record cannot be converted or written, however often it is tried; `errors.tolerance` decides what follows."""

    def __init__(self, index: int, reason: str) -> None:
        """`index` is the record's place in its batch."""
        super().__init__(reason)
        self.index = index


class PositionMoved(ConnectError):
    """The target holds another position than this task's: another task has written since; read the positions again."""
