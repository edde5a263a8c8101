"""Metrics that clients push to brokers (KIP-714): when, what, and what becomes of failures."""

import asyncio
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import IllegalState
from odradek.client.metrics.metric import Metric
from odradek.client.metrics.otlp import OtlpEncoder, telemetry_name
from odradek.client.metrics.subscription import DEFAULT_INTERVAL_MS, TelemetryState
from odradek.client.producer.producer import Producer
from odradek.records.compression import Codec, decompress
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from odradek.wire.messages.push_telemetry import PushTelemetryResponse
from tests.unit.client.consumers import until
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster
from tests.unit.client.test_client_producer import run

INSTANCE = bytes(range(16))
SENT = Metric("record-send-total", "producer-metrics", {"client-id": "c"}, 7.0, True, "")


def answer(**changed: Any) -> GetTelemetrySubscriptionsResponse:
    fields: dict[str, Any] = {
        "client_instance_id": INSTANCE, "subscription_id": 5, "accepted_compression_types": [Codec.ZSTD, Codec.GZIP],
        "push_interval_ms": 1000, "telemetry_max_bytes": 1 << 20, "requested_metrics": ["*"],
    }  # fmt: skip
    return GetTelemetrySubscriptionsResponse(**{**fields, **changed})


class Receiver(FakeCluster):
    """A cluster that wants metrics, every 10 ms."""

    def __init__(self, wanted: list[str], codes: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.absent.clear()
        self.wanted = wanted
        self.codes = list(codes)
        self.pushes: list[Any] = []

    def on_get_telemetry_subscriptions(self, broker: Any, request: Any, version: int) -> Any:
        return answer(requested_metrics=self.wanted, push_interval_ms=10)

    def on_push_telemetry(self, broker: Any, request: Any, version: int) -> Any:
        self.pushes.append(request)
        return PushTelemetryResponse(0, self.codes.pop(0) if self.codes else 0)

    def pushed(self, index: int = -1) -> dict[str, float]:
        """Values of a push by their names."""
        push = self.pushes[index]
        data = MetricsData.FromString(bytes(decompress(push.compression_type, bytes(push.metrics))))
        scope = data.resource_metrics[0].scope_metrics[0]
        found: dict[str, float] = {}
        for each in scope.metrics:
            point = getattr(each, each.WhichOneof("data")).data_points[0]
            if not any(tag.key in ("topic", "node_id") for tag in point.attributes):
                found[each.name] = point.as_double
        return found


# --- the state ---


@pytest.mark.parametrize("interval_ms", [0, -1])
@pytest.mark.parametrize("wanted", [["*"], []])
def test_interval_that_is_not_positive_counts_as_five_minutes(interval_ms: int, wanted: list[str]) -> None:
    state = TelemetryState()
    state.subscribed(answer(push_interval_ms=interval_ms, requested_metrics=wanted), 0.5)
    assert state.wait_s == DEFAULT_INTERVAL_MS / 1000


def test_first_push_is_spread_over_an_interval() -> None:
    for chance, wait_s in ((0.0, 0.5), (0.5, 1.0), (1.0, 1.5)):
        state = TelemetryState()
        state.subscribed(answer(), chance)
        assert state.wait_s == wait_s
    state.pushed(0, Codec.NONE)
    assert state.wait_s == 1.0


def test_client_without_wanted_metrics_asks_again() -> None:
    state = TelemetryState()
    state.subscribed(answer(requested_metrics=[]), 0.0)
    assert state.subscription is None
    assert state.wait_s == 1.0
    assert state.instance_id == INSTANCE


def test_changed_subscription_is_asked_for_at_once() -> None:
    state = TelemetryState()
    state.subscribed(answer(), 0.0)
    state.pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, Codec.ZSTD)
    assert state.subscription is None
    assert state.wait_s == 0


def test_refused_codec_is_not_used_again() -> None:
    state = TelemetryState()
    state.subscribed(answer(), 0.0)
    assert state.codec == Codec.ZSTD
    state.pushed(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, Codec.ZSTD)
    state.subscribed(answer(), 0.0)
    assert state.codec == Codec.GZIP


def test_codecs_of_the_future_are_passed_over() -> None:
    state = TelemetryState()
    state.subscribed(answer(accepted_compression_types=[77]), 0.0)
    assert state.codec == Codec.NONE


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION])
def test_fatal_error_ends_the_pushes(code: ErrorCode) -> None:
    state = TelemetryState()
    state.subscribed(answer(), 0.0)
    state.pushed(code, Codec.NONE)
    assert state.has_ended


@pytest.mark.parametrize("code", [ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
def test_other_error_waits_an_interval(code: ErrorCode) -> None:
    state = TelemetryState()
    state.subscribed(answer(error_code=code), 0.0)
    assert state.wait_s == DEFAULT_INTERVAL_MS / 1000
    state.subscribed(answer(), 0.0)
    state.pushed(code, Codec.NONE)
    assert state.wait_s == 1.0
    assert state.subscription is None


def test_metrics_are_wanted_by_their_prefix() -> None:
    state = TelemetryState()
    state.subscribed(answer(requested_metrics=["org.apache.kafka.producer.record."]), 0.0)
    assert state.subscription is not None
    assert state.subscription.wants(telemetry_name(SENT))
    assert not state.subscription.wants("org.apache.kafka.producer.request.total")


# --- the encoding ---


def test_delta_totals_are_what_has_come_since() -> None:
    encoder = OtlpEncoder(1000)
    values = []
    for now_ms, value in ((2000, 7.0), (3000, 10.0)):
        data = MetricsData.FromString(encoder.encode([SENT._replace(value=value)], {}, now_ms, is_delta=True))
        point = data.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0]
        values.append((point.as_double, point.start_time_unix_nano // 1_000_000))
    assert values == [(7.0, 1000), (3.0, 2000)]


def test_cumulative_totals_count_from_the_start() -> None:
    encoder = OtlpEncoder(1000)
    for now_ms in (2000, 3000):
        data = MetricsData.FromString(encoder.encode([SENT], {"group_id": "g"}, now_ms, is_delta=False))
        found = data.resource_metrics[0].scope_metrics[0].metrics[0]
        assert found.name == "org.apache.kafka.producer.record.send.total"
        assert found.sum.data_points[0].as_double == 7.0
        assert found.sum.data_points[0].start_time_unix_nano == 1_000_000_000
        assert not found.sum.data_points[0].attributes  # brokers know the client id
    assert data.resource_metrics[0].resource.attributes[0].key == "group_id"


# --- the client ---


def test_client_pushes_what_is_wanted() -> None:
    cluster = Receiver(["org.apache.kafka.producer.record.send"])

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        await until(lambda: len(cluster.pushes) >= 2)
        assert await producer.client_instance_id() == "AAECAwQFBgcICQoLDA0ODw"

    run(cluster, body)
    assert cluster.pushed() == {
        "org.apache.kafka.producer.record.send.total": 1.0,
        "org.apache.kafka.producer.record.send.rate": pytest.approx(1 / 30, rel=0.5),
    }
    assert [each.terminating for each in cluster.pushes][-2:] == [False, True]
    assert {each.subscription_id for each in cluster.pushes} == {5}


def test_client_subscribes_again_after_a_change() -> None:
    cluster = Receiver(["*"], (ErrorCode.UNKNOWN_SUBSCRIPTION_ID,))

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        await until(lambda: len(cluster.pushes) >= 2)

    run(cluster, body)
    assert cluster.count(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) == 2


def test_client_stops_after_a_fatal_answer() -> None:
    cluster = Receiver(["*"], (ErrorCode.INVALID_RECORD,))

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        await until(lambda: cluster.pushes)
        await producer.send_and_wait("t", b"y")

    run(cluster, body)
    assert len(cluster.pushes) == 1  # not even when it is closed


@pytest.mark.parametrize("offers", [True, False])
def test_client_does_not_ask_where_it_should_not(offers: bool) -> None:
    """The broker does not offer it, or pushing is switched off."""
    cluster = Receiver(["*"]) if offers else FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        with pytest.raises(IllegalState):
            await producer.client_instance_id()

    run(cluster, body, enable_metrics_push=not offers)
    assert cluster.count(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) == 0


def test_client_without_the_extra_does_not_push(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("odradek.client.metrics.push.find_spec", lambda name: None)
    cluster = Receiver(["*"])

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")

    with caplog.at_level("DEBUG", "odradek.client.metrics.push"):
        run(cluster, body)
    assert cluster.count(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) == 0
    assert [each.getMessage() for each in caplog.records if "telemetry" in each.getMessage()] == [
        "brokers ask for metrics (KIP-714): they are pushed with the extra telemetry only"
    ]


def test_admin_pushes_too() -> None:
    cluster = Receiver(["org.apache.kafka.admin.client.request"])

    async def main() -> None:
        async with Admin(network=cluster, **OPTIONS) as admin:  # type: ignore[arg-type]
            await admin.list_topics()
            await until(lambda: cluster.pushes)

    asyncio.run(main())
    assert "org.apache.kafka.admin.client.request.total" in cluster.pushed()


def test_metrics_of_the_application_are_pushed_until_unregistered() -> None:
    cluster = Receiver(["org.apache.kafka.shop."])
    own = Metric("orders-total", "shop-metrics", {}, 3.0, True, "Orders")

    def source() -> list[Metric]:
        return [own]

    async def main() -> None:
        async with Admin(network=cluster, **OPTIONS) as admin:  # type: ignore[arg-type]
            admin.register_metrics(source)
            await admin.list_topics()
            await until(lambda: cluster.pushes)
            assert cluster.pushed() == {"org.apache.kafka.shop.orders.total": 3.0}
            admin.unregister_metrics(source)
            before = len(cluster.pushes)
            await until(lambda: len(cluster.pushes) > before + 1)
            assert cluster.pushed() == {}

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_metrics_registered_with_producers_and_consumers_are_pushed(kind: type[Producer] | type[Consumer]) -> None:
    cluster = Receiver(["org.apache.kafka.shop."])
    own = Metric("orders-total", "shop-metrics", {}, 3.0, True, "Orders")

    def source() -> list[Metric]:
        return [own]

    async def main() -> None:
        client = kind(network=cluster, **OPTIONS)  # type: ignore[arg-type]
        with pytest.raises(IllegalState):
            client.register_metrics(source)
        async with client:
            client.register_metrics(source)
            await client.partitions_for("t")
            await until(lambda: cluster.pushes)
            assert cluster.pushed() == {"org.apache.kafka.shop.orders.total": 3.0}
            client.unregister_metrics(source)
            before = len(cluster.pushes)
            await until(lambda: len(cluster.pushes) > before + 1)
            assert cluster.pushed() == {}

    asyncio.run(main())
