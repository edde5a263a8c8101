"""What other programs use of the machine while the bench measures, and which version it measures.

The kernel's load average lags by a minute and counts the bench's own processes, so that it says little between two
runs. Here it is the processor time of the whole machine (`/proc/stat`, stolen time included) less that of this process
and its ended children, in cores: 0.5 is half of one core.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
HISTORY: Final = "bench/history.jsonl"
"""Each recorded run changes it, which makes the next run no other version."""
LIMIT_CORES: Final = 0.3
"""What other programs may use without a mark on the figures. Kernel threads that write pages back count as others."""
LOOK_SECONDS: Final = 2.0
_IDLE_FIELDS: Final = (3, 4)
_COUNTED_FIELDS: Final = 8
"""user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user."""


class Processors(NamedTuple):
    """Processor seconds since a time in the past: of the machine, and of this process with its ended children."""

    at: float
    machine: float
    own: float


def busy_seconds(stat: str) -> float:
    """Processor seconds of the machine, from the text of /proc/stat."""
    fields = [int(text) for text in stat.split("\n", 1)[0].split()[1 : 1 + _COUNTED_FIELDS]]
    return sum(ticks for i, ticks in enumerate(fields) if i not in _IDLE_FIELDS) / os.sysconf("SC_CLK_TCK")


def look() -> Processors:
    """The present counts."""
    return Processors(time.monotonic(), busy_seconds(Path("/proc/stat").read_text()), sum(os.times()[:4]))


def others_between(before: Processors, after: Processors) -> float:
    """Cores that other programs used between two looks. All children must have ended before the second one."""
    used = (after.machine - before.machine) - (after.own - before.own)
    return max(0.0, used / (after.at - before.at))


def others_now() -> float:
    """Cores that other programs use, over a while in which this one waits."""
    before = look()
    time.sleep(LOOK_SECONDS)
    return others_between(before, look())


class RunLoad(NamedTuple):
    """What other programs used before a run and during it, in cores."""

    run: str
    before: float
    during: float

    @property
    def most(self) -> float:
        """The larger one of both."""
        return max(self.before, self.during)


def load_line(others: float) -> str:
    """One line about the machine: what is printed before each run."""
    return f"other programs use {others:.2f} of {os.cpu_count()} cores (load average {os.getloadavg()[0]:.1f})"


def too_busy(others: float, limit: float) -> str | None:
    """Why no run should begin now; None if it may."""
    if others <= limit:
        return None
    return (
        f"{load_line(others)}, more than {limit:g}: figures would say more about them than about the brokers. "
        "Wait, raise --load-limit, or run all the same with --any-load, which marks the figures"
    )


def commit_id() -> str:
    """The commit of the checkout, with `-dirty` if files but the history differ; `unknown` outside a repository."""
    found = _git("rev-parse", "--short=10", "HEAD")
    if found is None:
        return "unknown"
    return (
        f"{found}-dirty" if _git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{HISTORY}") else found
    )


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def is_optimised(config_arguments: str) -> bool:
    """Whether an interpreter was built with `--enable-optimizations`, by the arguments of its configure script."""
    return "--enable-optimizations" in config_arguments


def machine() -> dict[str, object]:
    """What kind of machine and interpreter measured: figures of different ones are not compared."""
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpus": os.cpu_count(),
        "model": model[1] if model else platform.machine(),
        "platform": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "optimised": is_optimised(sysconfig.get_config_var("CONFIG_ARGS") or ""),
    }
