"""What the tests of records have in common: random records, and how hard corrupt batches are to survive."""

from hypothesis import strategies as st

from odradek.records.record import Record
from odradek.records.section import Data

Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

LENGTHS = st.sampled_from([0, 1, 4, 7, 8, 9, 11, 12, 13, 20, 62, 63, 64, 127, 128, 200])
BLOBS = st.none() | st.builds(lambda length, byte: bytes([byte]) * length, LENGTHS, st.integers(0, 255)) | st.binary()
HEADERS = st.lists(st.tuples(st.text(max_size=20), BLOBS), max_size=3).map(tuple)
TIMESTAMPS = st.integers(0, 1 << 45) | st.integers(1_700_000_000_000, 1_700_000_000_200)
ROWS = st.tuples(TIMESTAMPS, BLOBS, BLOBS, st.just(()) | HEADERS)
BATCHES = st.lists(ROWS, min_size=1, max_size=40)
CODECS = st.integers(0, 4)


def plain(data: Data | None) -> bytes | None:
    return None if data is None else bytes(data)


def row_of(record: Record) -> Row:
    """A record without its offset, its slices made bytes."""
    headers = tuple((name, plain(value)) for name, value in record.headers)
    return record.timestamp, plain(record.key), plain(record.value), headers
