"""Kafka's murmur2, which its default partitioner hashes keys with: for one key, and for an Arrow column of them."""

from struct import unpack_from
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_FEW: Final = 16


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """The signed 32-bit hash of Kafka's Utils.murmur2."""
    length = len(data)
    result = (_SEED ^ length) & _MASK
    words = length >> 2
    for word in unpack_from(f"<{words}I", data):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        result = result * _MULTIPLIER & _MASK ^ word
    tail = length & 3
    if tail:
        result = (result ^ int.from_bytes(data[words << 2 :], "little")) * _MULTIPLIER & _MASK
    result = (result ^ result >> 13) * _MULTIPLIER & _MASK
    result ^= result >> 15
    return result - (1 << 32) if result >> 31 else result


def to_positive(value: int) -> int:
    """Kafka's Utils.toPositive: the sign bit cleared."""
    return value & 0x7FFFFFFF


def partition_for_key(key: bytes | bytearray | memoryview, partitions_count: int) -> int:
    """The partition that Kafka's default partitioner gives to a record with this key."""
    return to_positive(murmur2(key)) % partitions_count


def murmur2_column(keys: Any) -> "Array":
    """`murmur2` of every element of an Arrow array of any binary or string type, as int32; 0 for null.

    Words are hashed column by column: the first word of all keys, then the second of those that have one, and so on.
    """
    import numpy as np

    data, start, length = _slices(keys)
    multiplier = np.uint32(_MULTIPLIER)
    if len(length) > _FEW and length.min() == length.max():
        hashed = _keys_of_one_length(data, int(start[0]), int(length[0]), len(length))
        if keys.null_count:
            hashed[keys.is_null().to_numpy(zero_copy_only=False)] = 0
        return hashed
    order = np.argsort(-length, kind="stable")
    start, length = start[order], length[order]
    result = np.uint32(_SEED) ^ length.astype(np.uint32)
    words = length >> 2
    # Keys are ordered by descending length, so those that have a word `number` are the first ones.
    for number in range(int(words[0]) if len(words) else 0):
        active = int(np.searchsorted(-words, -number, "left"))
        if active <= _FEW:
            break
        word = _words(data, start[:active] + 4 * number) * multiplier
        word = (word ^ word >> np.uint32(24)) * multiplier
        result[:active] = result[:active] * multiplier ^ word
    tail = length & 3
    for shift in (2, 1, 0):
        index = np.flatnonzero(tail > shift)
        byte = data[start[index] + (words[index] << 2) + shift].astype(np.uint32)
        result[index] ^= byte << np.uint32(8 * shift)
    result = np.where(tail > 0, result * multiplier, result)
    sorted_hashes = _mixed(result)
    # The few longest keys, for which a numpy pass per word would not pay, are hashed one by one.
    for row in range(min(_FEW, len(sorted_hashes))):
        position, size = int(start[row]), int(length[row])
        sorted_hashes[row] = murmur2(data[position : position + size].tobytes())
    signed = np.empty_like(sorted_hashes)
    signed[order] = sorted_hashes
    if keys.null_count:
        signed[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    return signed


def _keys_of_one_length(data: "Array", start: int, length: int, count: int) -> "Array":
    """The hashes of keys that lie side by side, each of `length` bytes: their words are read in strides."""
    import numpy as np

    multiplier = np.uint32(_MULTIPLIER)
    result: Array = np.full(count, (_SEED ^ length) & _MASK, np.uint32)
    whole = length >> 2 << 2
    for place in range(0, whole, 4):
        words = np.ndarray((count,), np.dtype("<u4"), buffer=data, offset=start + place, strides=(length,))
        word = words * multiplier
        word ^= word >> np.uint32(24)
        word *= multiplier
        result *= multiplier
        result ^= word
    for shift in range(length - whole):
        bytes_there = np.ndarray((count,), np.uint8, buffer=data, offset=start + whole + shift, strides=(length,))
        result ^= bytes_there.astype(np.uint32) << np.uint32(8 * shift)
    return _mixed(result * multiplier if length > whole else result)


def _mixed(result: "Array") -> "Array":
    """The last step of the hash, for all keys; `result` is overwritten."""
    import numpy as np

    result ^= result >> np.uint32(13)
    result *= np.uint32(_MULTIPLIER)
    result ^= result >> np.uint32(15)
    signed: Array = result.view(np.int32)
    return signed


def partition_column(keys: Any, partitions_count: int) -> "Array":
    """`partition_for_key` of every element as int32; -1 for null, whose partition is the producer's choice."""
    import numpy as np

    hashes = murmur2_column(keys).view(np.uint32) & np.uint32(0x7FFFFFFF)
    partitions: Array = (hashes % np.uint32(partitions_count)).view(np.int32)
    if keys.null_count:
        partitions[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    return partitions


def _slices(keys: Any) -> tuple["Array", "Array", "Array"]:
    """The bytes behind the array, and where each element begins and how long it is."""
    import numpy as np
    import pyarrow as pa

    kind = keys.type
    wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not (wide or pa.types.is_binary(kind) or pa.types.is_string(kind)):
        keys = keys.cast(pa.binary())
    _, offsets_buffer, data_buffer = keys.buffers()
    if not len(keys) or offsets_buffer is None:
        nothing: Array = np.zeros(len(keys), np.int64)
        return np.zeros(0, np.uint8), nothing, nothing
    offsets = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32)
    offsets = offsets[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data, offsets[:-1], np.diff(offsets)


def _words(data: "Array", position: "Array") -> "Array":
    """The little-endian word at each position."""
    import numpy as np

    words = np.ndarray((max(len(data) - 3, 0),), np.dtype("<u4"), buffer=data, strides=(1,))
    return words[position].astype(np.uint32, copy=False)
