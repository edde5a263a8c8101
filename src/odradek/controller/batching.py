"""One decision in as many transactions of the store as its size needs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.ports.store import Check, Delete, Operation

MAX_OPERATIONS = 2000
"""Others of the same store wait while a transaction is written."""
_OVERHEAD_BYTES = 64


def size_of(operation: Operation) -> int:
    """Bytes on the wire, generously."""
    data = 0 if isinstance(operation, Check | Delete) else len(operation.data)
    return len(operation.path) + data + _OVERHEAD_BYTES


def batches(operations: Sequence[Operation], cuts: Sequence[int], max_bytes: int) -> Iterator[list[Operation]]:
    """The operations in order, ended before some of the `cuts` (ascending indices) so that none is too large.

    `max_bytes` 0 is no limit. What may not be cut stays whole, however large.
    """
    batch: list[Operation] = []
    size = 0
    start = 0
    for end in (*cuts, len(operations)):
        part = operations[start:end]
        start = end
        more = sum(map(size_of, part))
        if batch and (len(batch) + len(part) > MAX_OPERATIONS or (max_bytes and size + more > max_bytes)):
            yield batch
            batch, size = [], 0
        batch.extend(part)
        size += more
    if batch:
        yield batch
