"""`./dev test --coverage`: the share of lines that ran, by package, from the data file of the last run.

A figure, not a gate: whether the tests notice a fault is measured by the bugs planted in the simulator.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from coverage import Coverage
from coverage.exceptions import CoverageException


def package_of(path: str) -> str:
    """The package below odradek of a source file, or the file's own name for a module of odradek itself."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    below = parts[len(parts) - parts[::-1].index("odradek") :]
    return below[0].removesuffix(".py")


def table(files: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Lines of the table, the packages with the smallest share first; `files` as in coverage's JSON report."""
    ran: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for path, found in files.items():
        package = package_of(path)
        ran[package] += found["summary"]["covered_lines"]
        lines[package] += found["summary"]["num_statements"]
    shares = {package: 100 * ran[package] / count for package, count in lines.items() if count}
    yield f"{'package':<16} {'lines':>7} {'ran':>7}"
    for package, share in sorted(shares.items(), key=lambda each: (each[1], each[0])):
        yield f"{package:<16} {lines[package]:>7} {share:>6.1f}%"
    if lines.total():
        yield f"{'all':<16} {lines.total():>7} {100 * ran.total() / lines.total():>6.1f}%"


def main() -> int:
    """Print the table; the exit code is 1 without data."""
    coverage = Coverage()
    try:
        coverage.load()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "coverage.json"
            coverage.json_report(outfile=str(report))
            files = json.loads(report.read_text())["files"]
    except CoverageException as error:
        print(f"coverage: {error}", file=sys.stderr)
        return 1
    print("\n".join(["", *table(files)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
