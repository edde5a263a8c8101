"""Transactions of real clients and of requests by hand against a running broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.wire.apis import APIS, ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    describe_producers,
    describe_transactions,
    find_coordinator,
    list_transactions,
    write_txn_markers,
)
from tests.integration.as_broker import prove
from tests.integration.conftest import RawClient
from tests.integration.raw_transactions import RawTransactions, await_markers, create_topic, read_committed, retried

Connect = Callable[[str], Any]


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def versions_of(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def producer_of(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings})
    made.init_transactions(30)
    return made


def read_when_all_have_ended(bootstrap: str, topic: str, partitions: int = 1) -> list[str]:
    """What read_committed consumers get of transactions of which each one was committed or aborted."""
    client = RawClient(bootstrap)
    await_markers(client, topic, partitions)
    client.close()
    return read(bootstrap, topic, partitions)


def read(bootstrap: str, topic: str, partitions: int = 1, isolation: str = "read_committed") -> list[str]:
    """All values, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    values: dict[int, list[str]] = {partition: [] for partition in range(partitions)}
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        ended = 0
        while ended < partitions:
            message = consumer.poll(30)
            assert message is not None, f"nothing more after {values}"
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is None:
                values[partition].append((message.value() or b"").decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
    finally:
        consumer.close()
    return [value for partition in values.values() for value in partition]


@pytest.fixture
def topic(odradek_broker: Any) -> str:
    name = unique("tx")
    admin = AdminClient({"bootstrap.servers": odradek_broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    return name


def test_only_committed_records_are_read(odradek_broker: Any, topic: str) -> None:
    bootstrap = odradek_broker.bootstrap
    producer = producer_of(bootstrap, unique("id"))
    for turn in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, f"{turn}-{partition}", partition=partition)
        producer.flush()
        if turn % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    assert read_when_all_have_ended(bootstrap, topic, 2) == ["0-0", "2-0", "4-0", "0-1", "2-1", "4-1"]
    every = [f"{turn}-{partition}" for partition in (0, 1) for turn in range(6)]
    assert read(bootstrap, topic, 2, "read_uncommitted") == every


def test_an_open_transaction_holds_the_stable_offset_back(odradek_broker: Any, topic: str) -> None:
    bootstrap = odradek_broker.bootstrap
    producer = producer_of(bootstrap, unique("id"))
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush()
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, "behind it", partition=0)
    plain.flush()
    assert read(bootstrap, topic) == []
    producer.commit_transaction(30)
    assert read_when_all_have_ended(bootstrap, topic) == ["open", "behind it"]


def test_a_second_producer_fences_the_first(odradek_broker: Any, topic: str) -> None:
    bootstrap, transactional_id = odradek_broker.bootstrap, unique("id")
    first = producer_of(bootstrap, transactional_id)
    first.begin_transaction()
    first.produce(topic, "of the first", partition=0)
    first.flush()
    second = producer_of(bootstrap, transactional_id)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(30)
    assert refused.value.args[0].code() == KafkaError._FENCED
    second.begin_transaction()
    second.produce(topic, "of the second", partition=0)
    second.commit_transaction(30)
    assert read_when_all_have_ended(bootstrap, topic) == ["of the second"]


def test_offsets_are_committed_with_the_transaction(odradek_broker: Any, topic: str) -> None:
    bootstrap, group = odradek_broker.bootstrap, unique("group")
    plain = Producer({"bootstrap.servers": bootstrap})
    for i in range(10):
        plain.produce(topic, str(i), partition=0)
    plain.flush()
    # It would commit its own position every five seconds, over what the transactions committed.
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    place = TopicPartition(topic, 0)
    try:
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        producer = producer_of(bootstrap, unique("id"))
        for offset, commit, expected in ((4, True, 4), (6, False, 4), (8, True, 8)):
            producer.begin_transaction()
            producer.produce(topic, f"seen {offset}", partition=1)
            producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), 30
            )
            if commit:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
            assert consumer.committed([place], 30)[0].offset == expected
    finally:
        consumer.close()
    assert read_when_all_have_ended(bootstrap, topic, 2)[10:] == ["seen 4", "seen 8"]


def test_a_transaction_that_takes_too_long_is_aborted(odradek_broker: Any, connect: Connect) -> None:
    client = connect(odradek_broker.bootstrap)
    name = unique("tx")
    create_topic(client, name)
    while True:
        producer = RawTransactions(client, unique("id"))
        producer.init(client, timeout_ms=300)
        producer.add(client, name, 0)
        written = producer.produce(client, name, b"late")
        if written is ErrorCode.NONE:
            break
        # It is aborted already: this process had to wait for its turn.
        assert written in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
    request = describe_transactions.DescribeTransactionsRequest([producer.transactional_id])

    class Shown:
        def __init__(self) -> None:
            (state,) = client.call(request, 0).transaction_states
            self.error_code = state.transaction_state

    assert retried(Shown, "Ongoing", "PrepareAbort").error_code == "CompleteAbort"
    assert producer.end(client).error_code == ErrorCode.PRODUCER_FENCED
    assert read_committed(client, name) == []
    # KIP-360: the same producer gets its next epoch and continues.
    before = producer.producer_id
    assert producer.init(client, recover=True).error_code == 0
    assert (producer.producer_id, producer.epoch) == (before, 1)
    assert producer.add(client, name, 0) is ErrorCode.NONE
    assert producer.produce(client, name, b"in time") is ErrorCode.NONE
    assert producer.end(client).error_code == 0
    assert read_committed(client, name) == [b"in time"]


def test_transactions_outlive_the_broker(make_broker: Any) -> None:
    broker = make_broker().start()
    name = unique("tx")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    ends = {"commit": producer_of(broker.bootstrap, "commit"), "abort": producer_of(broker.bootstrap, "abort")}
    for ending, producer in ends.items():
        producer.begin_transaction()
        producer.produce(name, f"before, {ending}", partition=0)
        producer.flush()
    broker.kill()
    broker.start()
    for ending, producer in ends.items():
        producer.produce(name, f"after, {ending}", partition=1)
        producer.flush()
    ends["abort"].abort_transaction(30)
    ends["commit"].commit_transaction(30)
    assert read_when_all_have_ended(broker.bootstrap, name, 2) == ["before, commit", "after, commit"]
    broker.stop()
    broker.start()
    assert read_when_all_have_ended(broker.bootstrap, name, 2) == ["before, commit", "after, commit"]


def test_many_producers_at_once(odradek_broker: Any, topic: str) -> None:
    bootstrap = odradek_broker.bootstrap

    def work(worker: int) -> None:
        producer = producer_of(bootstrap, f"{topic}-{worker}")
        for turn in range(10):
            producer.begin_transaction()
            producer.produce(topic, f"{worker}-{turn}", partition=worker % 2)
            if (worker + turn) % 3:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {f"{worker}-{turn}" for worker in range(6) for turn in range(10) if (worker + turn) % 3}
    found = read_when_all_have_ended(bootstrap, topic, 2)
    assert len(found) == len(expected)
    assert set(found) == expected


# --- by hand ---


@pytest.fixture
def client(odradek_broker: Any, connect: Connect) -> Any:
    return connect(odradek_broker.bootstrap)


def test_every_version_of_the_first_protocol(client: Any) -> None:
    name = unique("tx")
    create_topic(client, name)
    written = []
    for version in versions_of(ApiKey.INIT_PRODUCER_ID):
        producer = RawTransactions(client, unique("id"))
        assert producer.init(client, version).error_code == 0
        for add_version in range(4):
            for end_version in range(5):
                value = b"%d %d %d" % (version, add_version, end_version)
                assert producer.add(client, name, 0, version=add_version) is ErrorCode.NONE
                assert producer.produce(client, name, value) is ErrorCode.NONE
                assert producer.end(client, version=end_version).error_code == 0
                written.append(value)
    assert read_committed(client, name) == written


def test_the_second_protocol_adds_by_writing_and_bumps_by_ending(client: Any) -> None:
    name = unique("tx")
    create_topic(client, name)
    producer = RawTransactions(client, unique("id"))
    producer.init(client)
    for turn in range(3):
        assert (producer.epoch, producer.sequences) == (turn, {})
        assert producer.produce(client, name, b"%d" % turn, version=12) is ErrorCode.NONE
        stale = (producer.producer_id, producer.epoch)
        assert producer.end(client, commit=turn != 1, version=5).error_code == 0
    assert read_committed(client, name) == [b"0", b"2"]
    producer.use(*stale)
    assert producer.produce(client, name, b"of an older epoch", version=12) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_write_outside_of_the_transaction_is_rejected(client: Any) -> None:
    name = unique("tx")
    create_topic(client, name, 2)
    producer = RawTransactions(client, unique("id"))
    producer.init(client)
    assert producer.produce(client, name, b"x") is ErrorCode.INVALID_TXN_STATE
    assert producer.produce(client, name, b"x", version=11) is ErrorCode.TRANSACTION_ABORTABLE
    producer.add(client, name, 0)
    assert producer.produce(client, name, b"x", partition=1) is ErrorCode.INVALID_TXN_STATE
    assert producer.produce(client, name, b"x") is ErrorCode.NONE
    assert producer.end(client).error_code == 0
    assert producer.produce(client, name, b"x") is ErrorCode.INVALID_TXN_STATE
    producer.transactional_id = unique("unknown")
    assert producer.produce(client, name, b"x", version=12) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transactional_batch_needs_a_transactional_id(client: Any) -> None:
    name = unique("tx")
    create_topic(client, name)
    producer = RawTransactions(client, unique("id"))
    producer.init(client)
    request = producer.produce_request(name, 0, b"x")
    request.transactional_id = None
    answer = client.call(request, 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_errors_of_older_versions(client: Any) -> None:
    name = unique("tx")
    create_topic(client, name)
    producer = RawTransactions(client, unique("id"))
    producer.init(client)
    producer.epoch += 5
    codes = {version: producer.add(client, name, 0, version=version) for version in range(4)}
    fenced, invalid = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
    assert codes == {0: invalid, 1: invalid, 2: fenced, 3: fenced}
    ends = {version: producer.end(client, version=version).error_code for version in range(6)}
    assert ends == {0: invalid, 1: invalid, 2: fenced, 3: fenced, 4: fenced, 5: fenced}
    inits = {version: producer.init(client, version, recover=True).error_code for version in (3, 4, 5)}
    assert inits == {3: invalid, 4: fenced, 5: fenced}
    request = add_offsets_to_txn.AddOffsetsToTxnRequest(
        producer.transactional_id, producer.producer_id, producer.epoch, "group"
    )
    group = find_coordinator.FindCoordinatorRequest(key="group", key_type=0)
    retried(lambda: client.call(group, 3), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    offsets = {version: client.call(request, version).error_code for version in versions_of(ApiKey.ADD_OFFSETS_TO_TXN)}
    assert offsets == {0: invalid, 1: invalid, 2: fenced, 3: fenced, 4: fenced}


def test_partitions_that_do_not_exist_add_none(client: Any) -> None:
    name = unique("tx")
    create_topic(client, name)
    producer = RawTransactions(client, unique("id"))
    producer.init(client)
    (answer,) = client.call(producer.add_request(name, 0, 7), 3).results_by_topic_v3_and_below
    assert [result.partition_error_code for result in answer.results_by_partition] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_and_add_in_batches(odradek_broker: Any, client: Any, version: int) -> None:
    prove(client, odradek_broker.data_dir)
    name = unique("tx")
    create_topic(client, name, 2)
    producer = RawTransactions(client, unique("id"))
    producer.init(client)
    topics = [add_partitions_to_txn.AddPartitionsToTxnRequestTopic(name, [0, 1])]

    def ask(verify_only: bool, transactional_id: str = producer.transactional_id) -> list[int]:
        wanted = add_partitions_to_txn.AddPartitionsToTxnRequestTransaction(
            transactional_id, producer.producer_id, producer.epoch, verify_only, topics
        )
        request = add_partitions_to_txn.AddPartitionsToTxnRequest([wanted])
        (answer,) = client.call(request, version).results_by_transaction
        return [result.partition_error_code for result in answer.topic_results[0].results_by_partition]

    producer.add(client, name, 0)
    assert ask(True) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert ask(False) == [ErrorCode.NONE, ErrorCode.NONE]
    assert ask(True) == [ErrorCode.NONE, ErrorCode.NONE]
    assert ask(True, unique("unknown")) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_describe_and_list(client: Any) -> None:
    name, transactional_id = unique("tx"), unique("id")
    create_topic(client, name, 2)
    producer = RawTransactions(client, transactional_id)
    producer.init(client)
    producer.add(client, name, 0, 1)
    producer.produce(client, name, b"x", partition=1)
    request = describe_transactions.DescribeTransactionsRequest([transactional_id, "unknown", ""])
    found, unknown, empty = client.call(request, 0).transaction_states
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", producer.producer_id, 0)
    assert [(entry.topic, entry.partitions) for entry in found.topics] == [(name, [0, 1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST

    wanted = [describe_producers.DescribeProducersRequestTopic(name, [1, 9])]
    known, missing = client.call(describe_producers.DescribeProducersRequest(wanted), 0).topics[0].partitions
    (state,) = known.active_producers
    assert (state.producer_id, state.last_sequence, state.current_txn_start_offset) == (producer.producer_id, 0, 0)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def listed(version: int = 2, **filters: Any) -> set[str]:
        answer = client.call(list_transactions.ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return {entry.transactional_id for entry in answer.transaction_states}

    for version in versions_of(ApiKey.LIST_TRANSACTIONS):
        assert transactional_id in listed(version)
    assert transactional_id in listed(state_filters=["Ongoing"])
    assert transactional_id not in listed(state_filters=["CompleteCommit"])
    assert listed(producer_id_filters=[producer.producer_id]) == {transactional_id}
    assert transactional_id not in listed(duration_filter=600_000)
    assert listed(transactional_id_pattern=transactional_id[:-1] + ".") == {transactional_id}
    assert transactional_id not in listed(transactional_id_pattern="i")
    answer = client.call(list_transactions.ListTransactionsRequest(["Ongoing", "Nonsense"]), 2)
    assert answer.unknown_state_filters == ["Nonsense"]
    answer = client.call(list_transactions.ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("version", versions_of(ApiKey.WRITE_TXN_MARKERS))
def test_markers_from_elsewhere_end_a_transaction(client: Any, version: int) -> None:
    name = unique("tx")
    create_topic(client, name)
    producer = RawTransactions(client, unique("id"))
    producer.init(client)
    producer.add(client, name, 0)
    producer.produce(client, name, b"x")

    def write(epoch: int, partition: int = 0, coordinator_epoch: int = 0) -> int:
        topics = [write_txn_markers.WriteTxnMarkersRequestTopic(name, [partition])]
        marker = write_txn_markers.WriteTxnMarkersRequestMarker(
            producer.producer_id, epoch, False, topics, coordinator_epoch
        )
        answer = client.call(write_txn_markers.WriteTxnMarkersRequest([marker]), version)
        code: int = answer.markers[0].topics[0].partitions[0].error_code
        return code

    assert write(-1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(0, partition=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert write(0) == ErrorCode.NONE
    wanted = [describe_producers.DescribeProducersRequestTopic(name, [0])]
    (known,) = client.call(describe_producers.DescribeProducersRequest(wanted), 0).topics[0].partitions
    assert known.active_producers[0].current_txn_start_offset == -1


def test_features_name_the_second_protocol(client: Any) -> None:
    request = api_versions.ApiVersionsRequest("test", "1")
    for version in (3, 4):
        answer = client.call(request, version)
        assert answer.finalized_features_epoch >= 0
        (finalized,) = (f for f in answer.finalized_features if f.name == "transaction.version")
        assert (finalized.name, finalized.max_version_level) == ("transaction.version", 2)
        supported = {feature.name for feature in answer.supported_features}
        assert ("transaction.version" in supported) == (version > 3)


# --- frames that arrive late (docs/RELIABILITY.md) ---


@pytest.mark.parametrize("delayed_commit", [True, False])
def test_a_delayed_end_does_not_touch_the_next_transaction(
    odradek_broker: Any, connect: Connect, delayed_commit: bool
) -> None:
    bootstrap = odradek_broker.bootstrap
    abandoned, newer, data = connect(bootstrap), connect(bootstrap), connect(bootstrap)
    name = unique("tx")
    create_topic(data, name)
    producer = RawTransactions(abandoned, unique("id"))
    producer.init(abandoned)
    producer.add(abandoned, name, 0)
    producer.produce(data, name, b"first")
    delayed = producer.end_request(delayed_commit)
    # The client gets no response on its connection, opens another one, and repeats its request there.
    assert producer.end(newer, commit=delayed_commit).error_code == 0
    assert producer.add(newer, name, 0) is ErrorCode.NONE
    assert producer.produce(data, name, b"second") is ErrorCode.NONE
    # Only now the frame of the first transaction arrives.
    abandoned.send(delayed, 3)
    assert abandoned.is_closed_by_peer()
    assert producer.produce(data, name, b"second, too") is ErrorCode.NONE
    assert producer.end(newer, commit=not delayed_commit).error_code == 0
    first, second = [b"first"], [b"second", b"second, too"]
    assert read_committed(data, name) == (first if delayed_commit else second)


def test_other_requests_on_an_abandoned_connection_have_no_effect(odradek_broker: Any, connect: Connect) -> None:
    bootstrap = odradek_broker.bootstrap
    name = unique("tx")
    setup = connect(bootstrap)
    create_topic(setup, name, 2)
    producer = RawTransactions(setup, unique("id"))
    old = [connect(bootstrap) for _ in range(3)]
    newer = connect(bootstrap)
    producer.init(old[0])
    producer.add(newer, name, 0)
    offsets = add_offsets_to_txn.AddOffsetsToTxnRequest(producer.transactional_id, producer.producer_id, 0, "group")
    old[0].send(producer.add_request(name, 1), 3)
    old[1].send(offsets, 3)
    assert old[0].is_closed_by_peer()
    assert old[1].is_closed_by_peer()
    (state,) = newer.call(
        describe_transactions.DescribeTransactionsRequest([producer.transactional_id]), 0
    ).transaction_states
    assert [(entry.topic, entry.partitions) for entry in state.topics] == [(name, [0])]
    # The client with the newer connection continues.
    assert producer.end(connect(bootstrap)).error_code == 0
