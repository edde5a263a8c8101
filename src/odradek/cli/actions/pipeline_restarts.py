"""When `odradek pipeline run` starts a failed pipeline again, with another Spark.

The process replaces itself, so that a service manager sees one process and its signals arrive; Java ends with the pipe
to it. The environment carries the number of failures in a row.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.cli.arguments.errors import CommandError

FAILURES_VARIABLE: Final = "ODRADEK_PIPELINE_FAILURES"
"""Failures in a row before this start."""
MOST_S: Final = 300.0
STEADY_S: Final = 600.0
"""A pipeline that ran for so long had started well: its failure is the first in a row."""
SLOW_STARTS: Final = 3
"""So often a pipeline is started again that Spark gave no time to start, without --restarts, too."""
SLOW_START: Final = "failed to connect back"
"""Spark gives its Python processes ten seconds, however busy the machine is, and says this."""


class FailedAtStop(CommandError):
    """The failure of a pipeline that was asked to stop, which is not started again."""


class Restart(NamedTuple):
    """A start after a failure."""

    failures: int
    """Failures in a row."""
    pause_s: float
    allowed: int

    def line(self) -> str:
        """The line that is printed meanwhile."""
        return f"restart {self.failures} of {self.allowed} in {self.pause_s:g} s"


def next_restart(reason: str, ran_s: float, restarts: int, backoff_s: float, earlier: int) -> Restart | None:
    """The next start of a pipeline that failed after `ran_s` seconds, or None; `earlier` failures came before it.

    The pause doubles from `backoff_s` up to five minutes.
    """
    failures = 1 if ran_s >= STEADY_S else earlier + 1
    allowed = max(restarts, SLOW_STARTS) if SLOW_START in reason else restarts
    if failures > allowed:
        return None
    return Restart(failures, min(MOST_S, backoff_s * 2 ** (failures - 1)), allowed)


def earlier_failures(environment: Mapping[str, str]) -> int:
    """Failures in a row before this start."""
    text = environment.get(FAILURES_VARIABLE, "0")
    return int(text) if text.isdecimal() else 0


def start_again(failures: int) -> None:
    """Replace this process by the same command. Raises OSError."""
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, FAILURES_VARIABLE: str(failures)}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - our own command
