"""A task that waits for records which do not come."""

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.model import RawFetch
from odradek.spark.offsets import OffsetRange, SourceError
from odradek.spark.options import SourceOptions
from odradek.spark.reading import _Reading

EMPTY = RawFetch(memoryview(b""), 3, 3, 0, [])


def reading(**given: str) -> _Reading:
    servers = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafkaconsumer.polltimeoutms": "1000"}
    options = SourceOptions.parse({**servers, **given}, streaming=False)
    return _Reading(options, Consumer(bootstrap_servers="127.0.0.1:1"), OffsetRange("t", 0, 0, 9))


def test_records_that_do_not_come_are_an_error_after_the_poll_timeout() -> None:
    task = reading()
    assert [task.next_position(EMPTY, 3) for _ in range(3)] == [3, 3, 3]
    with pytest.raises(SourceError, match=r"no record of t-0 came from offset 3 on within 1000 ms"):
        task.next_position(EMPTY, 3)


def test_range_ends_at_the_poll_timeout_when_loss_is_allowed() -> None:
    task = reading(failondataloss="false")
    assert [task.next_position(EMPTY, 3) for _ in range(4)] == [3, 3, 3, 9]
