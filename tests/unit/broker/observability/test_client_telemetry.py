"""The receiver of clients' metrics: subscriptions, pushes, and what is rejected."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("opentelemetry.proto")

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from odradek.api.services.telemetry_service import TelemetryClient, TelemetryPush, TelemetrySubscription
from odradek.broker.delivery.record_queue import RecordQueue
from odradek.broker.observability.client_telemetry import PUSHED, ClientTelemetry
from odradek.broker.observability.telemetry_topic import TelemetryTopic
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import id_text
from odradek.ports.randomness import SeededRandom
from odradek.records.batch import parse_header
from odradek.records.compression import Codec, compress
from odradek.records.record import decode_records
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import ZERO_UUID

CLIENT = TelemetryClient("app", "librdkafka", "2.8", "10.0.0.1")
INTERVAL_MS = 1000
MOST_BYTES = 10_000


class Disk:
    async def run(self, lane: str, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


class Receiver:
    """A receiver with a clock that the test sets."""

    def __init__(self, topic: TelemetryTopic | None = None, /, **subscriptions: Mapping[str, str]) -> None:
        self.now_s = 100.0
        self.image = ClusterImage()
        for name, configs in subscriptions.items():
            self.image = self.image.with_client_metrics(name, configs)
        clock: Any = SimpleNamespace(monotonic=lambda: self.now_s)
        config: Any = SimpleNamespace(number=lambda _name: MOST_BYTES)
        disk: Any = Disk()
        self.telemetry = ClientTelemetry(lambda: self.image, config, clock, SeededRandom(1), disk, topic)

    def subscription(self, client: TelemetryClient = CLIENT, instance_id: bytes = ZERO_UUID) -> TelemetrySubscription:
        return self.telemetry.subscription_of(client, instance_id)

    def push(
        self, subscription: TelemetrySubscription, data: bytes = b"", *, codec: int = 0, last: bool = False
    ) -> None:
        pushed = TelemetryPush(subscription.instance_id, subscription.subscription_id, last, codec, data)
        asyncio.run(self.telemetry.push(CLIENT, pushed))

    def samples(self) -> list[tuple[str, float]]:
        (family,) = (each for each in self.telemetry.collect() if each is not None and each.metric is PUSHED)
        return [(labels, value) for _, labels, value in family.samples]


def receiver(**configs: str) -> Receiver:
    return Receiver(one={"metrics": "*", "interval.ms": str(INTERVAL_MS), **configs})


def metrics(name: str = "org.apache.kafka.producer.record.send.total", value: float = 7.0, count: int = 1) -> bytes:
    message = MetricsData()
    scope = message.resource_metrics.add().scope_metrics.add()
    for number in range(count):
        point = scope.metrics.add(name=f"{name}{number or ''}").sum.data_points.add(as_double=value)
        point.attributes.add(key="topic").value.string_value = 'or"ders'
        point.attributes.add(key="ignored").value.string_value = "x"
    data: bytes = message.SerializeToString()
    return data


def rejection(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call()
    return raised.value.code


def test_client_without_an_id_gets_one() -> None:
    assert receiver().subscription().instance_id != ZERO_UUID


def test_subscription_whose_pattern_cannot_be_read_matches_no_client() -> None:
    """Apache Kafka's controllers accept patterns of Java. Each client was rejected for one of them."""
    found = Receiver(
        one={"metrics": "org.a", "interval.ms": "5000", "match": "client_id=(?<name>app)"},
        two={"metrics": "org.b", "interval.ms": "7000", "match": "client_id=app"},
    ).subscription()
    assert (found.metrics, found.push_interval_ms) == (("org.b",), 7000)


def test_subscriptions_that_match_are_joined() -> None:
    found = Receiver(
        one={"metrics": "org.a,org.b", "interval.ms": "5000", "match": "client_id=a.*"},
        two={"metrics": "org.b", "interval.ms": "2000"},
        three={"metrics": "org.c", "match": "client_id=other"},
    ).subscription()
    assert (found.metrics, found.push_interval_ms) == (("org.a", "org.b"), 2000)


@pytest.mark.parametrize(
    ("match", "metrics_wanted"),
    [
        ("client_software_name=librdkafka", ("*",)),
        ("client_software_name=librdkafka,client_source_address=10.0.0.2", ()),
        ("client_id=ap", ()),
        ("client_source_port=1", ()),
    ],
)
def test_subscription_matches_by_all_its_selectors(match: str, metrics_wanted: tuple[str, ...]) -> None:
    assert receiver(match=match).subscription().metrics == metrics_wanted


def test_pushed_value_is_shown_with_the_clients_labels() -> None:
    found = receiver()
    found.push(found.subscription(), metrics())
    ((labels, value),) = found.samples()
    assert value == 7.0
    assert 'client_id="app"' in labels
    assert 'metric="org.apache.kafka.producer.record.send.total",topic="or\\"ders"' in labels
    assert "ignored" not in labels


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_compressed_push_is_read(codec: Codec) -> None:
    found = receiver()
    found.push(found.subscription(), compress(codec, metrics()), codec=codec)
    assert len(found.samples()) == 1


def test_push_that_grows_too_large_is_rejected() -> None:
    found = receiver()
    compressor = zlib.compressobj(wbits=31)
    bomb = compressor.compress(bytes(MOST_BYTES * 100)) + compressor.flush()
    assert rejection(lambda: found.push(found.subscription(), bomb, codec=Codec.GZIP)) is ErrorCode.INVALID_RECORD


def test_series_of_a_client_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.observability.otlp.MOST_SERIES", 3)
    found = receiver()
    found.push(found.subscription(), metrics("m", count=10))
    assert len(found.samples()) == 3


@pytest.mark.parametrize(
    ("data", "codec", "code"),
    [
        (b"\xff\xff", 0, ErrorCode.INVALID_RECORD),
        (b"", 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(MOST_BYTES + 1), 0, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
    ids=["garbage", "codec", "large"],
)
def test_push_is_rejected_with_its_error(data: bytes, codec: int, code: ErrorCode) -> None:
    found = receiver()
    assert rejection(lambda: found.push(found.subscription(), data, codec=codec)) is code


def test_push_is_rejected_when_the_subscription_has_changed() -> None:
    found = receiver()
    known = found.subscription()
    found.image = found.image.with_client_metrics("one", {"metrics": "other"})
    assert rejection(lambda: found.push(known)) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID


def test_second_push_is_rejected_before_the_interval_is_over() -> None:
    found = receiver()
    known = found.subscription()
    found.push(known)
    assert rejection(lambda: found.push(known)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    found.now_s += INTERVAL_MS / 1000
    found.push(known)


def test_last_push_is_taken_early_and_ends_the_instance() -> None:
    found = receiver()
    known = found.subscription()
    found.push(known)
    found.push(known, last=True)
    assert rejection(lambda: found.push(known)) is ErrorCode.INVALID_REQUEST


def test_subscription_is_not_answered_again_before_the_interval_is_over() -> None:
    found = receiver()
    known = found.subscription()
    again = lambda: found.subscription(instance_id=known.instance_id)  # noqa: E731
    assert rejection(again) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    found.image = found.image.with_client_metrics("one", {"metrics": "other"})
    assert again().metrics == ("other",)


def test_silent_client_is_forgotten() -> None:
    found = receiver()
    found.push(found.subscription(), metrics())
    found.now_s += 4 * INTERVAL_MS / 1000
    assert found.samples() == []


def test_client_is_remembered_for_some_intervals_without_a_push() -> None:
    found = receiver()
    found.push(found.subscription(), metrics())
    found.now_s += 3 * INTERVAL_MS / 1000
    assert len(found.samples()) == 1
    found.now_s += 0.001
    assert found.samples() == []


def test_instances_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.observability.client_telemetry.MOST_INSTANCES", 2)
    found = receiver()
    for _ in range(5):
        found.push(found.subscription(), metrics())
    assert len(found.samples()) == 2


def test_reserved_instance_id_is_rejected() -> None:
    one = bytes(15) + b"\x01"
    assert rejection(lambda: receiver().subscription(instance_id=one)) is ErrorCode.INVALID_REQUEST


def telemetry_topic(most_bytes: int) -> TelemetryTopic:
    """A topic whose records stay in the queue."""

    async def write(_batch: bytearray) -> None:
        raise AssertionError

    return TelemetryTopic("pushes", RecordQueue(lambda: most_bytes), write, lambda: 1_700_000_000_000)


def test_push_is_a_record_as_the_client_encoded_it() -> None:
    topic = telemetry_topic(10_000)
    found = Receiver(topic, one={"metrics": "*"})
    subscription = found.subscription()
    found.push(subscription, zlib.compress(metrics(), wbits=31), codec=Codec.GZIP, last=True)
    _, batch = topic.queue.next_batch(10_000)
    (record,) = decode_records(memoryview(batch), parse_header(batch))
    assert bytes(record.value or b"") == metrics()
    assert bytes(record.key or b"").decode() == id_text(subscription.instance_id)
    assert {name: bytes(value or b"").decode() for name, value in record.headers} == {
        "client_id": "app",
        "client_software_name": "librdkafka",
        "client_software_version": "2.8",
        "client_address": "10.0.0.1",
        "terminating": "true",
    }


def test_push_is_accepted_when_the_topic_has_no_room() -> None:
    topic = telemetry_topic(10)
    found = Receiver(topic, one={"metrics": "*"})
    found.push(found.subscription(), metrics())
    assert (len(topic.queue), topic.queue.lost) == (0, 1)
    assert found.samples()


def test_push_that_cannot_be_read_is_no_record() -> None:
    topic = telemetry_topic(10_000)
    found = Receiver(topic, one={"metrics": "*"})
    assert rejection(lambda: found.push(found.subscription(), b"\xff\xff")) is ErrorCode.INVALID_RECORD
    assert not len(topic.queue)
