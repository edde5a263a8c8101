"""A metric of a client with its value, and the metrics of a client at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, overload


class Metric(NamedTuple):
    """One value. Times are in milliseconds where Kafka's name has no unit."""

    name: str
    """Kafka's name, for instance `records-lag-max`."""
    group: str
    """Kafka's group, for instance `consumer-fetch-manager-metrics`."""
    tags: Mapping[str, str]
    """`client-id`, perhaps `topic`, `partition` and `node-id`."""
    value: float
    """NaN where nothing happened in the window of an average or a maximum, as in Java."""
    is_total: bool
    """Whether the value only grows."""
    description: str


class Metrics(Sequence[Metric]):
    """All metrics of a client as they were when it was asked.

    Example:

        async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
            await producer.send_and_wait("orders", b"tea")
            found = producer.metrics()
            print(found.value("record-send-total", topic="orders"))
            print([(each.name, each.value) for each in found if each.group == "producer-metrics"])
    """

    __slots__ = ("_metrics",)

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = tuple(metrics)

    @overload
    def __getitem__(self, index: int) -> Metric: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Metric]: ...
    def __getitem__(self, index: int | slice) -> Metric | Sequence[Metric]:
        return self._metrics[index]

    def __len__(self) -> int:
        return len(self._metrics)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics)

    def value(self, name: str, **tags: str) -> float:
        """The value of the metric with this name and exactly these tags besides `client-id`.

        Tags have underscores for hyphens: `node_id`. Raises KeyError if there is none.
        """
        wanted = {key.replace("_", "-"): text for key, text in tags.items()}
        for each in self._metrics:
            if each.name == name and {k: v for k, v in each.tags.items() if k != "client-id"} == wanted:
                return each.value
        raise KeyError(f"no metric {name!r}" + (f" with the tags {wanted}" if wanted else ""))
