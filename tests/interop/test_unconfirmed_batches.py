"""Batches that were appended and answered as unconfirmed, by a double between real clients and a real broker.

Each client repeats such a batch with its sequence, and the broker answers the repetition with the first one's offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from odradek.wire.errors import ErrorCode
from odradek.wire.produce import ProducedPartition, encode_response
from tests.integration.conftest import RawClient
from tests.integration.raw_transactions import create_topic, read_committed
from tests.interop.test_go_clients import go_clients, succeeds
from tests.interop.unconfirmed_double import UnconfirmedDouble, with_error

__all__ = ["go_clients"]

UNCONFIRMED = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
Answering = Callable[[ErrorCode, int], tuple[UnconfirmedDouble, str]]
codes = pytest.mark.parametrize("code", UNCONFIRMED, ids=lambda code: code.name)


@pytest.fixture
def answering(make_broker: Any, request: pytest.FixtureRequest) -> Iterator[Answering]:
    """A broker that clients reach through a double only: `answering(code, times)` gives it and HOST:PORT."""
    doubles = []

    def make(code: ErrorCode, times: int) -> tuple[UnconfirmedDouble, str]:
        double = UnconfirmedDouble(int(code), times)
        doubles.append(double)
        double.__enter__()
        broker = make_broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{double.port}"}).start()
        double.target = broker.port
        return double, f"127.0.0.1:{double.port}"

    yield make
    for double in doubles:
        double.__exit__()


def topic_of(bootstrap: str, name: str) -> RawClient:
    client = RawClient(bootstrap)
    create_topic(client, name)
    return client


@codes
def test_librdkafka_repeats_an_unconfirmed_batch(answering: Answering, code: ErrorCode) -> None:
    double, bootstrap = answering(code, 2)
    client = topic_of(bootstrap, "t")
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "retry.backoff.ms": 50})
    errors: list[object] = []
    for value in (b"a", b"b", b"c"):
        producer.produce("t", value, on_delivery=lambda error, _message: errors.append(error))
        producer.flush(20)
    assert errors == [None, None, None]
    assert double.changed == 2
    assert double.produced > 3
    assert read_committed(client, "t") == [b"a", b"b", b"c"]
    client.close()


@pytest.mark.parametrize(
    "code", [*UNCONFIRMED, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS], ids=lambda code: code.name
)
def test_librdkafka_loses_no_committed_record_after_an_abort(answering: Answering, code: ErrorCode) -> None:
    """The record of an aborted transaction was appended and purged; a later one must not be taken for it.

    The last two codes, which the broker never answers for an appended batch, make librdkafka reuse the sequence.
    """
    double, bootstrap = answering(code, 1_000_000)
    client = topic_of(bootstrap, "t")
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "id", "retry.backoff.ms": 50, "message.timeout.ms": 1000,
         "transaction.timeout.ms": 10_000}
    )  # fmt: skip
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", b"aborted")
    producer.flush(5)
    producer.abort_transaction(20)
    double.heal()
    committed = []
    for value in (b"first", b"second", b"third"):
        try:
            producer.begin_transaction()
            producer.produce("t", value)
            producer.commit_transaction(20)
        except KafkaException:
            producer.abort_transaction(20)
        else:
            committed.append(value)
    assert committed[-1:] == [b"third"], "the producer recovers"
    assert read_committed(client, "t") == committed
    client.close()


@codes
def test_java_client_repeats_an_unconfirmed_batch(java_tools: Any, answering: Answering, code: ErrorCode) -> None:
    double, bootstrap = answering(code, 2)
    client = topic_of(bootstrap, "t")
    java_tools.run("console-producer", "--bootstrap-server", bootstrap, "--topic", "t", stdin="a\nb\nc\n")
    assert double.changed == 2
    assert double.produced > 2
    assert read_committed(client, "t") == [b"a", b"b", b"c"]
    client.close()


@codes
def test_franz_go_repeats_an_unconfirmed_batch(go_clients: Path, answering: Answering, code: ErrorCode) -> None:
    """Its program reads what it has written, and fails if a record is missing or there twice."""
    double, bootstrap = answering(code, 2)
    succeeds(go_clients, bootstrap, "franz-transaction")
    assert double.changed == 2


@pytest.mark.parametrize("version", [8, 12, 13])
def test_double_changes_the_error_of_the_first_partition(version: int) -> None:
    topic: Any = b"i" * 16 if version >= 13 else "topic"
    before = bytes(encode_response(version, 7, [(topic, [ProducedPartition(3, 0, 5)])]))[4:]
    after = bytes(encode_response(version, 7, [(topic, [ProducedPartition(3, 20, 5)])]))[4:]
    assert with_error(before, version, 20) == after
