"""Requests to leaders that are silent and have been replaced: waiting for `request_timeout_ms` would only cost time.

A process that stands still, or that a cut network hides, keeps its connections. Its partitions have other leaders after
its session, and a request that it has not answered waits on. An idempotent producer may send the batches to the new
leaders at once, as these know what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek.client.errors import Disconnected
from odradek.client.network.cluster import Cluster
from odradek.client.network.connection import Connection
from odradek.client.producer.accumulator import Batch

SILENT_S: Final = 1.0
"""A leader that has answered nothing for this time may have been replaced: another broker is asked."""
LOOK_S: Final = 0.5
"""The time between two looks."""
ASK_S: Final = 0.1
"""The time between two questions to other brokers while a leader is silent, as of `retry.backoff.ms`."""


class SentTo(NamedTuple):
    """Where a batch in flight is. The client may have forgotten the broker since, as metadata does not name it."""

    node_id: int
    connection: Connection


class SilentLeaders:
    """Looks after the batches in flight of one producer."""

    __slots__ = ("_asks_at", "_cluster", "_flying", "_looks_at", "_wake")

    def __init__(self, cluster: Cluster, flying: Mapping[Batch, SentTo], wake: Callable[[], None]) -> None:
        """`flying` has the batches in flight; `wake` has `look` called soon."""
        self._cluster = cluster
        self._flying = flying
        self._wake = wake
        self._looks_at = 0.0
        self._asks_at = 0.0

    def look(self, now: float) -> None:
        """Ask other brokers for the leaders of silent ones, and close connections to leaders that were replaced.

        To be called at `next_look` as long as batches are in flight; calls in between cost nothing.
        """
        if now < self._looks_at:
            return
        self._looks_at = now + LOOK_S
        may_ask = now >= self._asks_at
        for sent_to in dict.fromkeys(self._flying.values()):
            connection, since = sent_to.connection, sent_to.connection.waits_since
            if since is None or now - since < SILENT_S:
                continue
            if self._is_replaced(sent_to, since):
                peer = f"{connection.host}: broker {sent_to.node_id}"
                connection.close(Disconnected(f"{peer} answers nothing, and its partitions have other leaders"))
                continue
            if may_ask:
                self._asks_at = now + ASK_S
                self._cluster.ask_another(connection).add_done_callback(self._asked)
            self._looks_at = self._asks_at

    def next_look(self, now: float) -> float:
        """When `look` has something to do, in seconds of the loop's clock."""
        return self._looks_at if self._looks_at > now else now + LOOK_S

    def _asked(self, _: object) -> None:
        """Look at once at what the other broker said; where the silent leader still leads, that asks nothing."""
        if self._flying:
            self._looks_at = min(self._looks_at, self._cluster.metadata.updated_at)
            self._wake()

    def _is_replaced(self, sent_to: SentTo, since: float) -> bool:
        """Whether newer metadata than the request has other leaders for all batches that wait for this one."""
        metadata = self._cluster.metadata
        leaders = {metadata.leader(*batch.key) for batch, to in self._flying.items() if to == sent_to}
        return metadata.updated_at > since and sent_to.node_id not in leaders and max(leaders) >= 0
