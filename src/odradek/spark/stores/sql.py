"""Micro-batches into SQL tables, by the two recipes that survive any crash.

`SqlSink`: rows, the batch's number and the source's offsets in one transaction of the database: exactly once, whatever
the rows are. `UpsertSink`: tasks write in parallel, each row under the coordinates of its record (topic, partition,
offset); what is written twice is the same row twice.

    stream.writeStream.foreachBatch(SqlSink(Sqlite("views.db"), "views", checkpoint, key=("page",)))
          .option("checkpointLocation", checkpoint).start()
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from odradek.spark.checkpoint_files import open_files
from odradek.spark.checkpoints import initial_offsets, query_id, source_ends
from odradek.spark.datasets import WRITTEN
from odradek.spark.datasets import table as dataset_of
from odradek.spark.offset_log import from_document, to_document
from odradek.spark.offsets import Offsets, Origin, to_json
from odradek.spark.stores.databases import (
    Database,
    StoreError,
    create_statement,
    insert_statement,
    quoted,
    quoted_column,
)
from odradek.spark.stores.patience import Patience, still_runs
from odradek.spark.stores.resuming import Recorded, check_resumed, shared_partitions

COORDINATES: Final = ("topic", "partition", "offset")
"""What identifies a record of a topic for ever: the key under which writing it again changes nothing."""

BATCHES_TABLE: Final = "odradek_batches"
_ROWS_AT_ONCE: Final = 1_000


class Ledger:
    """Which batches a database holds: a table beside the data, written in the data's own transaction."""

    def __init__(self, database: Database, name: str, checkpoint: str, *, resumed: bool = False) -> None:
        """`name` stands for the query, in this database for ever; `checkpoint` is its checkpointLocation.

        With `resumed`, a query with a new checkpoint may continue, and must begin at `starting_offsets`; without,
        it is an error, because its batches count from 0 again and could be mistaken for those already written.
        """
        self.database = database
        self.name = name
        self._checkpoint = checkpoint
        self._resumed = resumed

    def create(self, connection: Any) -> None:
        """Create the table of committed batches if it does not exist."""
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {BATCHES_TABLE} (name TEXT PRIMARY KEY, query_id TEXT NOT NULL, "
            "batch_id BIGINT NOT NULL, offsets TEXT NOT NULL)"
        )

    def recorded(self, connection: Any) -> Recorded | None:
        """The last batch recorded under the name; None before the first."""
        statement = f"SELECT query_id, batch_id, offsets FROM {BATCHES_TABLE} WHERE name = {self.database.placeholder}"  # noqa: S608 - constants
        row = connection.execute(statement, (self.name,)).fetchone()
        return None if row is None else Recorded(row[0], row[1], from_document(json.loads(row[2])))

    def starting_offsets(self, default: str = "earliest", *, source: str | None = None) -> str:
        """The option startingOffsets for a query that continues at the database's state, whatever became of Spark's
        checkpoint; the default where the database has nothing of it yet. Give it to the source unchanged: it also names
        the batch, by which a sink with `resumed` sees that the query began here.

        `source` is the name of one of the query's sources, or its number: needed where two of them read a topic of the
        same name. Raises StoreError.
        """
        with contextlib.closing(self.database.connect()) as connection:
            self.create(connection)
            recorded = self.recorded(connection)
        if recorded is None:
            return default
        ends = [each for each in recorded.ends if source is None or each.source == source]
        if not ends:
            which = "a Kafka source" if source is None else f"a source {source}"
            raise StoreError(f"{self.name}: the database has no offsets of {which} for batch {recorded.batch_id}")
        shared = sorted(
            {key.topic for each, other in itertools.combinations(ends, 2) for key in shared_partitions(each, other)}
        )
        if shared:
            raise StoreError(
                f"{self.name}: several sources read {', '.join(shared)}; choose one with starting_offsets(source=...): "
                f"{', '.join(each.source for each in ends)}"
            )
        offsets = {key: offset for each in ends for key, offset in each.offsets.items()}
        topic_ids = {topic: topic_id for each in ends for topic, topic_id in each.topic_ids.items()}
        return json.dumps(to_json(offsets, Origin(topic_ids=topic_ids, resumed_from=recorded.point(source))))

    @contextlib.contextmanager
    def batch(self, connection: Any, batch_id: int, session: Any = None) -> Iterator[bool]:
        """A transaction for one batch, which commits with it; False where it was committed before: write nothing then.

        The second writer of the same batch waits here for the first. Spark's checkpoint is read first, by the
        Java of `session` where it is not on a local disk. Raises StoreError, CheckpointError.
        """
        files = open_files(self._checkpoint, session)
        new = Recorded(query_id(files), batch_id, source_ends(files, batch_id))
        self.database.begin(connection, self.name)
        try:
            is_new = not self._is_done(self.recorded(connection), new, partial(initial_offsets, files))
            yield is_new
            if is_new:
                self._record(connection, new)
            connection.execute("COMMIT")
        except BaseException:
            # a connection that broke has nothing to undo, and what it raises here must not hide the reason
            with contextlib.suppress(Exception):
                connection.execute("ROLLBACK")
            raise

    def _is_done(self, recorded: Recorded | None, new: Recorded, begin_of: Callable[[str], Offsets | None]) -> bool:
        if recorded is None:
            return False
        if recorded.query_id == new.query_id:
            return recorded.batch_id >= new.batch_id
        if not self._resumed:
            raise StoreError(
                f"{self.name}: the database has batch {recorded.batch_id} of another query ({recorded.query_id}; this "
                f"one is {new.query_id}): the checkpoint was deleted, or two queries share a name. Give it another "
                "name, or start at starting_offsets() with resumed=True"
            )
        check_resumed(self.name, recorded, new.ends, begin_of)
        return False

    def _record(self, connection: Any, batch: Recorded) -> None:
        names = ("name", "query_id", "batch_id", "offsets")
        statement = insert_statement(self.database, BATCHES_TABLE, names, ("name",))
        document = json.dumps(to_document(batch.ends))
        connection.execute(statement, (self.name, batch.query_id, batch.batch_id, document))


class SqlSink:
    """A `foreachBatch` function: rows, batch number and source offsets in one transaction of the database.

    The driver writes the rows, which suits results (counts, sums, alerts); for masses of raw records see `UpsertSink`.
    While the database is away the query waits, the batch's rows kept by Spark.
    """

    def __init__(
        self,
        database: Database,
        table: str,
        checkpoint: str,
        *,
        key: Sequence[str] = COORDINATES,
        name: str | None = None,
        resumed: bool = False,
        patience: Patience = Patience(),  # noqa: B008 - immutable
    ) -> None:
        """Rows replace those with the same `key`; with an empty key they are added. The table is made if it is missing.

        `name` stands for the query in the database (by default the table's name), the rest is as of `Ledger`.
        """
        self.ledger = Ledger(database, name or table, checkpoint, resumed=resumed)
        self._table = table
        self._key = tuple(key)
        self._patience = patience
        self._reached = False

    def starting_offsets(self, default: str = "earliest", *, source: str | None = None) -> str:
        """See `Ledger.starting_offsets`."""
        return self.ledger.starting_offsets(default, source=source)

    def __call__(self, frame: Any, batch_id: int) -> bool:
        """Whether the batch was written now, and not before. Raises StoreError, CheckpointError, the database's own."""
        database = self.ledger.database
        columns = _columns(frame)
        create = create_statement(database, self._table, columns, self._key)
        WRITTEN.note(frame, dataset_of(database, self._table))
        kept = frame.persist()
        try:
            return self._patience.run(
                lambda: self._write(kept, batch_id, create),
                away=database.is_away,
                wanted=still_runs(frame),
                reached=lambda: self._reached,
            )
        finally:
            kept.unpersist()

    def _write(self, frame: Any, batch_id: int, create: str) -> bool:
        database = self.ledger.database
        insert = insert_statement(database, self._table, frame.columns, self._key)
        with contextlib.closing(database.connect()) as connection:
            self._reached = True
            self.ledger.create(connection)
            connection.execute(create)
            with self.ledger.batch(connection, batch_id, frame.sparkSession) as new:
                if new:
                    cursor = connection.cursor()
                    for rows in _chunks(frame.toLocalIterator(prefetchPartitions=True)):
                        cursor.executemany(insert, [tuple(map(database.value, row)) for row in rows])
            return new


class UpsertSink:
    """A `foreachBatch` function: every task writes its rows by itself, under a key that makes a second time harmless.

    With the coordinates of their records as key (the default), that is so for any query that maps records to rows one
    by one. Rows of a batch become visible as they come; readers that need whole batches want `SqlSink`.
    """

    def __init__(
        self,
        database: Database,
        table: str,
        *,
        key: Sequence[str] = COORDINATES,
        patience: Patience = Patience(),  # noqa: B008 - immutable
    ) -> None:
        if not key:
            raise StoreError("rows without a key cannot be written twice without harm: use SqlSink")
        self._database = database
        self._table = table
        self._key = tuple(key)
        self._patience = patience
        self._reached = False

    def __call__(self, frame: Any, batch_id: int) -> int:
        """The rows written. Raises StoreError, and PySparkException with what a task failed with."""
        create = create_statement(self._database, self._table, _columns(frame), self._key)
        WRITTEN.note(frame, dataset_of(self._database, self._table))
        self._patience.run(
            lambda: self._create(create),
            away=self._database.is_away,
            wanted=still_runs(frame),
            reached=lambda: self._reached,
        )
        insert = insert_statement(self._database, self._table, frame.columns, self._key)
        written = frame.mapInArrow(_Upserts(self._database, insert, self._patience), "written bigint").collect()
        return sum(each.written for each in written)

    def _create(self, statement: str) -> None:
        with contextlib.closing(self._database.connect()) as connection:
            self._reached = True
            connection.execute(statement)


class _Upserts:
    """What a task does: chunks of rows, each a transaction that is tried again while the database is away."""

    def __init__(self, database: Database, insert: str, patience: Patience) -> None:
        self._database = database
        self._insert = insert
        self._patience = patience

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        written = 0
        rows = (
            tuple(map(self._database.value, row))
            for batch in batches
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        for chunk in _chunks(rows):
            self._patience.run(partial(self._write, chunk), away=self._database.is_away)
            written += len(chunk)
        yield pa.RecordBatch.from_arrays([pa.array([written], pa.int64())], ["written"])

    def _write(self, rows: list[Any]) -> None:
        with contextlib.closing(self._database.connect()) as connection:
            self._database.begin(connection)
            connection.cursor().executemany(self._insert, rows)
            connection.execute("COMMIT")


def _chunks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while chunk := list(itertools.islice(iterator, _ROWS_AT_ONCE)):
        yield chunk


def _columns(frame: Any) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]


def read_rows(database: Database, table: str, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """All rows of a table, for a look at what was written."""
    with contextlib.closing(database.connect()) as connection:
        found = connection.execute(f"SELECT {', '.join(map(quoted_column, names))} FROM {quoted(table)}").fetchall()  # noqa: S608 - quoted
    return [tuple(row) for row in found]
