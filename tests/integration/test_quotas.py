"""Byte-rate quotas at a running broker: the answer comes at once, the connection's next request waits."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.records.builder import encode_batch
from odradek.wire.messages import alter_client_quotas, create_topics, fetch, metadata, produce

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
    token = client.send(produce_request(topic, RATE * 3 // 2, acks), 9, name)
    pause_ms = 0
    if acks:
        answer = client.receive(token)
        assert answer.responses[0].partition_responses[0].error_code == 0, "what was sent is taken"
        pause_ms = answer.throttle_time_ms
        assert 500 <= pause_ms <= 1500
    began = time.monotonic()
    waiting = client.send(METADATA, 12, name)
    assert bystander.call(METADATA, 12).brokers, "others are served"
    assert client.receive(waiting).brokers
    assert time.monotonic() - began >= (pause_ms or 500) / 1000 - 0.3
    assert bystander.call(produce_request(topic, RATE * 3, 1), 9).throttle_time_ms == 0


def test_a_consumer_above_its_quota_gets_nothing_and_pauses(broker: Any, connect: Connect) -> None:
    client = connect(broker.bootstrap)
    topic, name = new_topic(client), "consumer"
    for _ in range(4):
        client.call(produce_request(topic, RATE // 2), 9)
    limit(client, "consumer_byte_rate", RATE, ("client-id", name))
    offset, pauses = 0, []
    while offset < 4:
        answer = client.receive(client.send(fetch_request(topic, offset), 12, name))
        assert answer.error_code == 0
        if answer.throttle_time_ms:
            assert answer.responses == []
            pauses.append(answer.throttle_time_ms)
            continue
        records = answer.responses[0].partitions[0].records
        assert 0 < len(records) <= RATE, "no more than the quota of all windows at once"
        offset += 1
    assert pauses
    assert all(pause < 2000 for pause in pauses)


def test_a_quota_that_goes_holds_nobody_back(broker: Any, connect: Connect) -> None:
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
