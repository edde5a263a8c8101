"""Recordings of any client's requests, to assert on: `with record(broker.bootstrap_servers) as proxy`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from odradek.client.blocking import Blocking
from odradek.client.config import parse_servers
from odradek.client.recording.exchanges import Exchange, read_exchanges
from odradek.client.recording.proxy import RecordingProxy
from odradek.wire.errors import ErrorCode, error_code


class Recording:
    """Requests and answers in the order of the requests."""

    __slots__ = ("_exchanges",)

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A file of `odradek proxy --record`. Raises RecordingError."""
        made = cls()
        made._exchanges = read_exchanges(Path(path))
        return made

    def add(self, exchange: Exchange) -> None:
        """Add an exchange."""
        self._exchanges.append(exchange)

    def __len__(self) -> int:
        return len(self._exchanges)

    @property
    def exchanges(self) -> list[Exchange]:
        """All of them; those of a live recording appear when they are answered."""
        return sorted(self._exchanges)

    def of(self, api: str) -> list[Exchange]:
        """Those of one API by Kafka's name: `Produce`, `Fetch`, `JoinGroup`."""
        return [each for each in self.exchanges if each.api == api]

    def apis(self) -> dict[str, set[int]]:
        """The versions of each API that clients used."""
        found: dict[str, set[int]] = {}
        for each in self.exchanges:
            found.setdefault(each.api, set()).add(each.version)
        return found

    def errors(self) -> list[tuple[str, ErrorCode]]:
        """(API, error code) of each error in an answer."""
        return [(each.api, code) for each in self.exchanges for code in _errors_of(each.response)]

    def produced(self, topic: str) -> list[dict[str, Any]]:
        """The records that clients wrote into a topic: `key`, `value`, `headers` and `timestamp` of each.

        Topics that requests name by id are found by the recorded answers of Metadata. A batch that was sent twice
        appears twice.
        """
        answers = [each.response for each in self.of("Metadata") if each.response is not None]
        names = {part["topic_id"]: part["name"] for each in answers for part in each["topics"]}
        return [
            record
            for exchange in self.of("Produce")
            for part in (exchange.request or {"topic_data": ()})["topic_data"]
            if (part["name"] or names.get(part["topic_id"])) == topic
            for partition in part["partition_data"]
            for record in partition["records"] or ()
        ]


def _errors_of(document: Any) -> Iterator[ErrorCode]:
    if isinstance(document, dict):
        for name, value in document.items():
            if name.endswith("error_code") and isinstance(value, int):
                if value:
                    yield error_code(value)
            else:
                yield from _errors_of(value)
    elif isinstance(document, list):
        for each in document:
            yield from _errors_of(each)


class RecordedCluster:
    """A proxy in front of a cluster, with what it has recorded so far."""

    __slots__ = ("bootstrap_servers", "recording")

    def __init__(self, bootstrap_servers: str, recording: Recording) -> None:
        self.bootstrap_servers = bootstrap_servers
        """HOST:PORT for the client under test."""
        self.recording = recording
        """What the client and the cluster have said to each other."""


@contextmanager
def record(bootstrap_servers: str) -> Iterator[RecordedCluster]:
    """Record what clients say to a cluster; the proxy runs in a thread of its own."""
    recording = Recording()
    proxy = RecordingProxy(parse_servers(bootstrap_servers), recording.add)
    with Blocking() as blocking:
        blocking.run(proxy.start())
        try:
            yield RecordedCluster(proxy.bootstrap_servers, recording)
        finally:
            blocking.run(proxy.close())
