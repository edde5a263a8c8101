"""The blocking face: coroutines run for threads, clients closed in order, errors and timeouts handed over."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.client.admin.blocking_admin import BlockingAdmin
from odradek.client.admin.topics import NewTopic
from odradek.client.blocking import Blocking, shared
from odradek.client.blocking_clients import BlockingProducer, BlockingTransactionalProducer
from odradek.client.consumer.blocking_consumer import BlockingConsumer
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import BufferExhausted, ClientClosed, IllegalState
from odradek.client.model import ConsumerRecord
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import State
from odradek.records.topic_partition import TopicPartition
from odradek.testing import BlockingBroker
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.client.consumers import filled
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster


def test_threads_share_one_producer_and_iterate_a_consumer() -> None:
    cluster = FakeCluster()
    with Blocking() as blocking:
        producer = blocking.open(Producer(network=cluster, **OPTIONS))

        def work(number: int) -> None:
            for _ in range(20):
                blocking.run(producer.send("t", b"%d" % number))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        blocking.run(producer.flush())
        assert sorted(cluster.values()) == sorted(b"%d" % number for number in range(4) for _ in range(20))
        consumer = blocking.open(
            Consumer(network=cluster, auto_offset_reset="earliest", fetch_max_wait_ms=5, **OPTIONS)
        )
        blocking.call(consumer.assign, [TopicPartition("t", 0)])
        found: list[ConsumerRecord] = []
        while len(found) < 80:
            # On a busy machine none may have come yet when the time is over.
            found += blocking.iterate(consumer, idle_timeout_s=0.1)
        assert len(found) == 80


def test_one_client_may_be_closed_before_the_others() -> None:
    with Blocking() as blocking:
        first, second = (blocking.open(Producer(network=FakeCluster(), **OPTIONS)) for _ in range(2))
        blocking.close_client(first)
        with pytest.raises(ClientClosed):
            blocking.run(first.send("t", b"1"))
        blocking.run(second.send("t", b"1"))


def test_errors_and_timeouts_reach_the_caller() -> None:
    async def fails() -> None:
        raise LookupError("here")

    with Blocking() as blocking:
        with pytest.raises(LookupError):
            blocking.run(fails())
        with pytest.raises(TimeoutError):
            blocking.run(asyncio.Event().wait(), timeout_s=0.01)


def test_the_shared_one_is_one() -> None:
    assert shared() is shared()


def face(cluster: FakeCluster, blocking: Blocking, *topics: str, **options: Any) -> BlockingConsumer:
    given: Any = {**OPTIONS, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 5, "network": cluster, **options}
    return BlockingConsumer.wrap(Consumer(*topics, **given), blocking)


def test_blocking_producer_waits_and_calls_back() -> None:
    outcomes: list[Any] = []
    with Blocking() as blocking:
        made: Producer = Producer(network=FakeCluster(), **OPTIONS)
        with BlockingProducer.wrap(made, blocking) as producer:
            assert producer.send_and_wait("t", b"0").offset == 0
            delivery = producer.send("t", b"1", on_delivery=lambda place, error: outcomes.append(place))
            assert delivery.result(60).offset == 1
            assert delivery.done()
            producer.flush()
            assert [each.partition for each in producer.partitions_for("t")] == [0]
    assert [each.offset for each in outcomes] == [1]


@pytest.fixture(scope="module")
def kafka() -> Iterator[BlockingBroker]:
    with BlockingBroker() as broker:
        yield broker


def test_producer_from_kafkas_names_sends_in_every_way(kafka: BlockingBroker) -> None:
    topic = kafka.topic(partitions=1)
    config = {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": "1"}
    with BlockingProducer[str, bytes].from_config(config, key_serializer=str.encode) as producer:
        assert producer.config["linger_ms"] == 1.0
        with pytest.raises(BufferExhausted, match="metadata"):
            producer.send_nowait(topic, b"too early")
        producer.partitions_for(topic)
        delivery = producer.send_nowait(topic, b"1", "k")
        assert delivery.result(60).offset == 0
        assert delivery.topic_partition == (topic, 0)
        with BlockingConsumer.from_config({"bootstrap.servers": kafka.bootstrap_servers}) as consumer:
            raw = consumer.fetch_raw(topic, 0, 0)
            batch = bytearray(raw.batches)
        batch[:8] = bytes(8)
        (copied,) = producer.send_batch(topic, 0, [batch], check_crc=True)
        assert copied.result(60).offset == 1
    assert [(each.key, each.value) for each in kafka.records(topic)] == [(b"k", b"1")] * 2


def test_transactional_producer_is_started_and_initialized_in_steps(kafka: BlockingBroker) -> None:
    topic = kafka.topic(partitions=1)
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic}
    progress: list[int] = []
    producer: BlockingTransactionalProducer[bytes, bytes] = BlockingTransactionalProducer.from_config(config)
    producer.start()
    try:
        assert (producer.transactional_id, producer.config["transactional_id"]) == (topic, topic)
        assert producer.state is State.UNINITIALIZED
        assert producer.initialize() == producer.identity
        assert len(producer.partitions_for(topic)) == 1
        with producer.transaction():
            assert producer.is_unfinished
            assert producer.send_and_wait(topic, b"1").offset == 0
            producer.send(topic, b"2")
            producer.flush(60, on_progress=progress.append)
        assert not producer.is_unfinished
        assert progress[-1] == 0
    finally:
        producer.close()
    assert [each.value for each in kafka.records(topic)] == [b"1", b"2"]


def test_transaction_of_another_process_is_continued_by_its_identity(kafka: BlockingBroker) -> None:
    topic = kafka.topic(partitions=1)
    options: Any = {"bootstrap_servers": kafka.bootstrap_servers, "transactional_id": topic}
    writer = BlockingTransactionalProducer(**options)
    with BlockingTransactionalProducer(**options) as owner:
        owner.begin()
        writer.start()
        try:
            writer.adopt(owner.identity)
            writer.send_and_wait(topic, b"by the other")
        finally:
            writer.close()
        owner.send_and_wait(kafka.topic(), b"its own")
        owner.commit()
    assert [each.value for each in kafka.records(topic)] == [b"by the other"]


def test_positions_in_a_for_loop_are_after_the_current_record() -> None:
    with Blocking() as blocking, face(filled(FakeCluster()), blocking) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        for record in consumer:
            assert consumer.positions()["t", 0].offset == record.offset + 1  # type: ignore[index]
            if record.offset == 7:
                break


def test_admin_for_threads_creates_describes_and_reports_errors_by_item(kafka: BlockingBroker) -> None:
    config = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": "clerk"}
    outcomes: list[Any] = []
    with BlockingAdmin.from_config(config) as admin:
        assert admin.config["client_id"] == "clerk"

        def create(name: str) -> None:
            outcomes.append(admin.create_topics([NewTopic(name, 1)])[name])

        threads = [threading.Thread(target=create, args=(name,)) for name in ("first", "second", "no name")]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert sorted(isinstance(each, KafkaError) for each in outcomes) == [False, False, True]
        assert {"first", "second"} <= set(admin.list_topics())
        failure = admin.groups.delete(["no-group"])["no-group"]
        assert failure is not None
        assert failure.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert admin.features.describe().finalized
        assert admin.metrics()
    with pytest.raises(ClientClosed):
        admin.list_topics()


def test_for_loop_commits_up_to_the_current_record_and_loses_none() -> None:
    cluster = filled(FakeCluster())
    with Blocking() as blocking, face(cluster, blocking, "t", group_id="g", enable_auto_commit=False) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 5:
                consumer.commit()
                assert cluster.committed["g"]["t", 0] == 6
                assert consumer.position(TopicPartition("t", 0)) == 6
                break
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 19:
                break
        assert seen == list(range(20))


def test_closing_in_a_for_loop_commits_what_was_yielded() -> None:
    cluster = filled(FakeCluster())
    with Blocking() as blocking:
        for record in (consumer := face(cluster, blocking, "t", group_id="g")).__enter__():
            if record.offset == 5:
                consumer.close()
    assert cluster.committed["g"]["t", 0] == 6


def test_seek_in_a_for_loop_takes_effect_at_once() -> None:
    with Blocking() as blocking, face(filled(FakeCluster()), blocking) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if len(seen) == 2:
                consumer.seek(TopicPartition("t", 0), 18)
            if record.offset == 19:
                break
        assert seen == [0, 1, 18, 19]


def test_consumer_is_for_one_thread_at_a_time() -> None:
    with Blocking() as blocking, face(FakeCluster(), blocking) as consumer:
        consumer.assign([TopicPartition("t", 0)])

        def poll() -> None:
            with pytest.raises(ClientClosed):
                consumer.poll(60_000)

        reading = threading.Thread(target=poll)
        reading.start()
        while not consumer._in_use.locked():
            reading.join(0.001)
        with pytest.raises(IllegalState, match="another thread"):
            consumer.poll()
        consumer.close()
        reading.join(10)
        assert not reading.is_alive()


def test_close_from_another_thread_ends_a_for_loop() -> None:
    with Blocking() as blocking, face(FakeCluster(), blocking) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        ends: list[list[ConsumerRecord]] = []
        reading = threading.Thread(target=lambda: ends.append(list(consumer)))
        reading.start()
        while not consumer._in_use.locked():
            reading.join(0.001)
        consumer.close()
        reading.join(10)
        assert ends == [[]]
