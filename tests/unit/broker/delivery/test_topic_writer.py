"""The writer of a topic while the topic has leaders, and while it has none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from odradek.broker.cluster.peers import Purpose
from odradek.broker.delivery import topic_writer
from odradek.broker.delivery.record_queue import RecordQueue
from odradek.broker.delivery.topic_writer import Leaders, TopicDelivery, TopicWriter
from odradek.metadata.image import AUDIT_TOPIC, ClusterImage, PartitionState, Topic
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.produce import ProduceResponse, ProduceResponsePartition, ProduceResponseTopic

SECONDS = 30
RETRY_SECONDS = topic_writer.RETRY_SECONDS
"""Of the product; the tests retry sooner."""


class World:
    """A topic that fails with these errors, one after the other, before it takes batches."""

    def __init__(self, *errors: ErrorCode) -> None:
        self.errors = list(errors)
        self.batches: list[bytes] = []
        self.queue = RecordQueue(lambda: 100)

    async def write(self, batch: bytearray) -> None:
        if self.errors:
            raise KafkaError(self.errors.pop(0))
        self.batches.append(bytes(batch))

    def run(self, events: int, is_done: Callable[[], bool]) -> None:
        async def scenario() -> None:
            writer = TopicWriter(AUDIT_TOPIC, self.queue, self.write)
            writer.start()
            for _ in range(events):
                self.queue.offer(1, bytes(10))
            async with asyncio.timeout(SECONDS):
                while not is_done():
                    await asyncio.sleep(0.001)
            await writer.stop()

        asyncio.run(scenario())


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_writer, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(topic_writer, "FLUSH_SECONDS", 0.05)


def test_events_wait_in_the_queue_until_the_topic_has_a_leader(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(*[ErrorCode.LEADER_NOT_AVAILABLE] * 6)
    world.run(12, lambda: world.queue.written == 10)
    assert (world.queue.written, world.queue.lost) == (10, 2)
    text = caplog.text
    assert text.count("cannot write to __odradek_audit: LEADER_NOT_AVAILABLE") == 1
    assert "2 records of __odradek_audit are lost" in text
    assert "__odradek_audit is written again" in text


@pytest.mark.parametrize(("failures", "lines"), [(3, 0), (4, 1)])
def test_failures_are_logged_from_the_fourth_in_a_row(
    failures: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that was just created has no leader for a moment."""
    world = World(*[ErrorCode.LEADER_NOT_AVAILABLE] * failures)
    world.run(1, lambda: world.queue.written == 1)
    assert caplog.text.count("cannot write to __odradek_audit") == lines


def test_records_are_written_again_after_a_quarter_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue fills, and audit events are lost, the longer a writer stays away from a topic that has a leader."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(topic_writer, "RETRY_SECONDS", RETRY_SECONDS)
    monkeypatch.setattr(topic_writer, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": noted}))
    world = World(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE)
    world.run(1, lambda: world.queue.written == 1)
    assert pauses == [0.25, 0.25]


def test_events_that_the_topic_rejects_are_given_up() -> None:
    world = World(ErrorCode.MESSAGE_TOO_LARGE)
    world.run(1, lambda: world.queue.lost == 1)
    assert not world.batches


def test_stop_gives_up_what_cannot_be_written() -> None:
    world = World(*[ErrorCode.LEADER_NOT_AVAILABLE] * 100_000)
    world.run(3, lambda: len(world.errors) < 99_990)
    assert (len(world.queue), world.queue.lost) == (0, 3)


class Elsewhere:
    """Other brokers that lead the topic, and the controller."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.asked: list[object] = []
        self.code = code

    async def request(self, purpose: object, broker_id: int, *_request: object) -> ProduceResponse:
        self.asked.append(broker_id)
        return ProduceResponse([ProduceResponseTopic(AUDIT_TOPIC, partition_responses=[
            ProduceResponsePartition(0, self.code)])])  # fmt: skip

    async def auto_create(self, names: list[str]) -> dict[str, ErrorCode]:
        self.asked.append(names)
        return {}

    def require(self, topic: str, index: int) -> object:
        raise AssertionError


def deliver(elsewhere: Elsewhere, *leaders: int, creates: bool = True) -> None:
    states = tuple(PartitionState(leader, 0, (1, 2, 3), (1, 2, 3)) for leader in leaders)
    image = ClusterImage()
    if leaders:
        image = image.with_topics([Topic(AUDIT_TOPIC, bytes(16), states)])
    brokers = Leaders(1, lambda: image, elsewhere, elsewhere, lambda: 0)  # type: ignore[arg-type]
    delivery = TopicDelivery(AUDIT_TOPIC, Purpose.AUDIT, brokers, elsewhere if creates else None)
    asyncio.run(delivery.write(bytearray(10)))


def test_leader_on_another_broker_is_asked() -> None:
    elsewhere = Elsewhere()
    deliver(elsewhere, -1, 2)
    assert elsewhere.asked == [2]


def test_error_of_the_other_broker_is_raised() -> None:
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        deliver(Elsewhere(ErrorCode.NOT_LEADER_OR_FOLLOWER), 2)


def test_missing_topic_is_created() -> None:
    elsewhere = Elsewhere()
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        deliver(elsewhere)
    assert elsewhere.asked == [[AUDIT_TOPIC]]


def test_topic_without_leaders_is_an_error() -> None:
    with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE"):
        deliver(Elsewhere(), -1, -1)


def test_missing_topic_of_operators_is_not_created() -> None:
    elsewhere = Elsewhere()
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: create the topic"):
        deliver(elsewhere, creates=False)
    assert not elsewhere.asked


def test_writer_that_fails_logs_that_its_records_are_lost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail_once(_batch: bytearray) -> None:
        if not caplog.records:
            raise ValueError("a defect")

    world = World()
    monkeypatch.setattr(world, "write", fail_once)
    world.run(1, lambda: bool(caplog.records))
    assert "the writer of __odradek_audit failed; its records are lost from here on" in caplog.text


def test_first_lost_record_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    world = World(ErrorCode.MESSAGE_TOO_LARGE)
    world.run(1, lambda: world.queue.lost == 1)
    assert "1 records of __odradek_audit are lost" in caplog.text
