"""./dev bench metrics-cost: what metrics cost per request, beside the same sources without their counters.

A copy of the sources lacks each statement that counts or times a request, or counts a topic's traffic. `./dev bench
requests` measures both in turns, each in new processes, and this prints the differences; further arguments are those
of that command. A statement that is no longer in the sources ends the run: the list below has to follow them.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.request_cost import main as measure_requests

SOURCES = Path(__file__).parents[1] / "src"
_DISPATCH = (
    ("            started = self._now()\n            size", "            started = 0.0\n            size"),
    ("            counters.bytes_in += size\n", ""),
    ("            took = self._now() - started\n", "            took = 0.0\n"),
    (
        """\
                timing = (context, key, self.slow, self._now, started + took, took)
                answer.timing = tuple.__new__(RequestTiming, timing)
""",
        "",
    ),
    (
        """\
            counters.immediate[0 if took <= FIRST_BOUND else bisect_left(BOUNDS, took)] += 1
            counters.immediate_s += took
            if took >= self.slow.least_s:
                self.slow.took(context, key, took)
""",
        "",
    ),
)
_APPEND = (
    ("        traffic = self.traffic\n        traffic.produces += 1\n", ""),
    ("            traffic.bytes_in += size\n", ""),
    ("            traffic.messages_in += last_offset - first_offset + 1\n", ""),
)
_FETCH = (
    (
        """\
            if partition is not None:
                traffic = partition.traffic
                traffic.fetches += 1
                if read is None:
                    traffic.failed_fetches += 1
                else:
                    traffic.bytes_out += read.size
""",
        "",
    ),
)
STATEMENTS: Mapping[str, Sequence[tuple[str, str]]] = {
    "odradek/broker/network/dispatch.py": _DISPATCH,
    "odradek/replication/partition.py": _APPEND,
    "odradek/api/api_01_fetch.py": _FETCH,
}
"""Statements of metrics by file, and what stands in their place in the copy."""
CASES = ("produce acks=1", "produce acks=all", "fetch", "heartbeat")


def without_metrics(source: Path, target: Path) -> None:
    """Copy the package from `source` to `target` without the statements of metrics.

    Raises ValueError if a statement is not exactly once in its file.
    """
    shutil.copytree(source / "odradek", target / "odradek", ignore=shutil.ignore_patterns("__pycache__"))
    for name, replacements in STATEMENTS.items():
        path = target / name
        text = path.read_text()
        for statement, replacement in replacements:
            if text.count(statement) != 1:
                raise ValueError(f"{name} has these lines {text.count(statement)} times, not once:\n{statement}")
            text = text.replace(statement, replacement)
        path.write_text(text)


def main(argv: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        without_metrics(SOURCES, Path(folder) / "src")
        options = argv if any(name in argv for name in CASES) else [*CASES, *argv]
        return measure_requests([*options, "--against", folder])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
