"""What a metric is: its name, type, labels and meaning, as the reference page and every scrape have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol


class Kind(Enum):
    """Types of Prometheus' and OpenMetrics' text formats."""

    COUNTER = "counter"
    """Only grows, until the process starts again."""
    GAUGE = "gauge"
    """A value of the moment."""
    SUMMARY = "summary"
    """Quantiles of the last minutes, with the sum and the number of all observations."""
    HISTOGRAM = "histogram"
    """Numbers of observations up to each bound, since the process started."""


class Metric(NamedTuple):
    """The declaration of a metric family.

    `name` is that of the family: the samples of a counter have `_total` behind it.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    """Names of the labels, in the order of the samples; some samples may lack some."""
    meaning: str
    counterpart: str = ""
    """The metric of Apache Kafka, or of an exporter for it, that has the same meaning; empty without one."""

    @property
    def sample_name(self) -> str:
        """The name as queries use it."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


Sample = tuple[str, str, float]
"""What stands behind the family's name (`_total`, `_bucket`, nothing), the labels as text without braces, the value."""


class Family(NamedTuple):
    """A metric with its samples of one scrape; samples may be made while they are read."""

    metric: Metric
    samples: Iterable[Sample]


class Collector(Protocol):
    """A subject of metrics: reads its figures at a scrape."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All families that `collect` may yield."""
        ...

    def collect(self) -> Iterator[Family | None]:
        """The families; None between two steps of work that takes long, so that the event loop can be looked after."""
        ...


def counter(name: str, meaning: str, counterpart: str = "", labels: tuple[str, ...] = ()) -> Metric:
    """Declare a counter."""
    return Metric(name, Kind.COUNTER, labels, meaning, counterpart)


def gauge(name: str, meaning: str, counterpart: str = "", labels: tuple[str, ...] = ()) -> Metric:
    """Declare a gauge."""
    return Metric(name, Kind.GAUGE, labels, meaning, counterpart)


def label(name: str, value: str) -> str:
    """One label as text, its value escaped."""
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{value}"'


def single(metric: Metric, value: float, labels: str = "") -> Family:
    """A family of one sample."""
    return Family(metric, (("_total" if metric.kind is Kind.COUNTER else "", labels, value),))


def several(metric: Metric, samples: Iterable[tuple[str, float]]) -> Family:
    """A family of (labels, value) pairs, of a counter or a gauge."""
    suffix = "_total" if metric.kind is Kind.COUNTER else ""
    return Family(metric, ((suffix, labels, value) for labels, value in samples))
