"""The topic of clients' metrics: each push is a record, as the client has encoded it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from odradek.api.services.telemetry_service import TelemetryClient
from odradek.broker.delivery.record_queue import RecordQueue
from odradek.broker.delivery.topic_writer import TopicWriter
from odradek.metadata.nodes import id_text


class TelemetryTopic:
    """Writes pushes to `odradek.telemetry.topic`; a push never waits for it.

    A record's value is OpenTelemetry's MetricsData in protobuf, decompressed; its key is the id of the client instance
    as text, and its headers say who the client is.
    """

    __slots__ = ("_now_ms", "queue", "writer")

    def __init__(
        self, topic: str, queue: RecordQueue, write: Callable[[bytearray], Awaitable[None]], now_ms: Callable[[], int]
    ) -> None:
        """`write` delivers a batch, or raises KafkaError or TransportError; `now_ms` is wall time."""
        self._now_ms = now_ms
        self.queue = queue
        """Records that wait."""
        self.writer = TopicWriter(topic, queue, write)
        """Writes them."""

    def add(self, client: TelemetryClient, instance_id: bytes, metrics: bytes, *, is_terminating: bool) -> None:
        """Accept a push, or count it as lost if too many wait."""
        headers = (
            ("client_id", client.client_id.encode()),
            ("client_software_name", client.software_name.encode()),
            ("client_software_version", client.software_version.encode()),
            ("client_address", client.address.encode()),
            ("terminating", b"true" if is_terminating else b"false"),
        )
        self.queue.offer(self._now_ms(), metrics, id_text(instance_id).encode(), headers)
