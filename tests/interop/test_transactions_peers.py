"""Transactions of Apache's tools and Python clients, and what Apache's own broker does with a delayed EndTxn."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Producer
from kafka import KafkaProducer

from odradek.wire.errors import ErrorCode
from tests.integration.conftest import RawClient
from tests.integration.raw_transactions import RawTransactions, create_topic, read_committed

UniqueName = Callable[[str], str]


def rows(output: str) -> list[dict[str, str]]:
    """The table that Apache's `transactions` prints."""
    lines = [line for line in output.splitlines() if "\t" in line]
    header = [cell.strip() for cell in lines[0].split("\t")]
    return [dict(zip(header, (cell.strip() for cell in line.split("\t")), strict=False)) for line in lines[1:]]


def test_list_describe_and_describe_producers(bootstrap: str, java_tools: Any, unique_name: UniqueName) -> None:
    topic, transactional_id = unique_name("tx"), unique_name("id")
    client = RawClient(bootstrap)
    create_topic(client, topic)
    producer = RawTransactions(client, transactional_id)
    producer.init(client)
    producer.add(client, topic, 0)
    assert producer.produce(client, topic, b"x") is ErrorCode.NONE
    server = ("--bootstrap-server", bootstrap)
    listed = {row["TransactionalId"]: row for row in rows(java_tools.run("transactions", *server, "list"))}
    assert listed[transactional_id]["TransactionState"] == "Ongoing"
    (row,) = rows(java_tools.run("transactions", *server, "describe", "--transactional-id", transactional_id))
    assert (row["TransactionState"], row["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
    (row,) = rows(java_tools.run("transactions", *server, "describe-producers", "--topic", topic, "--partition", "0"))
    assert (row["ProducerId"], row["CurrentTransactionStartOffset"]) == (str(producer.producer_id), "0")
    assert producer.end(client).error_code == 0
    client.close()


def test_a_hanging_transaction_is_found_and_aborted(make_broker: Any, java_tools: Any, unique_name: UniqueName) -> None:
    """What brokers without verification let happen: records of a transaction that its coordinator does not know."""
    broker = make_broker({"transaction.partition.verification.enable": "false"}).start()
    topic = unique_name("tx")
    client = RawClient(broker.bootstrap)
    create_topic(client, topic)
    producer = RawTransactions(client, unique_name("id"))
    producer.init(client)
    # Older than the five minutes for which find-hanging believes that a transaction is just long.
    now_ms = time.time_ns() // 1_000_000 - 3_600_000
    assert producer.produce(client, topic, b"hanging", now_ms=now_ms) is ErrorCode.NONE
    server = ("--bootstrap-server", broker.bootstrap)
    (row,) = rows(java_tools.run("transactions", *server, "find-hanging", "--broker-id", "1"))
    assert (row["Topic"], row["ProducerId"], row["StartOffset"]) == (topic, str(producer.producer_id), "0")
    java_tools.run("transactions", *server, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert not rows(java_tools.run("transactions", *server, "find-hanging", "--broker-id", "1"))
    assert read_committed(client, topic) == []
    client.close()


def test_message_copier_with_random_aborts(bootstrap: str, java_tools: Any, unique_name: UniqueName) -> None:
    source, target, group = unique_name("source"), unique_name("target"), unique_name("group")
    client = RawClient(bootstrap)
    for topic in (source, target):
        create_topic(client, topic)
    values = [b"%d" % number for number in range(2000)]
    feeder = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        feeder.produce(source, value)
    feeder.flush()
    shown = java_tools.run(
        "transactional-message-copier", "--broker-list", bootstrap, "--transactional-id", unique_name("copier"),
        "--consumer-group", group, "--input-topic", source, "--input-partition", "0", "--output-topic", target,
        "--max-messages", "2000", "--transaction-size", "100", "--enable-random-aborts", "--group-mode",
    )  # fmt: skip
    events = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert events[-1]["totalProcessed"] == len(values)
    assert read_committed(client, target) == values
    client.close()


def test_transactional_perf_test(bootstrap: str, java_tools: Any, unique_name: UniqueName) -> None:
    topic = unique_name("tx")
    client = RawClient(bootstrap)
    create_topic(client, topic)
    shown = java_tools.run(
        "producer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "3000",
        "--record-size", "100", "--throughput", "-1", "--transactional-id", unique_name("id"),
        "--transaction-duration-ms", "20",
    )  # fmt: skip
    assert "3000 records sent" in shown
    assert len(read_committed(client, topic)) == 3000
    client.close()


def delayed_commit(bootstrap: str) -> tuple[bool, list[bytes]]:
    """A commit arrives late, on a connection that its producer has given up, while the next transaction is open.

    That one is aborted by its producer. Whether the abort was accepted, and what read_committed consumers see.
    """
    abandoned, newer = RawClient(bootstrap), RawClient(bootstrap)
    topic = f"tx-{uuid.uuid4().hex[:12]}"
    create_topic(newer, topic)
    producer = RawTransactions(abandoned, f"id-{uuid.uuid4().hex[:12]}")
    producer.init(abandoned)
    producer.add(abandoned, topic, 0)
    assert producer.produce(newer, topic, b"first") is ErrorCode.NONE
    delayed = producer.end_request(True)
    assert producer.end(newer).error_code == 0
    assert producer.add(newer, topic, 0) is ErrorCode.NONE
    assert producer.produce(newer, topic, b"second, aborted") is ErrorCode.NONE
    abandoned.send(delayed, 3)
    abandoned.is_closed_by_peer()  # or answered
    aborted = producer.end(newer, commit=False).error_code == 0
    found = read_committed(newer, topic)
    abandoned.close()
    newer.close()
    return aborted, found


def test_a_delayed_commit_has_no_effect_here(bootstrap: str) -> None:
    assert delayed_commit(bootstrap) == (True, [b"first"])


@pytest.mark.long
def test_a_delayed_commit_commits_the_next_transaction_in_apache_kafka(apache_kafka: str) -> None:
    """The fault that docs/RELIABILITY.md speaks of, shown where it is; no expectation of ours."""
    aborted, found = delayed_commit(apache_kafka)
    assert not aborted
    assert found == [b"first", b"second, aborted"]


def test_aiokafka(bootstrap: str, unique_name: UniqueName) -> None:
    topic, group = unique_name("tx"), unique_name("group")
    client = RawClient(bootstrap)
    create_topic(client, topic)

    async def work() -> int:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique_name("id"))
        await producer.start()
        place = AioTopicPartition(topic, 0)
        for turn in range(6):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % turn)
            await producer.send_offsets_to_transaction({place: turn + 1}, group)
            if turn % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
        await consumer.start()
        found: int = await consumer.committed(place)
        await consumer.stop()
        return found

    assert asyncio.run(work()) == 5
    assert read_committed(client, topic) == [b"0", b"2", b"4"]
    client.close()


def test_kafka_python(bootstrap: str, unique_name: UniqueName) -> None:
    topic = unique_name("tx")
    client = RawClient(bootstrap)
    create_topic(client, topic)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique_name("id"))
    producer.init_transactions()
    for turn in range(6):
        producer.begin_transaction()
        producer.send(topic, b"%d" % turn)
        if turn % 2:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    assert read_committed(client, topic) == [b"0", b"2", b"4"]
    client.close()


def refusals(bootstrap: str) -> dict[str, list[str]]:
    """Errors that a producer receives after its transaction was ended by its timeout or by its own recovery."""
    client = RawClient(bootstrap)
    topic = f"tx-{uuid.uuid4().hex[:12]}"
    create_topic(client, topic)
    deadline = time.monotonic() + 60
    while True:
        late = RawTransactions(client, f"id-{uuid.uuid4().hex[:12]}")
        late.init(client, timeout_ms=500)
        assert late.add(client, topic, 0) is ErrorCode.NONE
        if late.produce(client, topic, b"x") is ErrorCode.NONE:
            break
        # It is aborted already: this process had to wait for its turn.
        assert time.monotonic() < deadline
    while (code := late.add(client, topic, 0)) is ErrorCode.NONE and time.monotonic() < deadline:
        time.sleep(0.1)
    found = {
        "timed out, adds": [code.name, *(late.add(client, topic, 0, version=version).name for version in (1, 2))],
        "timed out, writes": [late.produce(client, topic, b"y").name],
    }
    for commit in (True, False):
        codes = [late.end(client, commit=commit, version=version).error_code for version in (1, 2, 3)]
        found[f"timed out, {'commits' if commit else 'aborts'}"] = [ErrorCode(code).name for code in codes]
    recovered = RawTransactions(client, f"id-{uuid.uuid4().hex[:12]}")
    recovered.init(client)
    assert recovered.add(client, topic, 0) is ErrorCode.NONE
    assert recovered.produce(client, topic, b"z") is ErrorCode.NONE
    assert recovered.init(client, recover=True).error_code == 0
    for commit in (True, False):
        answer = recovered.end(client, commit=commit, version=1)
        found[f"recovered, {'commits' if commit else 'aborts'}"] = [ErrorCode(answer.error_code).name]
    client.close()
    return found


REFUSALS = {
    "timed out, adds": ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"],
    "timed out, writes": ["INVALID_PRODUCER_EPOCH"],
    "timed out, commits": ["INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "PRODUCER_FENCED"],
    "timed out, aborts": ["INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "PRODUCER_FENCED"],
    # librdkafka may abort what its own recovery has aborted; this is fatal to it.
    "recovered, commits": ["INVALID_TXN_STATE"],
    "recovered, aborts": ["INVALID_TXN_STATE"],
}


def test_a_producer_whose_transaction_was_ended_by_others(bootstrap: str) -> None:
    assert refusals(bootstrap) == REFUSALS


@pytest.mark.long
def test_a_producer_whose_transaction_was_ended_by_others_in_apache_kafka(apache_kafka: str) -> None:
    assert refusals(apache_kafka) == REFUSALS
