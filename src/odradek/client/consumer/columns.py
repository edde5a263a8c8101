"""Topics as Arrow tables, and tables as records, without a Python object per record.

Needs the extra `arrow` (pyarrow and numpy).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.client.consumer.avro_columns import AvroValues, UnknownSchemaId
from odradek.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.client.consumer.positions import Chunk

ROWS_AT_ONCE: Final = 65_536


class Columns(NamedTuple):
    """Which columns of a table have the parts of records; None for a part that there is not."""

    value: str | Sequence[str]
    """The column of the values; several make JSON objects of them."""
    key: str | None
    """The column of the keys."""
    headers: str | None
    """The column of the headers: list<struct<key: string, value: binary>>."""
    timestamp: str | None
    """The column of the timestamps: milliseconds, or Arrow's timestamp."""
    partition: str | None
    """The column of the partitions."""


class Parts(NamedTuple):
    """The parts of records as Arrow arrays of the same length; None for a part that there is not."""

    key: Any
    value: Any
    headers: Any
    timestamp: Any
    partition: Any


def to_table(data: Any) -> pa.Table:
    """A table of pyarrow, pandas, polars or DuckDB, or whatever else exports an Arrow stream. TypeError for others."""
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if type(data).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(data, preserve_index=False)
    fetch = getattr(data, "arrow", None)
    found = fetch() if callable(fetch) else None
    if isinstance(found, pa.RecordBatchReader):
        found = found.read_all()
    if not isinstance(found, pa.Table):
        raise TypeError(f"{type(data).__name__} is no table: pyarrow, pandas, polars and DuckDB have tables")
    return found


def parts_of(table: pa.Table, names: Columns) -> Parts:
    """The record parts of a table. Raises ValueError for a column that it lacks, or whose type does not fit."""
    import pyarrow as pa

    def column(name: str | None, what: str, kinds: str, *fits: Any) -> Any:
        if name is None:
            return None
        if name not in table.schema.names:
            raise ValueError(
                f"the table has no column {name} for the {what} (columns: {', '.join(table.schema.names)})"
            )
        kind = table.schema.field(name).type
        if not any(fit(kind) for fit in fits):
            raise ValueError(f"column {name} is of type {kind}; the {what} is {kinds}")
        combined = table.column(name).combine_chunks()
        return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined

    texts = (
        *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string),
        *(pa.types.is_binary_view, pa.types.is_string_view),
    )
    key = _plain(column(names.key, "key", "binary or string", *texts))
    if isinstance(names.value, str):
        value = _plain(column(names.value, "value", "binary or string (several columns make JSON objects)", *texts))
    else:
        value = _json_objects(table, names.value)
    return Parts(
        key,
        value,
        column(names.headers, "headers", "list<struct<key: string, value: binary>>", pa.types.is_list),
        column(names.timestamp, "timestamp", "milliseconds as int64, or a timestamp", _is_int64, pa.types.is_timestamp),
        column(names.partition, "partition", "an integer", pa.types.is_integer),
    )


def _is_int64(kind: Any) -> bool:
    return str(kind) == "int64"


def _plain(column: Any) -> Any:
    """Views as offsets: the encoder reads these."""
    import pyarrow as pa

    if column is not None and str(column.type).endswith("_view"):
        return column.cast(pa.large_string() if pa.types.is_string_view(column.type) else pa.large_binary())
    return column


def _json_objects(table: pa.Table, names: Sequence[str]) -> Any:
    import pyarrow as pa

    missing = [name for name in names if name not in table.schema.names]
    if missing or not names:
        raise ValueError(f"the table has no column {', '.join(missing)}" if missing else "no column for the value")
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
    return pa.array([encode(row).encode() for row in table.select(list(names)).to_pylist()], pa.binary())


def table_schema(*, include_headers: bool = False, values: AvroValues | None = None) -> pa.Schema:
    """The columns of a topic's tables, with values as bytes unless they are Avro."""
    import pyarrow as pa

    from odradek.records.arrow_decode import HEADER_TYPE

    columns = [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary() if values is None else values.type),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
    ]
    return pa.schema([*columns, ("headers", pa.list_(HEADER_TYPE))] if include_headers else columns)


class ColumnReader:
    """Turns fetched chunks into tables."""

    __slots__ = ("_check_crcs", "_include_headers", "_values")

    def __init__(self, *, check_crcs: bool, include_headers: bool, values: pa.Schema | AvroValues | None) -> None:
        """`values` is the schema of values, which become columns: of JSON objects, or Avro; None leaves them binary."""
        self._check_crcs = check_crcs
        self._include_headers = include_headers
        self._values = values

    def read(self, key: TopicPartition, chunk: Chunk, from_offset: int) -> pa.Table:
        """The records of a chunk from an offset on.

        Raises CorruptRecords; ValueError for values that do not fit the schema; UnknownSchemaId.
        """
        import pyarrow as pa

        from odradek.records.arrow import decode_to_arrow
        from odradek.records.errors import CorruptRecords

        try:
            batch = decode_to_arrow(
                chunk.view,
                start_offset=from_offset,
                aborted=chunk.aborted,
                include_headers=self._include_headers,
                check_crcs=self._check_crcs,
            )
        except CorruptRecords as error:
            raise CorruptRecords(f"{key}: {error}") from error
        rows = batch.num_rows
        columns = {name: batch.column(name) for name in batch.schema.names if name != "timestamp_type"}
        if isinstance(self._values, AvroValues):
            try:
                columns["value"] = self._values.to_columns(columns["value"])
            except UnknownSchemaId as unknown:
                raise UnknownSchemaId(unknown.schema_id, key) from unknown
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from error
        elif self._values is not None:
            columns["value"] = _from_json(columns["value"], self._values, key)
        columns["timestamp"] = columns["timestamp"].cast(pa.timestamp("ms", "UTC"))
        topic = pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()).fill_null(0), pa.array([key.topic]))
        partition = pa.nulls(rows, pa.int32()).fill_null(key.partition)
        return pa.table({"topic": topic, "partition": partition, **columns})


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of all, without a copy of their columns."""
    import pyarrow as pa

    return pa.concat_tables(tables)


def _from_json(values: Any, schema: pa.Schema, key: TopicPartition) -> Any:
    """Values in JSON as structs; null for a null value. Raises ValueError."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import json as arrow_json

    present = values.drop_null()
    kind = pa.struct(list(schema))
    if not len(present):
        return pa.nulls(len(values), kind)
    # Joined, each value must still be one object: where all begin and end with braces, their count shows it.
    trimmed = pc.utf8_trim_whitespace(_as_text(present, key))
    if not pc.all(pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))).as_py():
        raise ValueError(f"{key}: a value is not a JSON object")
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(present)], present), b"\n")[0].as_buffer()
    options = arrow_json.ParseOptions(
        explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore"
    )
    block = arrow_json.ReadOptions(block_size=max(1, lines.size + 1))
    try:
        parsed = arrow_json.read_json(pa.BufferReader(lines), read_options=block, parse_options=options)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{key}: a value is not JSON of this schema: {error}") from error
    if parsed.num_rows != len(present):
        raise ValueError(f"{key}: a value is not one JSON object")
    structs = pa.StructArray.from_arrays(
        [parsed.column(name).combine_chunks() for name in schema.names], fields=list(schema)
    )
    if not values.null_count:
        return structs
    rank = pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1)
    return structs.take(pc.if_else(values.is_valid(), rank, None))


def _as_text(values: Any, key: TopicPartition) -> Any:
    import pyarrow as pa

    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise ValueError(f"{key}: a value is not JSON: {error}") from error
