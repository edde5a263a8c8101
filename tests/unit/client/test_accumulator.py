"""The accumulator's batches: what fits, what is copied, and that no batch exceeds its size."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.client.producer.accumulator import Accumulator, Batch
from odradek.records.batch import parse_header
from odradek.records.record import decode_records
from odradek.records.section import encode_headers

KEY = ("orders", 0)
NOW = 1_700_000_000_000


def append(
    accumulator: Accumulator, stamp: int, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]
) -> Batch:
    added = accumulator.append(KEY, stamp, key, value, encode_headers(headers) if headers else b"", lambda: 0.0)
    assert added is not None
    return added[0]


CONTENT = st.one_of(st.none(), st.binary(max_size=200))
ROWS = st.lists(
    st.tuples(
        st.one_of(st.integers(NOW, NOW + 1000), st.integers(0, 2**62)),
        CONTENT,
        CONTENT,
        st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=20)), max_size=2),
    ),
    min_size=1,
    max_size=60,
)


@given(ROWS, st.integers(100, 2000))
def test_batches_hold_the_records_in_order_within_their_size(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]], batch_size: int
) -> None:
    accumulator = Accumulator(batch_size, 1 << 30, 0, None)
    for row in rows:
        append(accumulator, *row)
    queue = accumulator.queues[KEY]
    found = []
    while queue.batches:
        batch = queue.take()
        bound, count = batch.size, batch.count
        data = memoryview(batch.encode())
        assert len(data) <= bound
        assert len(data) <= batch_size or count == 1
        assert batch.count == count
        found += [
            (each.timestamp, each.key, each.value, [(name, bytes(value or b"")) for name, value in each.headers])
            for each in decode_records(data, parse_header(data), copy=True)
        ]
    assert found == rows


@given(st.sampled_from([None, 0, 63, 64, 4000]), st.sampled_from([None, 0, 63, 64, 3990]))
def test_a_full_batch_of_equal_records_stays_within_its_size(key: int | None, value: int | None) -> None:
    accumulator = Accumulator(200_000, 1 << 30, 0, None)
    keys, values = [None if size is None else bytes(size) for size in (key, value)]
    batch = append(accumulator, NOW, keys, values, [])
    late = NOW + (1 << 19)
    while batch.count < 8192 and append(accumulator, late, keys, values, []) is batch:
        pass
    bound = batch.size
    assert len(accumulator.queues[KEY].take().encode()) <= bound


def test_a_buffer_that_changes_after_the_append_is_sent_as_it_was() -> None:
    accumulator, value = Accumulator(1000, 1 << 20, 0, None), bytearray(b"before")
    batch = accumulator.append(KEY, NOW, memoryview(value), value, b"", lambda: 0.0)
    assert batch is not None
    value[:] = b"after!"
    data = memoryview(accumulator.queues[KEY].take().encode())
    (record,) = decode_records(data, parse_header(data), copy=True)
    assert (record.key, record.value) == (b"before", b"before")


def test_a_batch_that_is_taken_accepts_no_more_records() -> None:
    accumulator = Accumulator(1000, 1 << 20, 0, None)
    first = append(accumulator, NOW, None, b"1", [])
    assert first.limit == 1000
    assert accumulator.queues[KEY].take() is first
    assert first.limit == 0
    assert append(accumulator, NOW, None, b"2", []) is not first


@given(st.integers(0, 10**10), st.sampled_from((0.001, 0.005, 0.1)))
def test_batch_is_due_at_the_time_of_its_timer(created_ms: int, linger_s: float) -> None:
    """With a clock of whole milliseconds, as uvloop's: (created + linger) - created may be less than the linger."""
    accumulator = Accumulator(1000, 1 << 20, 0, None)
    created = created_ms / 1000
    accumulator.append(KEY, NOW, None, b"value", b"", lambda: created)
    queue = accumulator.queues[KEY]
    assert accumulator.is_due(queue, created + linger_s, linger_s, force=False)
    assert not accumulator.is_due(queue, created + linger_s / 2, linger_s, force=False)
