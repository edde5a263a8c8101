"""The chart of the README: figures of docs/performance/broker.md as bars, Odradek beside Apache Kafka.

`./dev run python -m bench.chart` writes docs/images/figures.svg; a test compares the file with the table.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "performance" / "broker.md"
PICTURE: Final = ROOT / "docs" / "images" / "figures.svg"

SHOWN: Final = {
    "start to first answer": "start, seconds",
    "memory idle": "memory idle, MB",
    "memory loaded": "memory loaded, MB",
    "broker CPU in and out": "broker CPU, seconds per GB in and out",
    "end to end, p99": "end-to-end latency p99, ms",
}
"""Row of the page -> label. All are costs: shorter is better."""

_WIDTH: Final = 760
_BAR: Final = 330
_LEFT: Final = 290
_ROW: Final = 52


class Figure(NamedTuple):
    """One row: the figures as the page prints them."""

    label: str
    ours: str
    theirs: str


def figures(page: str) -> list[Figure]:
    """The shown rows of the page's table, in its order. Raises LookupError for a row that the page lacks."""
    found = []
    for row, label in SHOWN.items():
        cells = re.search(rf"^\| {re.escape(row)} \| [^|]* \| ([\d.,]+) \| ([\d.,]+) \|", page, re.MULTILINE)
        if cells is None:
            raise LookupError(f"{PAGE.name} has no row {row!r}")
        found.append(Figure(label, cells[1], cells[2]))
    return found


def picture(rows: list[Figure]) -> str:
    """The SVG, readable on light and dark pages."""
    height = len(rows) * _ROW + 46
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
            'aria-label="Costs of Odradek beside Apache Kafka; shorter is better">'
        ),
        (
            "<style>text{font:14px system-ui,sans-serif;fill:#57606a}.n{font-weight:600}.o{fill:#1f883d}"
            ".k{fill:#afb8c1}@media(prefers-color-scheme:dark){text{fill:#9198a1}.o{fill:#3fb950}.k{fill:#6e7681}}</style>"
        ),
        f'<rect class="o" x="{_LEFT}" y="8" width="12" height="12"/><text x="{_LEFT + 18}" y="19">Odradek</text>',
        (
            f'<rect class="k" x="{_LEFT + 110}" y="8" width="12" height="12"/>'
            f'<text x="{_LEFT + 128}" y="19">Apache Kafka 4.3</text>'
        ),
    ]
    for index, row in enumerate(rows):
        top = 38 + index * _ROW
        ours, theirs = (float(text.replace(",", "")) for text in (row.ours, row.theirs))
        scale = _BAR / max(ours, theirs)
        parts.append(f'<text x="{_LEFT - 14}" y="{top + 24}" text-anchor="end">{row.label}</text>')
        for name, value, text, y in (("o", ours, row.ours, top + 2), ("k", theirs, row.theirs, top + 21)):
            width = max(2.0, value * scale)
            parts.append(f'<rect class="{name}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="16" rx="2"/>')
            parts.append(f'<text class="n" x="{_LEFT + width + 8:.1f}" y="{y + 13}">{text}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(figures(PAGE.read_text())))
    print(PICTURE.relative_to(ROOT))
