"""Plots as SVG, made on the server: pages need no script for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

WIDTH = 720
HEIGHT = 160
_LEFT, _BOTTOM, _TOP = 64, 20, 8


class Plot(NamedTuple):
    """What a template draws: a curve and its area as SVG paths, and labels with their places."""

    curve: str
    area: str
    levels: list[tuple[float, str]]
    times: list[tuple[float, str]]


def _figure(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f")


def curve_of(points: Sequence[tuple[float, float]], label: Callable[[float], str] = _figure) -> Plot | None:
    """A curve of (seconds since the epoch, value), with `label` for values; None before two points."""
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    first, last = points[0][0], points[-1][0]
    top = max(1.0, *(value for _, value in points))

    def place(at: float, value: float) -> tuple[float, float]:
        x = _LEFT + (at - first) / (last - first) * (WIDTH - _LEFT)
        return round(x, 1), round(_TOP + (1 - value / top) * (HEIGHT - _TOP - _BOTTOM), 1)

    places = [place(at, value) for at, value in points]
    curve = "M" + " L".join(f"{x} {y}" for x, y in places)
    floor = HEIGHT - _BOTTOM
    area = f"{curve} L{places[-1][0]} {floor} L{places[0][0]} {floor} Z"
    levels = [(place(first, value)[1], label(value)) for value in (top, top / 2, 0)]
    seconds = last - first
    times = [(_LEFT, f"{seconds / 60:.0f} min ago" if seconds >= 90 else f"{seconds:.0f} s ago"), (WIDTH - 24.0, "now")]
    return Plot(curve, area, levels, times)
