"""The text form of metrics: Prometheus' format 0.0.4 and OpenMetrics 1.0, written in small portions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from odradek.metrics.definition import Family, Kind

PORTION: Final = 64
"""Samples per portion: the event loop is looked after between two of them."""


class TextFormat(Enum):
    """A text format by its media type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def accepted_format(accept: str) -> TextFormat:
    """The format for the value of an Accept header: OpenMetrics where it weighs no less than plain text."""
    open_metrics = text = 0.0
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if media == "application/openmetrics-text":
            open_metrics = max(open_metrics, weight)
        elif media in ("text/plain", "text/*"):
            text = max(text, weight)
    return TextFormat.OPENMETRICS if open_metrics > 0 and open_metrics >= text else TextFormat.PROMETHEUS


def portions(families: Iterable[Family | None], text_format: TextFormat) -> Iterator[str]:
    """The text of all families, some samples at a time. A family without samples is left out.

    A portion may be empty: None instead of a family stands for work that was done for a later one.
    """
    is_open = text_format is TextFormat.OPENMETRICS
    for family in families:
        if family is None:
            yield ""
            continue
        metric, samples = family
        name = metric.name
        header = _header(name if is_open else metric.sample_name, metric.kind, metric.meaning)
        lines: list[str] = [header]
        for suffix, labels, value in samples:
            if labels:
                lines.append(f"{name}{suffix}{{{labels}}} {value}\n")
            else:
                lines.append(f"{name}{suffix} {value}\n")
            if len(lines) >= PORTION:
                yield "".join(lines)
                lines = []
                header = ""
        if lines and not (header and len(lines) == 1):
            yield "".join(lines)
        else:
            yield ""
    if is_open:
        yield "# EOF\n"


def _header(name: str, kind: Kind, meaning: str) -> str:
    text = meaning.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {text}\n# TYPE {name} {kind.value}\n"
