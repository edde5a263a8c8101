import struct
from collections.abc import Callable

import pytest
from fastcrc.crc32 import iscsi as crc32c

from odradek.records import batch as b
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.errors import CorruptRecords, InvalidRecords, UnsupportedMagic

DEFAULT = BatchFields()
ROWS = [(1000 + i, b"key%d" % i, b"value" * i, ()) for i in range(5)]
PRODUCER = BatchFields(producer_id=77, producer_epoch=3, base_sequence=10)


def make(fields: BatchFields = DEFAULT, count: int = 5, codec: int = 0) -> memoryview:
    return memoryview(encode_batch(ROWS[:count], fields, compression=codec))


def patched(view: memoryview, position: int, fmt: str, value: int) -> memoryview:
    struct.pack_into(fmt, view, position, value)
    b.patch_crc(view, 0, len(view) - b.LOG_OVERHEAD)
    return view


def test_the_header_has_the_fields_where_the_protocol_puts_them() -> None:
    view = make(BatchFields(9, 4, 77, 3, 10, is_transactional=True), codec=3)
    header = b.check_batch(view, from_client=False)
    assert b.HEADER.size == b.HEADER_SIZE == 61
    assert header.base_offset == int.from_bytes(view[0:8]) == 9
    assert header.batch_length == int.from_bytes(view[8:12]) == len(view) - 12
    assert header.partition_leader_epoch == int.from_bytes(view[12:16]) == 4
    assert header.magic == view[16] == 2
    assert header.crc == int.from_bytes(view[17:21])
    assert header.attributes == int.from_bytes(view[21:23])
    assert header.last_offset_delta == int.from_bytes(view[23:27]) == 4
    assert header.base_timestamp == int.from_bytes(view[27:35]) == 1000
    assert header.max_timestamp == int.from_bytes(view[35:43]) == 1004
    assert header.producer_id == int.from_bytes(view[43:51]) == 77
    assert header.producer_epoch == int.from_bytes(view[51:53]) == 3
    assert header.base_sequence == int.from_bytes(view[53:57]) == 10
    assert header.records_count == int.from_bytes(view[57:61]) == 5
    assert (header.size, header.last_offset, header.next_offset, header.last_sequence) == (len(view), 13, 14, 14)
    assert (header.is_transactional, header.is_control, header.has_delete_horizon, header.has_producer_id) == (
        True, False, False, True,
    )  # fmt: skip


def test_a_batch_of_known_bytes() -> None:
    """Worked out by hand from the protocol's description; the CRC is fastcrc's, as no other field leads to it."""
    built = bytearray(encode_batch([(1000, b"k", b"vv", (("h", b"x"),))]))
    assert b.check_batch(memoryview(built)).crc == crc32c(memoryview(built)[21:])
    built[17:21] = bytes(4)
    header = (
        "0000000000000000 0000003f ffffffff 02 00000000 0000 00000000 00000000000003e8 00000000000003e8"
        "ffffffffffffffff ffff ffffffff 00000001"
    )
    record = "1a 00 00 00 02 6b 04 7676 02 02 68 02 78"
    assert built.hex() == (header + record).replace(" ", "")


def test_the_last_sequence_wraps() -> None:
    header = b.parse_header(make(BatchFields(producer_id=1, producer_epoch=0, base_sequence=b.MAX_SEQUENCE - 1)))
    assert header.last_sequence == 2
    assert b.parse_header(make()).last_sequence == -1


def test_placement_leaves_the_crc_valid() -> None:
    view = make()
    header = b.parse_header(view)
    b.patch_placement(view, 0, header, 1 << 40, 12)
    header = b.check_batch(view, from_client=False)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 12)


def test_log_append_time_and_back() -> None:
    view = make(PRODUCER, codec=1)
    before = b.check_batch(view)
    b.set_log_append_time(view, 0, before, 99_999)
    after = b.check_batch(view)
    assert after == before._replace(crc=after.crc, attributes=before.attributes | 8, max_timestamp=99_999)
    assert (after.timestamp_type, before.timestamp_type) == (1, 0)
    b.set_max_timestamp(view, 0, after, before.max_timestamp)
    assert b.check_batch(view) == before


def test_producer_fields_are_patched_with_the_crc() -> None:
    data = bytearray(b"...") + make()
    view = memoryview(data)
    b.patch_producer(view, 3, 5, 6, 7)
    header = b.check_batch(view, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)


def test_batches_back_to_back_are_split() -> None:
    parts = [bytes(make(BatchFields(base_offset=5 * i), count=i + 1)) for i in range(4)]
    data = memoryview(b"".join(parts))
    found = list(b.split_batches(data))
    assert [header.base_offset for _, header in found] == [0, 5, 10, 15]
    assert [bytes(data[position : position + header.size]) for position, header in found] == parts


def test_a_partial_tail_ends_the_split_only_when_allowed() -> None:
    whole = bytes(make())
    for cut in range(1, len(whole)):
        data = memoryview(whole + whole[:cut])
        assert len(list(b.split_batches(data, allow_partial_tail=True))) == 1
        with pytest.raises(CorruptRecords):
            list(b.split_batches(data))


def test_every_flipped_bit_under_the_crc_is_noticed() -> None:
    whole = bytes(make())
    for position in range(17, len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 1 << position % 8
        with pytest.raises(CorruptRecords, match="CRC"):
            b.check_batch(memoryview(broken))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_formats_have_their_own_error(magic: int) -> None:
    view = make()
    view[16] = magic
    with pytest.raises(UnsupportedMagic, match="magic"):
        b.check_batch(view)
    # An old message set may be shorter than a v2 header.
    with pytest.raises(UnsupportedMagic, match="magic"):
        b.parse_header(view[:30])


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_not_mistaken_for_a_partial_tail(magic: int) -> None:
    old = bytes(8) + (22).to_bytes(4) + bytes(4) + bytes([magic]) + bytes(17)
    for data in (old, old[:20], bytes(make()) + old):
        with pytest.raises(UnsupportedMagic):
            list(b.split_batches(data, allow_partial_tail=True))


@pytest.mark.parametrize("length", [-1, 0, 48, 1 << 30, -(1 << 31)])
def test_impossible_lengths(length: int) -> None:
    view = make()
    struct.pack_into(">i", view, 8, length)
    with pytest.raises(CorruptRecords, match="bytes after its length"):
        b.parse_header(view)
    with pytest.raises(CorruptRecords):
        list(b.split_batches(view))


INVALID: dict[str, Callable[[], memoryview]] = {
    "negative offset": lambda: make(BatchFields(base_offset=-1)),
    "codec": lambda: patched(make(), 21, ">h", 5),
    "count too small": lambda: patched(make(), 57, ">i", 4),
    "count too big": lambda: patched(make(), 57, ">i", 6),
    "count zero": lambda: patched(make(), 57, ">i", 0),
    "count negative": lambda: patched(make(), 57, ">i", -1),
    "delta negative": lambda: patched(make(), 23, ">i", -1),
    "base offset": lambda: make(BatchFields(base_offset=1)),
    "control": lambda: make(PRODUCER._replace(is_control=True)),
    "no sequence": lambda: make(PRODUCER._replace(base_sequence=-1)),
    "no epoch": lambda: make(PRODUCER._replace(producer_epoch=-1)),
    "transaction without producer": lambda: make(BatchFields(is_transactional=True)),
}


@pytest.mark.parametrize("name", INVALID)
def test_what_clients_may_not_append(name: str) -> None:
    with pytest.raises(InvalidRecords):
        b.check_batch(INVALID[name]())


def test_brokers_append_what_clients_may_not() -> None:
    compacted = patched(make(PRODUCER._replace(base_offset=8, is_control=True)), 57, ">i", 2)
    assert b.check_batch(compacted, from_client=False).records_count == 2
