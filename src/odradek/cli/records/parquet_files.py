"""Records of topics in Parquet files: written by `consume --to-parquet`, read by `produce --from-parquet`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.terminal.streams import discard
from odradek.ports.installation import install_hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from odradek.client.consumer.avro_columns import AvroValues
    from odradek.records.topic_partition import TopicPartition

COMPRESSION: Final = "zstd"


def require_parquet() -> Any:
    """pyarrow's module for Parquet. Raises CommandError where it is not installed."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise CommandError(f"Parquet needs pyarrow: {install_hint('arrow')}") from error
    return parquet


def avro_values(path: str, by_id: Iterable[str]) -> AvroValues:
    """How values in Avro become columns: by the schema of a file, and what values of each `ID=FILE` were written with.

    Raises UsageError for a file that cannot be read or is not a schema, CommandError without fastavro.
    """
    from odradek.client.consumer.avro_columns import AvroValues
    from odradek.client.framing import FixedSchemas

    texts = {}
    for rule in by_id:
        schema_id, equals, file = rule.partition("=")
        if not equals or not (schema_id.isascii() and schema_id.isdigit()):
            raise UsageError(f"--value-schema-id {rule}: expected ID=FILE.avsc")
        texts[int(schema_id)] = _read_schema("value-schema-id", file)
    try:
        return AvroValues(_read_schema("value-schema", path), schemas=FixedSchemas(texts) if texts else None)
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from error
    except ValueError as error:
        raise UsageError(f"--value-schema {path}: {error}") from error


def _read_schema(option: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"--{option} {path}: {error}") from error
    except OSError as error:
        raise UsageError(f"--{option} {path}: {error.strerror or error}") from error


class ParquetOutput:
    """A file that has its name once it is complete; until then it is beside it, as `NAME.part`."""

    __slots__ = ("_file", "_part", "_path", "_writer", "count")

    def __init__(self, path: str) -> None:
        """Raises CommandError for a file that exists already."""
        self._path = path
        self._part = f"{path}.part"
        for each in (path, self._part):
            if os.path.exists(each):
                raise CommandError(f"{each} exists already; choose another name, or remove it")
        self._file: Any = None
        self._writer: Any = None
        self.count = 0
        """Rows so far."""

    def write(self, table: pa.Table) -> None:
        """Append rows. Raises CommandError."""
        try:
            self._begin(table.schema)
            self._writer.write_table(table)
        except OSError as error:
            raise CommandError(f"{self._part}: {error.strerror or error}") from error
        self.count += table.num_rows

    def _begin(self, schema: pa.Schema) -> None:
        if self._writer is None:
            self._file = open(self._part, "xb")  # noqa: SIM115 - open until the last row
            self._writer = require_parquet().ParquetWriter(self._file, schema, compression=COMPRESSION)

    def finish(self, empty: pa.Schema) -> None:
        """Complete the file, with the schema of `empty` if there were no rows. Raises CommandError."""
        try:
            self._begin(empty)
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.rename(self._part, self._path)
        except OSError as error:
            self.abandon()
            raise CommandError(f"{self._path}: {error.strerror or error}") from error

    def abandon(self) -> None:
        """Remove what is not complete."""
        if self._file is None:
            return
        os.unlink(self._part)
        if not self._file.closed:
            # They write what they still hold before they close, which a full disk would not take.
            discard(self._file)
            if self._writer is not None:
                self._writer.close()
            self._file.close()
        self._file = None


def offsets_behind(table: pa.Table) -> dict[TopicPartition, int]:
    """The offset behind the last row of each partition in a table."""
    from odradek.records.topic_partition import TopicPartition

    # Dictionaries of several fetches may differ, and such cannot be grouped.
    table = table.select(["partition", "offset"]).append_column("topic", table["topic"].cast("string"))
    last = table.group_by(["topic", "partition"]).aggregate([("offset", "max")]).to_pylist()
    return {TopicPartition(each["topic"], each["partition"]): each["offset_max"] + 1 for each in last}


def below(table: pa.Table, ends: Mapping[TopicPartition, int]) -> pa.Table:
    """The rows of offsets below the end of their partition."""
    import pyarrow.compute as pc

    topics = table["topic"].cast("string")
    kept: Any = None
    for key, end in ends.items():
        own = pc.and_(pc.equal(topics, key.topic), pc.equal(table["partition"], key.partition))
        chosen = pc.and_(own, pc.less(table["offset"], end))
        kept = chosen if kept is None else pc.or_(kept, chosen)
    return table if kept is None else table.filter(kept)


def open_parquet(path: str) -> Any:
    """The file, to be read in parts. Raises CommandError."""
    parquet = require_parquet()
    import pyarrow as pa

    try:
        return parquet.ParquetFile(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except pa.ArrowInvalid as error:
        raise CommandError(f"{path} is not a Parquet file: {error}") from error
