"""The four compression codecs of record batches, both ways, each in the framing that every Kafka client reads.

- gzip: RFC 1952 members.
- snappy: written in xerial's framing (magic `\\x82SNAPPY\\x00`, then length-prefixed raw blocks) as Java's client
  writes it; read in that framing and raw, as librdkafka writes it.
- lz4: the LZ4 frame format with independent 64 KB blocks and no content size, which is all that Java's reader takes;
  any valid frame is read.
- zstd: frames with or without content size.

Decompression never allocates more than the input can really produce, nor more than `max_bytes`: sizes that a frame
merely claims are checked against its blocks first. All errors are CorruptRecords. Codec libraries load on first use.
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final, TypeAlias

from odradek.records.errors import CorruptRecords, TooLargeRecords

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_UNCOMPRESSED_BYTES: Final = 256 * 1024 * 1024
"""The default limit of one batch's records after decompression."""


class Codec(IntEnum):
    """The codec ids of a batch's attributes; names as in `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES: Final[dict[str, Codec]] = {codec.name.lower(): codec for codec in Codec}

GZIP_LEVELS: Final = range(1, 10)
LZ4_LEVELS: Final = range(1, 18)
ZSTD_LEVELS: Final = range(-131072, 23)
DEFAULT_LEVELS: Final[dict[Codec, int]] = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
"""Defaults of `compression.{gzip,lz4,zstd}.level` (KIP-390)."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
_SNAPPY_MAX_EXPANSION: Final = 64
_MAX_EXPANSION: Final = {1: 1032, 2: _SNAPPY_MAX_EXPANSION}
"""Bytes that a byte may become, by codec: gzip (zlib's technical details), snappy."""
_INT32: Final = struct.Struct(">I")
_LE32: Final = struct.Struct("<I")

_LZ4_MAGIC: Final = 0x184D2204
_ZSTD_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_LZ4_MAX_EXPANSION: Final = 255
_ZSTD_BLOCK_MAX: Final = 128 * 1024


def check_level(codec: Codec, level: int | None) -> int:
    """The level to use: the codec's default for None. Raises ValueError outside of KIP-390's range."""
    default = DEFAULT_LEVELS.get(codec, 0)
    if level is None or level == default:
        return default
    allowed = {Codec.GZIP: GZIP_LEVELS, Codec.LZ4: LZ4_LEVELS, Codec.ZSTD: ZSTD_LEVELS}.get(codec)
    if allowed is None or level not in allowed:
        raise ValueError(f"compression level {level} is not possible for {codec.name.lower()}")
    return level


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed by `codec` at `level` (None: the default). Raises ValueError for an unknown codec or level."""
    codec = Codec(codec)
    return _COMPRESSORS[codec](data, check_level(codec, level))


def decompress(codec: int, data: Buffer, max_bytes: int = MAX_UNCOMPRESSED_BYTES) -> Buffer:
    """The content of `data`.

    Raises CorruptRecords for anything malformed or cut off, TooLargeRecords beyond `max_bytes`.
    """
    if codec == 0:
        return data
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise CorruptRecords(f"unknown compression codec {codec}")
    return decompressor(memoryview(data), max_bytes)


def content_bound(codec: int, data: memoryview) -> int:
    """The most bytes that `data` can contain after decompression; cheap to know, and seldom reached.

    0 for data whose decompression fails at once.
    """
    try:
        if codec == Codec.LZ4:
            return _lz4_bound(data)
        if codec == Codec.ZSTD:
            return _zstd_bound(data)
    except CorruptRecords:
        return 0
    return len(data) * _MAX_EXPANSION.get(codec, 1)


def _too_large(codec: str, max_bytes: int) -> TooLargeRecords:
    return TooLargeRecords(f"{codec} content is larger than the limit of {max_bytes} bytes")


def _no_compression(data: Buffer, _level: int) -> bytes:
    return bytes(data)


def _gzip_compress(data: Buffer, level: int) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


def _gzip_decompress(data: memoryview, max_bytes: int) -> Buffer:
    parts: list[bytes] = []
    room = max_bytes
    rest: Buffer = data
    while True:
        stream = zlib.decompressobj(31)
        try:
            # One byte more than allowed distinguishes "just fits" from "too large".
            part = stream.decompress(rest, room + 1)
        except zlib.error as error:
            raise CorruptRecords(f"gzip: {error}") from error
        room -= len(part)
        if room < 0:
            raise _too_large("gzip", max_bytes)
        if not stream.eof:
            raise CorruptRecords("gzip: the stream is cut off")
        parts.append(part)
        rest = stream.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_compress(data: Buffer, _level: int) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: memoryview, max_bytes: int) -> Buffer:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _snappy_block(data, max_bytes)
    parts: list[Buffer] = []
    room = max_bytes
    position = 0
    end = len(data)
    while position < end:
        if end - position < 4:
            raise CorruptRecords(f"snappy: {end - position} stray bytes at byte {position}")
        length: int = _INT32.unpack_from(data, position)[0]
        if length == 0x82534E41:
            # Concatenated streams: Java's reader takes a header wherever a block may begin.
            if end - position < 16 or bytes(data[position : position + 8]) != _XERIAL_MAGIC:
                raise CorruptRecords(f"snappy: bad stream header at byte {position}")
            position += 16
            continue
        position += 4
        if length > end - position:
            raise CorruptRecords(f"snappy: block of {length} bytes at byte {position}, only {end - position} are left")
        part = _snappy_block(data[position : position + length], room)
        room -= len(part)
        parts.append(part)
        position += length
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_block(data: memoryview, max_bytes: int) -> bytearray:
    from cramjam import DecompressionError, snappy

    try:
        size = snappy.decompress_raw_len(data)
        if size > max_bytes:
            raise _too_large("snappy", max_bytes)
        if size > len(data) * _SNAPPY_MAX_EXPANSION:
            raise CorruptRecords(f"snappy: {len(data)} bytes cannot hold the {size} that they claim")
        output = bytearray(size)
        if size and snappy.decompress_raw_into(data, output) != size:
            raise CorruptRecords("snappy: the block is shorter than it claims")
    except DecompressionError as error:
        raise CorruptRecords(f"snappy: {error}") from error
    return output


def _lz4_compress(data: Buffer, level: int) -> bytes:
    from lz4 import frame

    # Kafka's default level, 9, means the fast compressor in its Java code (Lz4Compression), 0 in liblz4's terms.
    compressed: bytes = frame.compress(
        data,
        compression_level=0 if level == DEFAULT_LEVELS[Codec.LZ4] else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _lz4_decompress(data: memoryview, max_bytes: int) -> Buffer:
    from lz4 import frame

    bound = min(_lz4_bound(data), max_bytes)
    stream = frame.LZ4FrameDecompressor()
    try:
        output: bytes = stream.decompress(data, max_length=bound + 1)
    except (RuntimeError, ValueError) as error:
        raise CorruptRecords(f"lz4: {error}") from error
    if len(output) > max_bytes:
        raise _too_large("lz4", max_bytes)
    if not stream.eof:
        raise CorruptRecords("lz4: the frame is cut off")
    if stream.unused_data:
        raise CorruptRecords("lz4: bytes after the end of the frame")
    return output


def _lz4_bound(data: memoryview) -> int:
    """The most that the frame's blocks can produce, from their sizes; raises CorruptRecords for a broken frame."""
    end = len(data)
    if end < 7 or _LE32.unpack_from(data, 0)[0] != _LZ4_MAGIC:
        raise CorruptRecords("lz4: no frame header")
    flags, block_descriptor = data[4], data[5]
    block_max = 1 << (8 + 2 * max(4, block_descriptor >> 4 & 7))
    checksum = 4 if flags & 0x10 else 0
    position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    bound = 0
    while position + 4 <= end:
        length: int = _LE32.unpack_from(data, position)[0]
        if length == 0:
            return bound
        stored = length & 0x80000000
        length &= 0x7FFFFFFF
        bound += min(length if stored else length * _LZ4_MAX_EXPANSION, block_max)
        position += 4 + length + checksum
    raise CorruptRecords("lz4: the frame is cut off")


def _zstd_compress(data: Buffer, level: int) -> bytes:
    from cramjam import zstd

    return bytes(zstd.compress(data, level))


def _zstd_decompress(data: memoryview, max_bytes: int) -> Buffer:
    from cramjam import DecompressionError, zstd

    bound = _zstd_bound(data)
    output = bytearray(min(bound, max_bytes))
    try:
        size = zstd.decompress_into(data, output) if output else 0
    except DecompressionError as error:
        if bound > max_bytes:
            raise TooLargeRecords(f"zstd: {error}, or larger than the limit of {max_bytes} bytes") from error
        raise CorruptRecords(f"zstd: {error}") from error
    return output if size == len(output) else memoryview(output)[:size]


def _zstd_bound(data: memoryview) -> int:
    """The most that the frames can produce, from block headers and content sizes (RFC 8878)."""
    position = 0
    bound = 0
    end = len(data)
    if end < 6:
        raise CorruptRecords(f"zstd: {end} bytes are no frame")
    try:
        while position < end:
            magic: int = _LE32.unpack_from(data, position)[0]
            if magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
                position += 8 + _LE32.unpack_from(data, position + 4)[0]
                continue
            if magic != _ZSTD_MAGIC:
                raise CorruptRecords(f"zstd: no frame header at byte {position}")
            position, frame_bound = _zstd_frame_bound(data, position + 4)
            bound += frame_bound
    except (IndexError, struct.error) as error:
        raise CorruptRecords("zstd: the frame is cut off") from error
    if position > end:
        raise CorruptRecords("zstd: the frame is cut off")
    return bound


def _zstd_frame_bound(data: memoryview, position: int) -> tuple[int, int]:
    descriptor = data[position]
    single_segment = descriptor >> 5 & 1
    size_flag = descriptor >> 6
    position += 1 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size_width = (single_segment, 2, 4, 8)[size_flag]
    content_size = int.from_bytes(data[position : position + size_width], "little") + (256 if size_flag == 1 else 0)
    position += size_width
    bound = 0
    while True:
        block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        position += 3
        size = block >> 3
        kind = block >> 1 & 3
        bound += size if kind < 2 else _ZSTD_BLOCK_MAX
        position += 1 if kind == 1 else size
        if block & 1:
            break
    if size_width:
        bound = min(bound, content_size)
    return position + (4 if descriptor & 4 else 0), bound


_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int], bytes]]] = {
    Codec.NONE: _no_compression,
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _zstd_compress,
}

_DECOMPRESSORS: Final[dict[int, Callable[[memoryview, int], Buffer]]] = {
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}
