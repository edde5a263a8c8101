"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

ARGUMENTS = ("-p", "no:odradek", "-p", "odradek.testing.plugin", "-p", "no:cacheprovider", "-p", "no:randomly")


def test_topics_of_tests_are_empty_and_their_broker_is_shared(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        seen = {}

        def test_one(kafka_broker, kafka_topic):
            kafka_broker.produce(kafka_topic, "1")
            seen[kafka_topic] = kafka_broker.pid
            assert len(kafka_broker.records(kafka_topic)) == 1

        def test_two(kafka_broker, kafka_topic):
            assert kafka_broker.records(kafka_topic) == []
            seen[kafka_topic] = kafka_broker.pid
            assert len(seen) == 2
            assert len(set(seen.values())) == 1
        """
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=2)


def test_log_of_the_broker_is_shown_with_a_failure(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_fails(make_kafka_broker):
            make_kafka_broker({"num.partitions": 2})
            assert False
        """
    )
    result = pytester.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*log of the Kafka broker*", "*INFO odradek.broker: node 1 of cluster*serves on*"])


def test_cluster_of_the_session_has_three_brokers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_cluster(kafka_cluster):
            topic = kafka_cluster.topic()
            kafka_cluster.leader_of(topic).kill()
            kafka_cluster.produce(topic, "1")
            kafka_cluster.start()
            assert len(kafka_cluster.brokers) == 3
            assert len(kafka_cluster.records(topic)) == 1
        """
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=1)


def test_each_worker_of_xdist_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    """Two files in two workers: each test writes down its worker, its broker's process and its topic."""
    test = """
        import os
        from pathlib import Path

        import pytest

        @pytest.mark.parametrize("number", range(2))
        def test_one(kafka_broker, kafka_topic, number):
            kafka_broker.produce(kafka_topic, "1")
            assert len(kafka_broker.records(kafka_topic)) == 1
            with Path("seen").open("a") as file:
                file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {kafka_broker.pid} {kafka_topic}\\n")
        """
    pytester.makepyfile(test_first=test, test_second=test)
    result = pytester.runpytest_subprocess(*ARGUMENTS, "-n", "2", "--dist", "loadfile")
    result.assert_outcomes(passed=4)
    seen = [line.split() for line in (pytester.path / "seen").read_text().splitlines()]
    assert len(seen) == 4
    broker_of = {worker: pid for worker, pid, _ in seen}
    assert set(broker_of) == {"gw0", "gw1"}
    assert len(set(broker_of.values())) == 2
    assert all(broker_of[worker] == pid for worker, pid, _ in seen)
    assert len({(pid, topic) for _, pid, topic in seen}) == 4


def test_cluster_of_a_worker_of_xdist_serves(pytester: pytest.Pytester) -> None:
    test = """
        def test_cluster(kafka_cluster):
            topic = kafka_cluster.topic()
            kafka_cluster.produce(topic, "1")
            assert len(kafka_cluster.records(topic)) == 1
        """
    pytester.makepyfile(test_first=test, test_second=test)
    result = pytester.runpytest_subprocess(*ARGUMENTS, "-n", "2", "--dist", "loadfile")
    result.assert_outcomes(passed=2)


AIOKAFKA = """
    import asyncio

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


    async def write(servers, topic):
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            await producer.send_and_wait(topic, b"by aiokafka", key=b"k")


    async def read(servers, topic):
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=servers, group_id=f"of-{topic}", auto_offset_reset="earliest"
        )
        async with consumer:
            return (await asyncio.wait_for(consumer.getone(), 60)).value


    def write_now(servers, topic):
        asyncio.run(write(servers, topic))


    def read_now(servers, topic):
        return asyncio.run(read(servers, topic))
    """
KAFKA_PYTHON = """
    from kafka import KafkaConsumer, KafkaProducer


    def write_now(servers, topic):
        producer = KafkaProducer(bootstrap_servers=servers)
        producer.send(topic, b"by kafka-python", key=b"k").get(60)
        producer.close()


    def read_now(servers, topic):
        consumer = KafkaConsumer(
            topic, bootstrap_servers=servers, group_id=f"of-{topic}", auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
        )
        value = next(consumer).value
        consumer.close()
        return value
    """
CONFLUENT = """
    from confluent_kafka import Consumer, Producer


    def write_now(servers, topic):
        producer = Producer({"bootstrap.servers": servers})
        producer.produce(topic, b"by confluent-kafka", b"k")
        assert producer.flush(60) == 0


    def read_now(servers, topic):
        consumer = Consumer({
            "bootstrap.servers": servers, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"
        })
        consumer.subscribe([topic])
        message = consumer.poll(60)
        consumer.close()
        return message.value()
    """


@pytest.mark.parametrize("client", [AIOKAFKA, KAFKA_PYTHON, CONFLUENT], ids=["aiokafka", "kafka-python", "confluent"])
def test_fixtures_serve_other_clients(client: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        client=client,
        test_fixtures="""
        from client import read_now, write_now


        def test_broker(kafka_broker, kafka_topic):
            write_now(kafka_broker.bootstrap_servers, kafka_topic)
            (record,) = kafka_broker.records(kafka_topic)
            assert record.key == b"k"
            assert read_now(kafka_broker.bootstrap_servers, kafka_topic) == record.value


        def test_cluster(kafka_cluster):
            topic = kafka_cluster.topic()
            write_now(kafka_cluster.bootstrap_servers, topic)
            (record,) = kafka_cluster.records(topic)
            assert read_now(kafka_cluster.bootstrap_servers, topic) == record.value
        """,
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=2)
