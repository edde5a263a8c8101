"""Small files of an Iceberg table joined into larger ones, in one snapshot that changes no row.

The joined files are written first. A crash before the commit leaves them in the folder, where no snapshot names them.
The snapshot has the positions of the one before it, so it must follow that one: a commit that another writer got ahead
of is repeated behind the other one, if all files that were joined are still there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.connect.errors import PositionMoved
from odradek.connect.table_formats.iceberg import exclusive

ATTEMPTS: Final = 5
"""How often a commit is tried while other writers commit, too."""
_SMALL: Final = 0.75
"""The part of the target up to which a file is small: one that is nearly full is not written again for a few rows."""


class Joined(NamedTuple):
    """Files and the one that has their rows."""

    before: list[Any]
    after: list[Any]
    """One file; none if there are no rows."""


def join_small_files(
    load: Callable[[], Any], target_bytes: int, properties_of: Callable[[Any], Mapping[str, str]]
) -> int:
    """Join small files; the number of files that were joined.

    `load` returns the table as it is now, `properties_of` what the next snapshot of a table has to carry. Raises
    PositionMoved if another writer has changed the files meanwhile.
    """
    from pyiceberg.exceptions import CommitFailedException

    table = load()
    groups = list(_groups(table, target_bytes))
    if not groups:
        return 0
    joined = [_join(table, number, each) for number, each in enumerate(groups)]
    for _ in range(ATTEMPTS):
        transaction = exclusive(table)
        update = transaction.update_snapshot(snapshot_properties=dict(properties_of(table)))
        with update.overwrite() as snapshot:
            for each in joined:
                for file in each.before:
                    snapshot.delete_data_file(file)
                for file in each.after:
                    snapshot.append_data_file(file)
        try:
            transaction.commit_transaction()
        except CommitFailedException:
            spec_id, table = table.metadata.default_spec_id, load()
        else:
            return sum(len(each.before) for each in joined)
        if table.metadata.default_spec_id != spec_id or not _are_current(table, joined):
            break
    for each in joined:
        for file in each.after:
            table.io.delete(file.file_path)
    raise PositionMoved("other writers have committed to the table")


def _groups(table: Any, target_bytes: int) -> Iterable[list[Any]]:
    """Small files that make one of the target's size at most, all of the same partition."""
    by_partition: dict[Any, list[Any]] = {}
    for task in table.scan().plan_files():
        file = task.file
        is_small = file.file_size_in_bytes < target_bytes * _SMALL
        # files with deletes of other programs, or of a former division, are left as they are
        if is_small and not task.delete_files and file.spec_id == table.metadata.default_spec_id:
            by_partition.setdefault(file.partition, []).append(task)
    for tasks in by_partition.values():
        group: list[Any] = []
        size = 0
        for task in sorted(tasks, key=lambda each: each.file.file_size_in_bytes):
            if size + task.file.file_size_in_bytes > target_bytes:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(task)
            size += task.file.file_size_in_bytes
        if len(group) > 1:
            yield group


def _join(table: Any, number: int, tasks: Sequence[Any]) -> Joined:
    """Write one file with the rows of several."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, write_file
    from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
    from pyiceberg.table import WriteTask

    before = [each.file for each in tasks]
    schema, division = table.schema(), table.spec()
    # one table: files differ in the Arrow types of their texts
    rows = ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table(tasks)
    if not rows.num_rows:
        return Joined(before, [])
    # the values of a file's partition are transformed already
    values = [PartitionFieldValue(field, before[0].partition[at]) for at, field in enumerate(division.fields)]
    task = WriteTask(
        write_uuid=uuid.uuid4(),
        task_id=number,
        schema=schema,
        record_batches=rows.to_batches(),
        partition_key=PartitionKey(values, division, schema) if values else None,
    )
    return Joined(before, list(write_file(table.io, table.metadata, iter([task]))))


def _are_current(table: Any, joined: Iterable[Joined]) -> bool:
    """Whether the table has all of the files, and no deletes for them."""
    found = {each.file.file_path for each in table.scan().plan_files() if not each.delete_files}
    return all(file.file_path in found for each in joined for file in each.before)
