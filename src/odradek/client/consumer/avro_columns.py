"""Values in Avro as columns.

Schemas without arrays, maps and decimals are decoded with numpy, field by field for all records at once. Others, and
values that were written with another schema than the one asked for, are decoded by fastavro, one by one.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from odradek.client.consumer.avro_schema import (
    Node,
    SchemaText,
    node_of,
    parse_avro,
    value_reader,
    without_logical_types,
)
from odradek.client.framing import HEADER, MAGIC, Schemas
from odradek.ports.installation import install_hint

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array: TypeAlias = "np.ndarray[Any, Any]"

_WORDS: Final = {"float": ("<u4", "<f4", 4), "double": ("<u8", "<f8", 8)}
_DECODE_ERRORS: Final = (EOFError, ValueError, LookupError, TypeError, ArithmeticError, struct.error)
"""What fastavro raises for bytes that do not fit the schema."""


class UnknownSchemaId(Exception):
    """A value was written with a schema that has to be looked up first."""

    def __init__(self, schema_id: int, place: object = "") -> None:
        """`place` is where the value was found, for messages."""
        super().__init__(f"{place}: schema {schema_id} is unknown")
        self.schema_id = schema_id
        self.place = place


class AvroValues:
    """Values in Avro, as an argument of `Consumer.arrow(values=...)`: they become columns of the schema's types.

    Records become structs, arrays lists, enums strings, unions with null nullable; logical types become Arrow's dates,
    times, timestamps and decimals. Needs the extras `arrow` and `formats`.

    Example:

        orders = AvroValues(
            {"type": "record", "name": "Order", "fields": [{"name": "article", "type": "string"}]},
            schemas=RegistrySchemas("http://registry:8081"),
        )
        print(orders.type)  # struct<article: string not null>
    """

    __slots__ = ("_bare", "_node", "_own", "_schemas", "_writers")

    def __init__(self, schema: SchemaText, *, schemas: Schemas | None = None) -> None:
        """`schema` is JSON text, or what `json.loads` returns for it.

        With `schemas`, values begin with the id of the schema that they were written with (Confluent's wire format);
        each id is looked up once, in a thread, and its values are resolved to `schema` by Avro's rules. Raises
        ValueError for a schema that is malformed, contains itself, or has a union of several types; ModuleNotFoundError
        without fastavro.
        """
        try:
            import fastavro  # noqa: F401 - fail here, not with the first record
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"Avro needs fastavro: {install_hint('formats')}", name=error.name) from error
        parsed = parse_avro(schema)
        self._node = node_of(parsed)
        self._bare = without_logical_types(parsed)
        self._own = _Writer(self._bare, self._node.is_flat)
        self._schemas = schemas
        self._writers: dict[int, _Writer] = {}

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return self._node.type

    def look_up(self, unknown: UnknownSchemaId) -> None:
        """Fetch a schema by its id; may block. Raises ValueError for an id that `schemas` does not have."""
        assert self._schemas is not None
        schema_id = unknown.schema_id
        try:
            text = self._schemas.schema(schema_id)
        except LookupError as error:
            raise ValueError(f"{unknown.place}: there is no schema with id {schema_id}") from error
        parsed = parse_avro(text)
        try:
            is_laid_out_alike = node_of(parsed) == self._node
        except ValueError:  # it has what no column can have; resolved, its values may fit nevertheless
            is_laid_out_alike = False
        bare = without_logical_types(parsed)
        self._writers[schema_id] = _Writer(bare, is_laid_out_alike and self._node.is_flat)

    def to_columns(self, values: Any) -> Any:
        """Binary values as one array of `type`; null for null. Raises ValueError, UnknownSchemaId."""
        import numpy as np
        import pyarrow as pa

        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        start, ends = ends[:-1], ends[1:]
        present = None
        if values.null_count:
            present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            start, ends = start[present], ends[present]
        found = self._present(_Bytes(data), start, ends) if len(ends) else pa.nulls(0, self.type)
        return found if present is None else _spread(found, present, len(values))

    def _present(self, data: _Bytes, start: Array, ends: Array) -> Any:
        import numpy as np
        import pyarrow as pa

        if self._schemas is None:
            return self._decode(data, start, ends, self._own)
        if (ends - start < HEADER.size).any() or (data.numbers[start] != MAGIC).any():
            raise ValueError("a value does not begin with a schema id")
        ids = sum(data.numbers[start + 1 + place].astype(np.int64) << 24 - 8 * place for place in range(4))
        start = start + HEADER.size
        distinct = np.unique(ids).tolist()
        for schema_id in distinct:
            if schema_id not in self._writers:
                raise UnknownSchemaId(schema_id)
        if len(distinct) == 1:
            return self._decode(data, start, ends, self._writers[distinct[0]])
        rows = [np.flatnonzero(ids == schema_id) for schema_id in distinct]
        parts = [
            self._decode(data, start[each], ends[each], self._writers[schema_id])
            for schema_id, each in zip(distinct, rows, strict=True)
        ]
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows))))

    def _decode(self, data: _Bytes, start: Array, ends: Array, writer: _Writer) -> Any:
        if writer.is_flat:
            return _decode_flat(data, start, ends, self._node)
        resolved = None if writer.schema == self._bare else self._bare
        return _decode_each(data, start, ends, (writer.schema, resolved), self.type)


class _Writer(NamedTuple):
    """A schema that values were written with."""

    schema: Any
    is_flat: bool
    """Whether its values have the bytes of the schema asked for, and can be decoded all at once."""


class _Bytes:
    """The bytes of all values: as a buffer, and as numpy sees it."""

    __slots__ = ("buffer", "numbers")

    def __init__(self, buffer: Any) -> None:
        import numpy as np

        from odradek.records.arrow_gather import PADDING

        if buffer is None or buffer.size < PADDING:
            buffer = (b"" if buffer is None else buffer.to_pybytes()).ljust(PADDING, b"\0")
        self.buffer = buffer
        self.numbers: Array = np.frombuffer(buffer, np.uint8)


def _spread(found: Any, rows: Array, count: int) -> Any:
    """`found` at these rows of `count`, null elsewhere."""
    import numpy as np
    import pyarrow as pa

    place: Array = np.zeros(count, np.int64)
    place[rows] = np.arange(len(rows))
    absent: Array = np.ones(count, bool)
    absent[rows] = False
    return found.take(pa.array(place, mask=absent)) if len(rows) else pa.nulls(count, found.type)


def _decode_flat(data: _Bytes, start: Array, ends: Array, node: Node) -> Any:
    """The values as columns, without a Python object per record. Raises ValueError."""
    import pyarrow as pa

    from odradek.records.errors import CorruptRecords

    try:
        found, after = _column(data, start, ends, node)
    except CorruptRecords as error:
        raise ValueError(
            "a value is not Avro of this schema: it ends too early, or has an impossible number"
        ) from error
    except pa.ArrowInvalid as error:
        raise ValueError(f"a value is not Avro of this schema: {error}") from error
    if (after != ends).any():
        raise ValueError("a value is not Avro of this schema: it is longer")
    return found


def _column(data: _Bytes, position: Array, ends: Array, node: Node) -> tuple[Any, Array]:
    """A part of all values as an array, and the positions behind it."""
    import numpy as np

    from odradek.records.varints import read_varints

    if node.null_branch is None:
        return _present_column(data, position, ends, node)
    branch, position = read_varints(data.numbers, position, ends, 64)
    if ((branch != 0) & (branch != 1)).any():
        raise ValueError("a value is not Avro of this schema: a union has no such branch")
    rows = np.flatnonzero(branch != node.null_branch)
    if len(rows) == len(position):
        return _present_column(data, position, ends, node)
    if not len(rows):
        return _nulls(len(position), node), position
    found, after = _present_column(data, position[rows], ends[rows], node)
    position = position.copy()
    position[rows] = after
    return _spread(found, rows, len(position)), position


def _nulls(count: int, node: Node) -> Any:
    import pyarrow as pa

    return pa.nulls(count, node.type)


def _present_column(data: _Bytes, position: Array, ends: Array, node: Node) -> tuple[Any, Array]:
    import pyarrow as pa

    from odradek.records.arrow_gather import primitive
    from odradek.records.varints import read_varints

    if node.kind == "record":
        children = []
        for _, field in node.fields:
            child, position = _column(data, position, ends, field)
            children.append(child)
        return pa.StructArray.from_arrays(children, fields=list(node.type)), position
    if node.kind == "long":
        numbers, position = read_varints(data.numbers, position, ends, 64)
        return primitive(node.type, numbers), position
    if node.kind == "int":
        numbers, position = read_varints(data.numbers, position, ends, 32)
        return primitive(node.type, numbers.astype("<i4")), position
    if node.kind in ("string", "bytes", "fixed"):
        return _text(data, position, ends, node)
    if node.kind == "enum":
        numbers, position = read_varints(data.numbers, position, ends, 32)
        if ((numbers < 0) | (numbers >= len(node.symbols))).any():
            raise ValueError("a value is not Avro of this schema: an enum has no such symbol")
        return pa.array(node.symbols, pa.string()).take(primitive(pa.int64(), numbers)), position
    if node.kind == "null":
        return _nulls(len(position), node), position
    return _fixed_width(data, position, ends, node)


def _text(data: _Bytes, position: Array, ends: Array, node: Node) -> tuple[Any, Array]:
    import numpy as np

    from odradek.records.arrow_gather import gather_binary
    from odradek.records.varints import read_varints

    if node.kind == "fixed":
        length: Array = np.full(len(position), node.type.byte_width, np.int64)
    else:
        length, position = read_varints(data.numbers, position, ends, 64)
    if ((length < 0) | (length > ends - position)).any():
        raise ValueError("a value is not Avro of this schema: text or bytes reach beyond its end")
    found = gather_binary(data.buffer, data.numbers, position, length)
    return found if node.kind == "bytes" else found.cast(node.type), position + length


def _fixed_width(data: _Bytes, position: Array, ends: Array, node: Node) -> tuple[Any, Array]:
    import numpy as np
    import pyarrow as pa

    from odradek.records.arrow_gather import load_words, primitive

    if node.kind == "boolean":
        width = 1
    else:
        words, numbers, width = _WORDS[node.kind]
    if (ends - position < width).any():
        raise ValueError("a value is not Avro of this schema: it ends too early")
    if node.kind == "boolean":
        bits = data.numbers[position]
        if (bits > 1).any():
            raise ValueError("a value is not Avro of this schema: a boolean is neither 0 nor 1")
        packed = pa.py_buffer(np.packbits(bits, bitorder="little"))
        return pa.Array.from_buffers(node.type, len(bits), [None, packed], null_count=0), position + width
    loaded = load_words(data.numbers, position, np.dtype(words).type)
    return primitive(node.type, loaded.view(numbers)), position + width


def _decode_each(data: _Bytes, start: Array, ends: Array, schemas: tuple[Any, Any], kind: Any) -> Any:
    """The values by fastavro, one by one; `schemas` are the writer's and the reader's. Raises ValueError."""
    import pyarrow as pa
    from fastavro.read import SchemaResolutionError

    read = value_reader(*schemas)
    stream = io.BytesIO(data.buffer)
    found = []
    try:
        for begin, end in zip(start.tolist(), ends.tolist(), strict=True):
            stream.seek(begin)
            found.append(read(stream))
            if stream.tell() != end:
                raise ValueError(f"it takes {stream.tell() - begin} bytes of {end - begin}")
        return pa.array(found, kind)
    except (*_DECODE_ERRORS, SchemaResolutionError, pa.ArrowException) as error:
        raise ValueError(f"a value is not Avro of this schema: {str(error) or type(error).__name__}") from error
