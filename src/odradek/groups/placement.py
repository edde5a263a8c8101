"""Which partition of `__consumer_offsets` a group belongs to, and the topic's settings."""

from __future__ import annotations

from functools import lru_cache


def java_hash(text: str) -> int:
    """Java's String.hashCode, as a signed 32-bit int: over UTF-16 code units."""
    value = 0
    if text.isascii():
        for byte in text.encode():
            value = (value * 31 + byte) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            value = (value * 31 + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(maxsize=4096)  # every request of a group or a transaction asks, and Java's hash is a loop here
def partition_for_group(group_id: str, partitions: int) -> int:
    """Kafka's Utils.abs(hashCode) % partitions, where the absolute value of the smallest int is 0."""
    value = abs(java_hash(group_id))
    return 0 if value == 0x8000_0000 else value % partitions
