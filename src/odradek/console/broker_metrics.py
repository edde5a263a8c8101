"""Request latencies, event loop delays, and the software of clients, from the `/metrics` of brokers of Odradek."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Final, NamedTuple

HISTORY: Final = 360
"""Scrapes that plots show."""
FETCH_S: Final = 2.0
"""Limit for one answer: a broker that hangs must not delay the others."""
MAX_BODY: Final = 32 * 1024 * 1024
REQUESTS: Final = ("Produce", "FetchConsumer")
"""Requests whose latencies are plotted; those of fetches include the wait for records."""
QUANTILES: Final = ("0.5", "0.99")
LATENCY: Final = "kafka_network_requestmetrics_totaltimems"
DELAY: Final = "odradek_event_loop_delay_seconds_bucket"
SOFTWARE: Final = "kafka_server_socket_server_metrics_connections_software"
_LINE: Final = re.compile(rf"^({LATENCY}|{DELAY}|{SOFTWARE})\{{([^}}]*)\}} (\S+)", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class Scrape(NamedTuple):
    """One broker: milliseconds by request and quantile, and counts of the delay's buckets by upper bound in seconds."""

    latencies: Mapping[tuple[str, str], float]
    delays: Mapping[float, float]
    software: Mapping[tuple[str, str, str], int] = {}
    """Open connections by the name and version of the client's software, and by listener."""


class Latencies(NamedTuple):
    """The worst broker at a time in seconds since the epoch; None for what no broker reports.

    `latencies_ms` are by request and quantile; `delay_ms` is the bucket's bound below which 99 % of the delays since
    the scrape before were.
    """

    at_s: float
    latencies_ms: Mapping[tuple[str, str], float]
    delay_ms: float | None


def parse(text: str) -> Scrape:
    """The figures of a page of metrics in Prometheus' text format; what is not a number is left out. Pure."""
    latencies: dict[tuple[str, str], float] = {}
    delays: dict[float, float] = {}
    software: dict[tuple[str, str, str], int] = {}
    for name, given, number in _LINE.findall(text):
        labels = dict(_LABEL.findall(given))
        try:
            value = float(number)
            if value != value:  # NaN: no request in the window
                continue
            if name == DELAY:
                delays[float(labels.get("le", ""))] = value
            elif name == SOFTWARE:
                named = (labels[each] for each in ("clientSoftwareName", "clientSoftwareVersion", "listener"))
                software[next(named), next(named), next(named)] = int(value)
            elif labels.get("request") in REQUESTS and labels.get("quantile") in QUANTILES:
                latencies[labels["request"], labels["quantile"]] = value
        except (ValueError, KeyError, OverflowError):
            continue
    return Scrape(latencies, delays, software)


def delay_of(before: Scrape | None, now: Scrape, share: float = 0.99) -> float | None:
    """The bound in ms below which that share of the delays between two scrapes were; None if it is not known. Pure."""
    if before is None:
        return None
    grown = {bound: count - before.delays.get(bound, 0.0) for bound, count in now.delays.items()}
    total = max(grown.values(), default=0.0)
    if total <= 0:
        return None
    finite = [bound for bound in sorted(grown) if bound != float("inf")]
    for bound in finite:
        if grown[bound] >= share * total:
            return bound * 1000
    return finite[-1] * 1000 if finite else None


class BrokerMetrics:
    """Scrapes of the brokers of one cluster, and the failure of each that did not answer."""

    __slots__ = ("_before", "_urls", "failures", "history", "software")

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = tuple(urls)
        self._before: dict[str, Scrape] = {}
        self.failures: dict[str, str] = {}
        """Why a URL did not answer the last time."""
        self.history: deque[Latencies] = deque(maxlen=HISTORY)
        """The oldest first."""
        self.software: Mapping[tuple[str, str, str], int] = {}
        """Open connections at all brokers by the name and version of the client's software, and by listener."""

    @property
    def is_configured(self) -> bool:
        """Whether there is any URL."""
        return bool(self._urls)

    async def scrape(self) -> None:
        """Ask all brokers now."""
        if not self._urls:
            return
        answers = await asyncio.gather(*(asyncio.to_thread(_fetched, url) for url in self._urls))
        self.failures = {url: each for url, each in zip(self._urls, answers, strict=True) if isinstance(each, str)}
        found = {url: each for url, each in zip(self._urls, answers, strict=True) if isinstance(each, Scrape)}
        latencies: dict[tuple[str, str], float] = {}
        for each in found.values():
            for name, value in each.latencies.items():
                latencies[name] = max(value, latencies.get(name, 0.0))
        delays = [delay_of(self._before.get(url), each) for url, each in found.items()]
        self.history.append(Latencies(time.time(), latencies, max((d for d in delays if d is not None), default=None)))
        software: Counter[tuple[str, str, str]] = Counter()
        for each in found.values():
            software.update(each.software)
        self.software = software
        self._before = found


def _fetched(url: str) -> Scrape | str:
    """The figures of a broker, or why there are none."""
    # No proxy and no redirect: the URL is the operator's, and an answer does not choose another one.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(url, timeout=FETCH_S) as response:
            return parse(response.read(MAX_BODY).decode(errors="replace"))
    except (OSError, HTTPException, ValueError) as error:
        return str(error) or type(error).__name__
