"""What is found about the records of a batch without decoding them is what the decoded records show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.batch import HEADER_SIZE, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, BatchHeader, parse_header
from odradek.records.builder import encode_batch, finish_batch
from odradek.records.errors import CorruptRecords
from odradek.records.examination import RecordFacts, examine_records
from odradek.records.record import decode_columns, decode_records
from odradek.records.uniform import SHORT_OFFSETS
from odradek.records.varied import varied_facts
from tests.unit.records.rebuilding import encode_record, rebuild_batch
from tests.unit.records.strategies import BATCHES, BLOBS, CODECS, HEADERS, Row

UNIFORM = st.builds(
    lambda count, step, key, value, headers: [(1_000 + step * n, key, value, headers) for n in range(count)],
    st.integers(1, 200),
    st.integers(0, 50),
    BLOBS,
    BLOBS,
    st.just(()) | HEADERS,
)
"""Records of one shape, which are examined by columns."""
SHORT = st.builds(lambda length, byte: bytes([byte]) * length, st.integers(0, 63), st.integers(0, 255))
VARIED = st.builds(
    lambda step, fields: [(1_000 + step * n // 4, key, value, ()) for n, (key, value) in enumerate(fields)],
    st.integers(0, 50),
    st.lists(st.tuples(st.none() | SHORT, BLOBS), min_size=8, max_size=150),
)
"""Records of varied lengths, which columns find out about, too."""
ANY = BATCHES | UNIFORM | VARIED
LIMIT = 1 << 20


def facts_of_decoded(view: memoryview, header: BatchHeader) -> RecordFacts:
    """The same facts from each record."""
    columns = decode_columns(view, header, max_uncompressed_bytes=LIMIT)
    return RecordFacts(
        has_null_key=None in columns.keys,
        least_timestamp=min((each for each in columns.timestamps if each != NO_TIMESTAMP), default=NO_TIMESTAMP),
        largest_timestamp=max(columns.timestamps, default=NO_TIMESTAMP),
        has_gaps=list(columns.offsets) != list(range(header.base_offset, header.base_offset + header.records_count)),
        most_headers=max(map(len, columns.headers), default=0),
    )


@given(VARIED)
def test_varied_records_need_no_walk(rows: list[Row]) -> None:
    batch = memoryview(encode_batch(rows))
    header = parse_header(batch)
    assert varied_facts(bytes(batch[HEADER_SIZE:]), header) is not None


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192, 8_193, 20_000])
@pytest.mark.parametrize("records_per_ms", [1, 7, 1_000])
def test_varied_records_need_no_walk_however_wide_times_and_offsets_are(count: int, records_per_ms: int) -> None:
    rows: list[Row] = [(1_000 + n // records_per_ms, b"k" * (n % 5), b"v" * (n % 70), ()) for n in range(count)]
    batch = memoryview(encode_batch(rows))
    header = parse_header(batch)
    facts = varied_facts(bytes(batch[HEADER_SIZE:]), header)
    if (count - 1) // records_per_ms < SHORT_OFFSETS:
        assert facts == (False, set(range((count - 1) // records_per_ms + 1)))
    assert examine_records(batch, header) == facts_of_decoded(batch, header)


@pytest.mark.parametrize("place", range(3))
def test_offset_that_is_not_the_next_one_is_left_to_the_walk(place: int) -> None:
    """In each byte that its delta has: the walk finds a gap, or that it is corrupt."""
    count = 20_000
    sections = [encode_record(0, n, b"k", b"v" * (n % 3), b"\0") for n in range(count)]
    broken = bytearray(sections[15_000])
    at = 3 + place  # behind a length of one byte, the attributes and a timestamp's delta of one
    broken[at] = broken[at] + 2 & 0x7F | broken[at] & 0x80
    sections[15_000] = bytes(broken)
    view = memoryview(finish_batch(b"".join(sections), 0, None, (count, count - 1, 0, 0)))
    header = parse_header(view)
    assert varied_facts(bytes(view[HEADER_SIZE:]), header) is None


@given(ANY, CODECS)
def test_facts_are_those_of_the_decoded_records(rows: list[Row], codec: int) -> None:
    view = memoryview(encode_batch(rows, compression=codec))
    header = parse_header(view)
    assert examine_records(view, header) == facts_of_decoded(view, header)


@given(ANY, CODECS, st.data())
def test_facts_are_those_of_the_records_that_compaction_leaves(
    rows: list[Row], codec: int, data: st.DataObject
) -> None:
    whole = memoryview(encode_batch(rows, compression=codec))
    header = parse_header(whole)
    kept = [each for each in decode_records(whole, header, copy=True) if data.draw(st.booleans())]
    view = memoryview(rebuild_batch(header, kept))
    header = parse_header(view)
    assert examine_records(view, header) == facts_of_decoded(view, header)


@given(ANY, CODECS, st.data())
def test_broken_records_are_corrupt_exactly_where_they_cannot_be_decoded(
    rows: list[Row], codec: int, data: st.DataObject
) -> None:
    batch = encode_batch(rows, compression=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    view = memoryview(batch)
    header = parse_header(view)
    try:
        expected = facts_of_decoded(view, header)
    except CorruptRecords:
        with pytest.raises(CorruptRecords):
            examine_records(view, header, max_uncompressed_bytes=LIMIT)
        return
    assert examine_records(view, header, max_uncompressed_bytes=LIMIT) == expected


@pytest.mark.parametrize("count", [1, 20])
def test_times_are_the_batchs_where_its_type_is_log_append_time(count: int) -> None:
    rows: list[Row] = [(1_000 + n, b"k", b"v", ()) for n in range(count)]
    batch = encode_batch(rows)
    batch[22] |= TIMESTAMP_TYPE_BIT
    view = memoryview(batch)
    header = parse_header(view)
    largest = 1_000 + count - 1
    assert examine_records(view, header)[1:3] == (largest, largest)


@pytest.mark.parametrize(
    ("deltas", "base", "bounds"),
    [
        ([0, 5, 3], 100, (100, 105)),
        ([0, -101, 3], 100, (100, 103)),
        ([-101, -101], 100, (NO_TIMESTAMP, NO_TIMESTAMP)),
    ],
)
def test_records_without_a_timestamp_do_not_count_for_the_least(
    deltas: list[int], base: int, bounds: tuple[int, int]
) -> None:
    section = b"".join(encode_record(delta, index, b"k", b"v", b"\0") for index, delta in enumerate(deltas))
    view = memoryview(finish_batch(section, 0, None, (len(deltas), len(deltas) - 1, base, base)))
    assert examine_records(view, parse_header(view))[1:3] == bounds
