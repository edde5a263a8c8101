import contextlib
import gzip
import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.compression import CODEC_NAMES, Codec, check_level, compress, content_bound, decompress
from odradek.records.errors import CorruptRecords

CONTENTS = [b"", b"x", bytes(100_000), bytes(range(256)) * 1000, b"kafka" * 30_000]
REAL = [codec for codec in Codec if codec]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_round_trip(codec: Codec, content: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, content))) == content
    assert bytes(decompress(codec, memoryview(compress(codec, memoryview(content))), max(len(content), 1))) == content


@given(st.binary(max_size=2000), st.sampled_from(REAL))
def test_round_trip_of_anything(content: bytes, codec: Codec) -> None:
    assert bytes(decompress(codec, compress(codec, content), 2000)) == content


@pytest.mark.parametrize(
    ("codec", "level"),
    [(1, -1), (1, 1), (1, 9), (3, 1), (3, 9), (3, 17), (4, -131072), (4, -5), (4, 1), (4, 22), (2, None), (0, None)],
)
def test_every_level_of_kip_390(codec: int, level: int | None) -> None:
    content = b"some records, " * 500
    assert bytes(decompress(codec, compress(codec, content, level))) == content


@pytest.mark.parametrize(("codec", "level"), [(1, 0), (1, 10), (2, 1), (3, 0), (3, 18), (4, 23), (4, -131073), (0, 1)])
def test_levels_out_of_range(codec: int, level: int) -> None:
    with pytest.raises(ValueError, match="level"):
        check_level(Codec(codec), level)


def test_names_are_those_of_compression_type() -> None:
    assert CODEC_NAMES == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def zstd_stream(content: bytes) -> bytes:
    stream = cramjam.zstd.Compressor(3)
    for start in range(0, len(content), 1000):
        stream.compress(content[start : start + 1000])
    return bytes(stream.finish())


CONTENT = b"a line of text that repeats and repeats\n" * 9000
FOREIGN: dict[str, tuple[int, bytes]] = {
    "snappy raw (librdkafka)": (2, bytes(cramjam.snappy.compress_raw(CONTENT))),
    "snappy xerial streams, joined": (2, compress(2, CONTENT[:70_000]) + compress(2, CONTENT[70_000:])),
    "lz4 linked blocks": (3, lz4.frame.compress(CONTENT, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "lz4 with all checksums": (3, lz4.frame.compress(CONTENT, content_checksum=True, block_checksum=True)),
    "lz4 with content size (librdkafka)": (3, lz4.frame.compress(CONTENT, store_size=True, block_linked=False)),
    "lz4 of cramjam": (3, bytes(cramjam.lz4.compress(CONTENT))),
    "zstd without content size": (4, zstd_stream(CONTENT)),
    "zstd with content size": (4, bytes(cramjam.zstd.compress(CONTENT, 3))),
    "zstd frames, joined": (4, bytes(cramjam.zstd.compress(CONTENT[:9], 1)) + zstd_stream(CONTENT[9:])),
    "zstd with a skippable frame": (4, struct.pack("<II", 0x184D2A53, 5) + b"hello" + zstd_stream(CONTENT)),
    "gzip of another writer": (1, gzip.compress(CONTENT, 9)),
    "gzip members, joined": (1, gzip.compress(CONTENT[:1000]) + gzip.compress(CONTENT[1000:])),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_frames_of_other_writers(name: str) -> None:
    codec, data = FOREIGN[name]
    assert bytes(decompress(codec, data)) == CONTENT
    assert bytes(decompress(codec, data, len(CONTENT))) == CONTENT
    with pytest.raises(CorruptRecords):
        decompress(codec, data, len(CONTENT) - 1)


@pytest.mark.parametrize("name", FOREIGN)
def test_cut_off_frames(name: str) -> None:
    codec, data = FOREIGN[name]
    boundaries = {"joined": 1, "skippable": 1}
    for cut in (1, 2, 3, 5, 8, 13, len(data) // 2, len(data) - 8):
        try:
            content = bytes(decompress(codec, data[:-cut]))
        except CorruptRecords:
            continue
        # Where streams are joined, a cut may fall between them; nowhere else may one pass.
        assert any(word in name for word in boundaries)
        assert CONTENT.startswith(content)


def test_snappy_is_written_in_xerial_framing_with_blocks_that_java_takes() -> None:
    data = compress(2, CONTENT)
    assert data[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    position, blocks = 16, []
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + length])))
        position += 4 + length
    assert b"".join(blocks) == CONTENT
    assert max(map(len, blocks)) <= 32 * 1024


def test_lz4_is_written_as_java_takes_it() -> None:
    info = lz4.frame.get_frame_info(compress(3, CONTENT))
    assert info["block_linked"] is False
    assert info["content_size"] == 0
    assert info["block_size"] == 64 * 1024
    assert info["content_checksum"] is False


def zstd_bomb(blocks: int) -> bytes:
    """A frame of run-length blocks: 4 bytes each, which stand for 128 KB each."""
    block = ((128 * 1024 << 3) | 2).to_bytes(3, "little") + b"x"
    last = ((1 << 3) | 3).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * blocks + last


BOMBS: dict[str, tuple[int, bytes]] = {
    "gzip": (1, gzip.compress(bytes(30_000_000))),
    "snappy claims": (2, b"\xff\xff\xff\xff\x0f" + b"x" * 100),
    "snappy": (2, compress(2, bytes(10_000_000))),
    "lz4": (3, lz4.frame.compress(bytes(30_000_000))),
    "zstd": (4, zstd_bomb(1000)),
    "zstd claims": (4, bytes.fromhex("28b52ffde0") + (1 << 62).to_bytes(8, "little") + b"\1\0\0"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_raise_and_allocate_no_more_than_allowed(name: str) -> None:
    codec, data = BOMBS[name]
    limit = 1_000_000
    tracemalloc.start()
    try:
        if name == "zstd claims":
            # The claim is of no use: its only block is empty.
            assert bytes(decompress(codec, data, limit)) == b""
        else:
            with pytest.raises(CorruptRecords):
                decompress(codec, data, limit)
        assert tracemalloc.get_traced_memory()[1] < 4 * limit
    finally:
        tracemalloc.stop()


@given(st.sampled_from(REAL), st.binary(max_size=200), st.data())
def test_mutations_raise_only_corrupt_records(codec: Codec, content: bytes, data: st.DataObject) -> None:
    frame = bytearray(compress(codec, content * 20))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptRecords):
        assert len(decompress(codec, frame, 100_000)) <= 100_000


@given(st.integers(1, 9), st.binary(max_size=100))
def test_noise_raises_only_corrupt_records(codec: int, noise: bytes) -> None:
    for prefix in (b"", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\x82SNAPPY\0", b"\x1f\x8b\x08"):
        with contextlib.suppress(CorruptRecords):
            assert len(decompress(codec, prefix + noise, 10_000)) <= 10_000


def test_unknown_codecs() -> None:
    with pytest.raises(CorruptRecords, match="codec 5"):
        decompress(5, b"")
    with pytest.raises(ValueError, match="7"):
        compress(7, b"")


@given(content=st.binary(max_size=5000), repeats=st.integers(1, 50), codec=st.sampled_from(Codec))
def test_bound_of_the_content_is_never_exceeded(content: bytes, repeats: int, codec: Codec) -> None:
    data = compress(codec, content * repeats)
    assert content_bound(codec, memoryview(data)) >= len(content) * repeats


@given(codec=st.integers(0, 7), noise=st.binary(max_size=200))
def test_bound_of_noise_is_a_number(codec: int, noise: bytes) -> None:
    assert content_bound(codec, memoryview(noise)) >= 0
