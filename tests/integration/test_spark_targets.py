"""What the Spark sink does on the driver about the topic that it writes to, without a Java."""

import os
import uuid
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from odradek.spark.options import SinkOptions
from odradek.spark.target_topics import TargetMissing
from odradek.spark.transactions import TaskReport, begin, commit, write_rows
from odradek.testing.blocking import BlockingBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    with BlockingBroker({"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}) as broker:
        yield broker


def options(broker: BlockingBroker, topic: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "transactionalid": uuid.uuid4().hex}
    return SinkOptions.parse(given, streaming=False)


def test_micro_batch_into_a_missing_topic_fails_before_it_begins(
    broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.spark.target_topics.PATIENCE_MS", 200)
    with pytest.raises(TargetMissing, match="topic nowhere does not exist"):
        begin(options(broker, "nowhere"), os.getpid())


def test_micro_batch_without_rows_creates_the_topic_as_brokers_allow() -> None:
    """The batch's number is an offset of the topic, and committing an offset creates none."""
    with BlockingBroker({"auto.create.topics.enable": "true", "offsets.topic.num.partitions": "1"}) as broker:
        given = options(broker, "made")
        begun = begin(given, os.getpid())
        commit(given, [TaskReport(begun, 0, "q", write_rows(given, begun, 0, iter(())))], 0)
        recorded = begin(given, os.getpid()).recorded
        assert recorded is not None
        assert recorded.batch_id == 0
