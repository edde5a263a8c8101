"""Quotas at a running broker: the answer comes at once, the connection's next request waits."""

from __future__ import annotations

import contextlib
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.records.builder import encode_batch
from odradek.wire.messages import (
    alter_client_quotas,
    create_topics,
    delete_topics,
    fetch,
    incremental_alter_configs,
    metadata,
    produce,
)
from tests.integration.waiting import until

Connect = Callable[[str], Any]
RATE = 20_000
NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One window besides the running one: a client may use one second's bytes at once."""
    from bench.peers.broker import BrokerProcess

    with BrokerProcess(tmp_path_factory.mktemp("quotas") / "data", {"quota.window.num": 2}) as running:
        yield running


def limit(client: Any, key: str, value: float, *entity: tuple[str, str | None]) -> None:
    parts = [alter_client_quotas.AlterClientQuotasRequestEntity(*part) for part in entity]
    operation = alter_client_quotas.AlterClientQuotasRequestOp(key, value)
    entry = alter_client_quotas.AlterClientQuotasRequestEntry(parts, [operation])
    answer = client.call(alter_client_quotas.AlterClientQuotasRequest([entry]), 1)
    assert answer.entries[0].error_code == 0, answer


def new_topic(client: Any) -> str:
    name = f"q-{uuid.uuid4().hex[:12]}"
    request = create_topics.CreateTopicsRequest([create_topics.CreateTopicsRequestTopic(name, 1, 1)], 10_000)
    assert client.call(request, 7).topics[0].error_code == 0
    return name


def produce_request(topic: str, size: int, acks: int = 1) -> produce.ProduceRequest:
    batch = memoryview(encode_batch([(NOW_MS, None, b"x" * size, ())]))
    partition = produce.ProduceRequestPartition(0, batch)
    return produce.ProduceRequest(None, acks, 10_000, [produce.ProduceRequestTopic(topic, partition_data=[partition])])


def fetch_request(topic: str, offset: int) -> fetch.FetchRequest:
    partition = fetch.FetchRequestPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return fetch.FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[fetch.FetchRequestTopic(topic=topic, partitions=[partition])]
    )


METADATA = metadata.MetadataRequest(topics=[])


@pytest.mark.parametrize("acks", [1, 0])
def test_a_producer_above_its_quota_pauses(broker: Any, connect: Connect, acks: int) -> None:
    client, bystander = connect(broker.bootstrap), connect(broker.bootstrap)
    topic, name = new_topic(client), f"producer-{acks}"
    limit(client, "producer_byte_rate", RATE, ("client-id", name))
    # Before the request: what is measured from here is no shorter than the broker's pause, however late this runs.
    began = time.monotonic()
    token = client.send(produce_request(topic, RATE * 3 // 2, acks), 9, name)
    pause_ms = 0
    if acks:
        answer = client.receive(token)
        assert answer.responses[0].partition_responses[0].error_code == 0, "what was sent is taken"
        pause_ms = answer.throttle_time_ms
        assert 500 <= pause_ms <= 1500
    waiting = client.send(METADATA, 12, name)
    assert bystander.call(METADATA, 12).brokers, "others are served"
    assert client.receive(waiting).brokers
    assert time.monotonic() - began >= (pause_ms or 500) / 1000 - 0.05
    assert bystander.call(produce_request(topic, RATE * 3, 1), 9).throttle_time_ms == 0


def test_a_consumer_above_its_quota_gets_nothing_and_pauses(broker: Any, connect: Connect) -> None:
    client = connect(broker.bootstrap)
    topic, name = new_topic(client), "consumer"
    for _ in range(4):
        client.call(produce_request(topic, RATE // 2), 9)
    limit(client, "consumer_byte_rate", RATE, ("client-id", name))
    offset = 0
    pauses: list[int] = []
    # Again from the beginning if it took so long that the quota was not reached.
    while offset < 4 or not pauses:
        answer = client.receive(client.send(fetch_request(topic, offset % 4), 12, name))
        assert answer.error_code == 0
        if answer.throttle_time_ms:
            assert answer.responses == []
            pauses.append(answer.throttle_time_ms)
            continue
        records = answer.responses[0].partitions[0].records
        assert 0 < len(records) <= RATE, "no more than the quota of all windows at once"
        offset += 1
    assert all(pause < 2000 for pause in pauses)


def test_removed_quota_delays_no_client(broker: Any, connect: Connect) -> None:
    client = connect(broker.bootstrap)
    topic = new_topic(client)
    everybody = ("client-id", None)
    limit(client, "producer_byte_rate", 1_000_000_000, everybody)
    assert client.call(produce_request(topic, 100_000), 9).throttle_time_ms == 0
    parts = [alter_client_quotas.AlterClientQuotasRequestEntity(*everybody)]
    gone = alter_client_quotas.AlterClientQuotasRequestOp("producer_byte_rate", 0, remove=True)
    entry = alter_client_quotas.AlterClientQuotasRequestEntry(parts, [gone])
    assert client.call(alter_client_quotas.AlterClientQuotasRequest([entry]), 1).entries[0].error_code == 0
    assert client.call(produce_request(topic, 100_000), 9).throttle_time_ms == 0


def many_topics(prefix: str, count: int, partitions: int) -> create_topics.CreateTopicsRequest:
    topics = [create_topics.CreateTopicsRequestTopic(f"{prefix}-{i}", partitions, 1) for i in range(count)]
    return create_topics.CreateTopicsRequest(topics, 10_000)


@pytest.mark.parametrize("version", [7, 5])
def test_who_makes_too_many_partitions_is_rejected_or_made_to_wait(broker: Any, connect: Connect, version: int) -> None:
    """KIP-599: versions that know the error are refused what is too much; older ones get it, and pause."""
    client, name = connect(broker.bootstrap), f"mutations-{version}"
    limit(client, "controller_mutation_rate", 0.5, ("client-id", name))
    prefix = f"m-{uuid.uuid4().hex[:12]}"
    began = time.monotonic()
    answer = client.receive(client.send(many_topics(prefix, 4, 3), version, name))
    codes = sorted(topic.error_code for topic in answer.topics)
    # The bucket of eleven seconds holds 5.5 partitions: two topics of three overdraw it by 0.5 partitions.
    assert codes == ([0, 0, 89, 89] if version == 7 else [0] * 4)
    most_ms, took_ms = (1000 if version == 7 else 13_000), (time.monotonic() - began) * 1000
    assert most_ms - took_ms - 5 <= answer.throttle_time_ms <= most_ms, "it fills while the topics are being made"
    if version == 7:
        deletion = delete_topics.DeleteTopicsRequest(
            [delete_topics.DeleteTopicsRequestState(topic.name) for topic in answer.topics[:2]], timeout_ms=10_000
        )
        deleted = client.receive(client.send(deletion, 6, name))
        assert time.monotonic() - began >= answer.throttle_time_ms / 1000 - 0.05, "the connection has paused"
        assert [topic.error_code for topic in deleted.responses] == [0, 89]


def test_who_takes_too_much_time_pauses(broker: Any, connect: Connect) -> None:
    client, name = connect(broker.bootstrap), "busy"
    limit(client, "request_percentage", 0.001, ("client-id", name))
    began = time.monotonic()
    answer = client.receive(client.send(METADATA, 12, name))
    assert 0 < answer.throttle_time_ms <= 1000
    assert client.receive(client.send(METADATA, 12, name)).brokers
    assert time.monotonic() - began >= answer.throttle_time_ms / 1000 - 0.05
    assert client.call(METADATA, 12).throttle_time_ms == 0


def test_an_address_that_connects_too_often_is_kept_waiting_and_closed(broker: Any, connect: Connect) -> None:
    client = connect(broker.bootstrap)
    limit(client, "connection_creation_rate", 2, ("ip", "127.0.0.1"))
    address = broker.bootstrap.rpartition(":")[0], broker.port

    def two_of_eight() -> bool:
        """False if so much time went by among the connections that there was room for more of them."""
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            made = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(8)]
            try:
                assert all(each.recv(1) == b"" for each in made[2:]), "closed without an answer"
            except TimeoutError:
                return False
            assert time.monotonic() - began > 0.2, "not at once"
            made[0].sendall(bytes.fromhex("0000000a0012000000000001ffff"))
            assert made[0].recv(4), "those before are served"
        return True

    until(two_of_eight, "two of eight connections are served")
    operation = alter_client_quotas.AlterClientQuotasRequestOp("connection_creation_rate", 0, True)
    entity = alter_client_quotas.AlterClientQuotasRequestEntity("ip", "127.0.0.1")
    entry = alter_client_quotas.AlterClientQuotasRequestEntry([entity], [operation])
    assert client.call(alter_client_quotas.AlterClientQuotasRequest([entry]), 1).entries[0].error_code == 0
    assert connect(broker.bootstrap).call(METADATA, 12).brokers


def test_connections_above_the_rate_of_the_broker_wait(broker: Any, connect: Connect) -> None:
    client = connect(broker.bootstrap)

    def set_rate(value: str | None) -> None:
        operation = 0 if value is not None else 1
        config = incremental_alter_configs.IncrementalAlterConfigsRequestConfig(
            "max.connection.creation.rate", operation, value
        )
        resource = incremental_alter_configs.IncrementalAlterConfigsRequestResource(4, "", [config])
        answer = client.call(incremental_alter_configs.IncrementalAlterConfigsRequest([resource]), 1)
        assert answer.responses[0].error_code == 0, answer

    set_rate("4")
    began = time.monotonic()
    others = [connect(broker.bootstrap) for _ in range(8)]
    assert all(other.call(METADATA, 12).brokers for other in others)
    assert time.monotonic() - began > 0.3
    set_rate(None)
