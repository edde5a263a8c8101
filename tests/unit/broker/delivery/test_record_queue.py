"""The queue of a broker's own records: bounded, in order, every loss counted."""

from __future__ import annotations

from odradek.broker.delivery.record_queue import RecordQueue
from odradek.records.batch import parse_header
from odradek.records.record import decode_records


def values(batch: bytearray) -> list[bytes | None]:
    records = decode_records(memoryview(batch), parse_header(batch))
    return [None if each.value is None else bytes(each.value) for each in records]


def test_queue_drops_and_counts_what_exceeds_its_bytes() -> None:
    queue = RecordQueue(lambda: 10)
    assert queue.offer(1, b"12345")
    assert queue.offer(2, b"67890")
    assert not queue.offer(3, b"x")
    assert (len(queue), queue.size, queue.lost) == (2, 10, 1)


def test_batches_are_bounded_and_keep_the_order() -> None:
    queue = RecordQueue(lambda: 10_000)
    for number in range(100):
        queue.offer(number, b"%03d" % number * 10)
    found: list[bytes | None] = []
    while len(queue):
        count, batch = queue.next_batch(1000)
        assert len(batch) <= 1000
        found += values(batch)
        queue.complete(count)
    assert found == [b"%03d" % number * 10 for number in range(100)]
    assert (queue.size, queue.written, queue.lost) == (0, 100, 0)


def test_event_that_is_larger_than_a_batch_is_written_alone() -> None:
    queue = RecordQueue(lambda: 10_000)
    queue.offer(1, bytes(2000))
    queue.offer(2, b"next")
    assert queue.next_batch(1000)[0] == 1


def test_dropped_events_are_counted_as_lost() -> None:
    queue = RecordQueue(lambda: 10)
    queue.offer(1, b"12345")
    queue.drop(1)
    queue.lose()
    assert (len(queue), queue.size, queue.lost, queue.written) == (0, 0, 2, 0)


def test_keys_and_headers_are_written_and_count() -> None:
    queue = RecordQueue(lambda: 30)
    assert queue.offer(1, b"value", b"key", (("name", b"text"),))
    assert queue.size == 26
    assert not queue.offer(2, b"value")
    _, batch = queue.next_batch(1000)
    (record,) = decode_records(memoryview(batch), parse_header(batch))
    assert (bytes(record.key or b""), list(record.headers)) == (b"key", [("name", b"text")])
    queue.complete(1)
    assert queue.size == 0
