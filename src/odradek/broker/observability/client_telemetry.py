"""The receiver of clients' metrics (KIP-714; Kafka's `ClientMetricsManager`).

Subscriptions are the `client-metrics` resources of the cluster. The newest values of each client instance are kept, of
a bounded number of instances and series, until the instance has been silent for three intervals.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import fastcrc

from odradek.api.requests.context import Configuration
from odradek.api.services.telemetry_service import TelemetryClient, TelemetryPush, TelemetrySubscription
from odradek.broker.observability.otlp import ClientSeries, decode_metrics
from odradek.broker.observability.telemetry_topic import TelemetryTopic
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import id_text
from odradek.metrics.definition import Family, counter, gauge, label, several, single
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random
from odradek.records.compression import Codec, decompress
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import ZERO_UUID

LANE: Final = "telemetry"
"""The lane of `Disk.run` that decompresses and decodes."""
MOST_INSTANCES: Final = 1000
"""Client instances that are remembered; the instance with the oldest request makes room."""
DEFAULT_INTERVAL_MS: Final = 300_000
_ALL: Final = "*"
_ONE_UUID: Final = bytes(15) + b"\x01"
_RESERVED: Final = (ZERO_UUID, _ONE_UUID)
_SILENT_INTERVALS: Final = 3
_EARLY: Final = 0.9
"""Part of the interval after which a request is no longer too early: timers of clients and networks jitter."""

PUSHED: Final = gauge(
    "odradek_client_metric",
    "Value that a client has pushed (KIP-714), by the name that the client gives it; sums since the client's start",
    "client telemetry of a Kafka broker with a receiver plug-in",
    (
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "metric",
        "node",
        "topic",
        "partition",
    ),
)
INSTANCES: Final = gauge(
    "kafka_server_clientmetrics_instance_count",
    "Client instances that have asked for subscriptions",
    "kafka.server:type=ClientMetrics,name=ClientMetricsInstanceCount",
)
PUSHES: Final = counter("odradek_client_metric_pushes", "Pushes of clients that were taken")
WRITTEN: Final = counter(
    "odradek_client_metric_records_written", "Pushes that `odradek.telemetry.topic` has; 0 without the topic"
)
LOST: Final = counter(
    "odradek_client_metric_records_lost", "Pushes that `odradek.telemetry.topic` will never have; 0 without the topic"
)
REJECTED: Final = counter("odradek_client_metric_pushes_rejected", "Pushes of clients that were rejected")


class _Instance:
    """One client instance."""

    __slots__ = ("client", "has_ended", "last_get_ms", "last_push_ms", "last_seen_ms", "series", "subscription")

    def __init__(self, client: TelemetryClient, subscription: TelemetrySubscription) -> None:
        self.client = client
        self.subscription = subscription
        self.series: Sequence[ClientSeries] = ()
        self.has_ended = False
        self.last_get_ms = self.last_push_ms = self.last_seen_ms = -1e18


class _Wanted(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int


class ClientTelemetry:
    """Implements TelemetryService and Collector."""

    __slots__ = ("_clock", "_config", "_disk", "_image", "_instances", "_pushes", "_random", "_rejected", "topic")

    metrics = (INSTANCES, PUSHES, REJECTED, WRITTEN, LOST, PUSHED)
    """See `Collector`."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        config: Configuration,
        clock: Clock,
        random: Random,
        disk: Disk,
        topic: TelemetryTopic | None = None,
    ) -> None:
        self._image = image
        self._config = config
        self._clock = clock
        self._random = random
        self._disk = disk
        self._instances: OrderedDict[bytes, _Instance] = OrderedDict()
        self._pushes = self._rejected = 0
        self.topic = topic
        """Where pushes are written; None for nowhere."""

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    # --- TelemetryService ---

    def subscription_of(self, client: TelemetryClient, instance_id: bytes) -> TelemetrySubscription:
        """Implements TelemetryService: INVALID_REQUEST for a reserved id, THROTTLING_QUOTA_EXCEEDED if asked early."""
        if instance_id == ZERO_UUID:
            instance_id = self._random.uuid()
        elif instance_id in _RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client instance id is reserved")
        now_ms = self._now_ms()
        found = self._subscription(client, instance_id)
        instance = self._instances.get(instance_id)
        if instance is not None and instance.subscription == found:
            waits_ms = _EARLY * found.push_interval_ms
            if now_ms - max(instance.last_get_ms, instance.last_push_ms) < waits_ms:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over")
        instance = self._touch(client, found, now_ms)
        instance.last_get_ms = now_ms
        return found

    async def push(self, client: TelemetryClient, pushed: TelemetryPush) -> None:
        """Implements TelemetryService, with the errors of Kafka's ClientMetricsManager."""
        try:
            instance = self._checked(client, pushed)
            instance.last_push_ms = self._now_ms()
            instance.has_ended = pushed.is_terminating
            if pushed.metrics:
                instance.series, data = await self._disk.run(
                    LANE, _decoded, pushed.codec, bytes(pushed.metrics), instance.subscription.max_bytes
                )
                if self.topic is not None:
                    self.topic.add(client, pushed.instance_id, data, is_terminating=pushed.is_terminating)
        except KafkaError:
            self._rejected += 1
            raise
        self._pushes += 1

    def _checked(self, client: TelemetryClient, pushed: TelemetryPush) -> _Instance:
        if pushed.instance_id in _RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client instance id is reserved")
        if not 0 <= pushed.codec <= Codec.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        now_ms = self._now_ms()
        known = self._instances.get(pushed.instance_id)
        found = self._subscription(client, pushed.instance_id)
        if known is not None and known.has_ended:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has pushed its last metrics")
        if found.subscription_id != pushed.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscription has changed; ask for it again")
        if len(pushed.metrics) > found.max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
        instance = self._touch(client, found, now_ms)
        is_first = instance.last_get_ms > instance.last_push_ms
        is_early = now_ms - instance.last_push_ms < _EARLY * found.push_interval_ms
        if is_early and not is_first and not pushed.is_terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over")
        return instance

    def _touch(self, client: TelemetryClient, found: TelemetrySubscription, now_ms: float) -> _Instance:
        instance = self._instances.get(found.instance_id)
        if instance is None:
            instance = self._instances[found.instance_id] = _Instance(client, found)
            if len(self._instances) > MOST_INSTANCES:
                self._instances.popitem(last=False)
        instance.subscription = found
        instance.last_seen_ms = now_ms
        self._instances.move_to_end(found.instance_id)
        return instance

    # --- subscriptions ---

    def _subscription(self, client: TelemetryClient, instance_id: bytes) -> TelemetrySubscription:
        wanted = self._wanted(client, instance_id)
        text = "\n".join((*wanted.metrics, str(wanted.interval_ms))).encode()
        checksum = fastcrc.crc32.iscsi(text + instance_id)
        return TelemetrySubscription(
            instance_id,
            checksum - (1 << 32) if checksum >= 1 << 31 else checksum,
            wanted.metrics,
            wanted.interval_ms,
            self._config.number("telemetry.max.bytes"),
        )

    def _wanted(self, client: TelemetryClient, instance_id: bytes) -> _Wanted:
        """All that the matching subscriptions ask for, as often as the most frequent of them."""
        prefixes: set[str] = set()
        interval_ms: int | None = None
        for configs in self._image().client_metrics.values():
            if not _matches(configs.get("match", ""), client, instance_id):
                continue
            prefixes.update(part.strip() for part in configs.get("metrics", "").split(",") if part.strip())
            own_ms = int(configs.get("interval.ms", DEFAULT_INTERVAL_MS))
            interval_ms = own_ms if interval_ms is None else min(interval_ms, own_ms)
        metrics = (_ALL,) if _ALL in prefixes else tuple(sorted(prefixes))
        return _Wanted(metrics, DEFAULT_INTERVAL_MS if interval_ms is None else interval_ms)

    # --- Collector ---

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        now_ms = self._now_ms()
        for instance_id, instance in list(self._instances.items()):
            if now_ms - instance.last_seen_ms > _SILENT_INTERVALS * instance.subscription.push_interval_ms:
                del self._instances[instance_id]
        yield single(INSTANCES, len(self._instances))
        yield single(PUSHES, self._pushes)
        yield single(REJECTED, self._rejected)
        queue = None if self.topic is None else self.topic.queue
        yield single(WRITTEN, 0 if queue is None else queue.written)
        yield single(LOST, 0 if queue is None else queue.lost)
        yield several(PUSHED, self._samples())

    def _samples(self) -> Iterator[tuple[str, float]]:
        for instance_id, instance in list(self._instances.items()):
            client = instance.client
            labels = ",".join(
                (
                    label("client_id", client.client_id),
                    label("client_instance_id", id_text(instance_id)),
                    label("client_software_name", client.software_name),
                    label("client_software_version", client.software_version),
                )
            )
            for series in instance.series:
                own = "".join(f",{label(name, text)}" for name, text in series.labels)
                yield f"{labels},{label('metric', series.name)}{own}", series.value


def _matches(selectors: str, client: TelemetryClient, instance_id: bytes) -> bool:
    """Whether all selectors match the client. One of `client_source_port` matches none: sessions have no port."""
    known: Mapping[str, str] = {
        "client_instance_id": id_text(instance_id),
        "client_id": client.client_id,
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.address,
    }
    for selector in filter(None, (part.strip() for part in selectors.split(","))):
        name, _, pattern = selector.partition("=")
        text = known.get(name.strip())
        if text is None or not _fits(pattern.strip(), text):
            return False
    return True


def _fits(pattern: str, text: str) -> bool:
    """Whether the text matches; none matches a pattern of Java that Python does not read."""
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error:
        return False


def _decoded(codec: int, data: bytes, max_bytes: int) -> tuple[Sequence[ClientSeries], bytes]:
    """The series and the decompressed bytes; in a thread.

    Raises KafkaError INVALID_RECORD for bytes that cannot be read, or are too many when decompressed.
    """
    try:
        plain = bytes(decompress(codec, data, max_bytes))
        return decode_metrics(plain), plain
    except (CorruptRecords, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the metrics cannot be read: {error}") from error
