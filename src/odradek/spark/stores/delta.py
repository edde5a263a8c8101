"""Micro-batches into a Delta table, exactly once, without Spark's Delta package: pip's deltalake writes it.

A commit of a Delta log may carry `txn` actions: an application's id and a version, which the table remembers. The batch
number goes there, in the very commit that adds the rows; two commits of one application at a time exclude each other.

    stream.writeStream.foreachBatch(DeltaSink("/data/views", checkpoint, name="views"))
          .option("checkpointLocation", checkpoint).start()
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.spark.checkpoint_files import open_files
from odradek.spark.checkpoints import query_id
from odradek.spark.datasets import WRITTEN
from odradek.spark.datasets import path as dataset_of
from odradek.spark.stores.databases import StoreError
from odradek.spark.stores.object_stores import is_away
from odradek.spark.stores.patience import Patience, still_runs


class DeltaSink:
    """A `foreachBatch` function that appends. The driver writes; a batch has to fit into its memory as Arrow."""

    def __init__(
        self,
        path: str,
        checkpoint: str,
        *,
        name: str,
        partition_by: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
        patience: Patience = Patience(),  # noqa: B008 - immutable
    ) -> None:
        """`path` is a folder, or a URL with `storage_options`; `name` stands for the query in the table for ever."""
        self._path = path
        self._checkpoint = checkpoint
        self._name = name
        self._partition_by = list(partition_by)
        self._storage_options = dict(storage_options) if storage_options else None
        self._patience = patience
        self._reached = False

    def __call__(self, frame: Any, batch_id: int) -> bool:
        """Whether the batch was written now, and not before. Raises StoreError, CheckpointError, DeltaError."""
        query = query_id(open_files(self._checkpoint, frame.sparkSession))
        WRITTEN.note(frame, dataset_of(self._path))
        rows = frame.toArrow()
        return self._patience.run(
            lambda: self._write(rows, batch_id, query),
            away=is_away,
            wanted=still_runs(frame),
            reached=lambda: self._reached,
        )

    def recorded(self) -> int | None:
        """The last batch that the table has of this query. Raises StoreError if it is another query's."""
        return self._recorded(query_id(open_files(self._checkpoint)))

    def write(self, rows: Any, batch_id: int) -> bool:
        """Append an Arrow table as this batch, unless it was. Raises StoreError, CheckpointError, DeltaError."""
        return self._write(rows, batch_id, query_id(open_files(self._checkpoint)))

    def _write(self, rows: Any, batch_id: int, query: str) -> bool:
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError

        recorded = self._recorded(query)
        self._reached = True
        if recorded is not None and recorded >= batch_id:
            return False
        marks = [Transaction(self._batches, batch_id), Transaction(self._identity, _number(query))]
        try:
            write_deltalake(
                self._table() or self._path,
                rows,
                mode="append",
                partition_by=self._partition_by or None,
                storage_options=self._storage_options,
                commit_properties=CommitProperties(app_transactions=marks, custom_metadata={"batch": str(batch_id)}),
            )
        except CommitFailedError:
            # another driver of this very query was faster; whose batch it is decides, as above
            recorded = self._recorded(query)
            if recorded is None or recorded < batch_id:
                raise
            return False
        return True

    @property
    def _batches(self) -> str:
        return f"odradek/{self._name}/batch"

    @property
    def _identity(self) -> str:
        return f"odradek/{self._name}/query"

    def _table(self) -> Any:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self._path, self._storage_options):
            return None
        return DeltaTable(self._path, storage_options=self._storage_options)

    def _recorded(self, query: str) -> int | None:
        table = self._table()
        if table is None:
            return None
        batch_id: int | None = table.transaction_version(self._batches)
        if batch_id is not None and table.transaction_version(self._identity) != _number(query):
            raise StoreError(
                f"{self._path} has batch {batch_id} of another query named {self._name}: the checkpoint was deleted, "
                "or two queries share a name. Give the sink another name"
            )
        return batch_id


def _number(query_id: str) -> int:
    """A query's id as the version of a `txn` action, which holds nothing but 63 bits."""
    return uuid.UUID(query_id).int >> 65
