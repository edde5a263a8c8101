"""Columns of records for a topic: the partition of each row, and the rows of each partition."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from odradek.records.arrow_gather import primitive
from odradek.records.murmur import partition_column

Array: TypeAlias = "np.ndarray[Any, Any]"


def choose_partitions(given: Any, key: Any, rows: int, count: int, keyless: int) -> Array:
    """The partition of each row, of `count`: the one of `given`, else by the key's hash, else `keyless`.

    `given` is an Arrow array of integers or None, `key` one of binary or strings or None; elements may be null. Raises
    ValueError for a given partition that the topic does not have.
    """
    chosen: Array | None = None
    if given is not None:
        chosen = given.fill_null(-1).to_numpy(zero_copy_only=False)
        wrong = ((chosen < 0) & ~given.is_null().to_numpy(zero_copy_only=False)) | (chosen >= count)
        if wrong.any():
            raise ValueError(f"the topic has {count} partitions, a row asks for {chosen[wrong.argmax()]}")
        if not given.null_count:
            numbers: Array = chosen.astype(np.int64)
            return numbers
    hashed: Array = np.full(rows, -1, np.int64)
    if key is not None and key.null_count < len(key):
        hashed = partition_column(key, count).astype(np.int64)
    result = hashed if chosen is None else np.where(chosen >= 0, chosen, hashed)
    filled: Array = np.where(result < 0, keyless, result)
    return filled


def rows_by_partition(
    columns: Sequence[Any], chosen: Array, count: int, first: int = 0
) -> Iterator[tuple[int, list[Any]]]:
    """(partition, its part of every column) in the order of rows, beginning with partition `first`; None stays None."""
    if not len(chosen):
        return
    if bool((chosen == chosen[0]).all()):
        yield int(chosen[0]), list(columns)
        return
    # Numpy sorts two bytes by radix, eight by comparing.
    order = np.argsort(chosen.astype(np.uint16) if count < 1 << 16 else chosen, kind="stable")
    bounds = [0, *np.cumsum(np.bincount(chosen, minlength=count)).tolist()]
    index = primitive(pa.int64(), order)
    ordered = [None if column is None else column.take(index) for column in columns]
    for number in range(count):
        partition = (number + first) % count
        start, end = bounds[partition : partition + 2]
        if end > start:
            yield partition, [None if column is None else column.slice(start, end - start) for column in ordered]
