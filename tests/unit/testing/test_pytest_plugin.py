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
