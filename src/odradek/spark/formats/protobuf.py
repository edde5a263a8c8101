"""Protobuf values by Google's package, in place of Spark's `from_protobuf`, which needs a JVM package.

A message is named by its full name within a descriptor set, the file that `protoc --descriptor_set_out=events.desc
--include_imports events.proto` makes; no generated code is needed.

    rows = stream.select(from_protobuf("value", "shop.Order", descriptors).alias("order")).select("order.*")

A schema registry has descriptors, too: `registered_message` gets them by the id of a schema.
"""

from __future__ import annotations

from typing import Any, Final

from odradek.client.framing import ReferencedSchemas
from odradek.spark.columns import array_of, arrow_type, column_function
from odradek.spark.formats.avro import FAILFAST, SchemaError, is_permissive
from odradek.spark.formats.framing import framed, unframed

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_MOST_DEPTH: Final = 16
# numbers of FieldDescriptor.type
_TYPES: Final = {
    1: "double", 2: "float", 3: "bigint", 4: "decimal(20,0)", 5: "int", 6: "decimal(20,0)", 7: "bigint", 8: "boolean",
    9: "string", 12: "binary", 13: "bigint", 14: "string", 15: "int", 16: "bigint", 17: "int", 18: "bigint",
}  # fmt: skip
_MESSAGE: Final = 11
_GROUP: Final = 10
_ENUM: Final = 14
_UNSIGNED_64: Final = (4, 6)


def spark_type(message: str, descriptors: bytes) -> str:
    """Spark's type for a message, as DDL; enums are their names. Raises SchemaError."""
    return _struct_of(_descriptor(message, descriptors), 0)


def from_protobuf(
    column: Any, message: str, descriptors: bytes, *, confluent: bool = False, mode: str = FAILFAST
) -> Any:
    """A column of binary Protobuf as a struct; null stays null, and fields that are not set are null.

    With `confluent`, values are in Confluent's wire format; the id and the message's place are read over, because
    Protobuf needs no writer's schema. A value that cannot be read fails the query, or with mode PERMISSIVE is null.
    """
    returns = spark_type(message, descriptors)
    decoder = _Decoder(message, descriptors, arrow_type(returns), confluent=confluent, permissive=is_permissive(mode))
    return column_function(decoder, returns)(column)


def to_protobuf(column: Any, message: str, descriptors: bytes, *, schema_id: int | None = None) -> Any:
    """A struct column as binary Protobuf; with `schema_id`, in Confluent's wire format. Null stays null."""
    _descriptor(message, descriptors)
    return column_function(_Encoder(message, descriptors, schema_id), "binary")(column)


def registered_message(
    schemas: ReferencedSchemas, schema_id: int, indexes: tuple[int, ...] = (0,)
) -> tuple[str, bytes]:
    """The full name and descriptor set of a message in a schema of a registry, with all that the schema imports.

    `schemas` is a `RegistrySchemas` with the type PROTOBUF; `indexes` is the path to the message in its file. Raises
    SchemaError for a path that the schema lacks, and what `schemas` raises.
    """
    from google.protobuf import descriptor_pb2

    from odradek.client.protobuf_messages import ProtobufMessages

    try:
        descriptor = ProtobufMessages(schemas).kind(schema_id, indexes).DESCRIPTOR
    except ValueError as error:
        raise SchemaError(str(error)) from error
    files: dict[str, Any] = {}

    def add(file: Any) -> None:
        for each in file.dependencies:
            add(each)
        if file.name not in files:
            files[file.name] = descriptor_pb2.FileDescriptorProto()
            file.CopyToProto(files[file.name])

    add(descriptor.file)
    found: bytes = descriptor_pb2.FileDescriptorSet(file=files.values()).SerializeToString()
    return str(descriptor.full_name), found


def _descriptor(message: str, descriptors: bytes) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        raise SchemaError(f"there is no message {message} in the descriptor set") from None


def _is_map(field: Any) -> bool:
    return bool(field.type == _MESSAGE and field.message_type.GetOptions().map_entry)


def _struct_of(descriptor: Any, depth: int) -> str:
    if depth > _MOST_DEPTH:
        raise SchemaError(f"{descriptor.full_name} contains itself, which Spark's types cannot")
    return f"struct<{', '.join(f'`{each.name}`: {_type_of(each, depth)}' for each in descriptor.fields)}>"


def _type_of(field: Any, depth: int) -> str:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return f"map<{_one(key, depth)}, {_one(value, depth)}>"
    one = _one(field, depth)
    return f"array<{one}>" if field.is_repeated else one


def _one(field: Any, depth: int) -> str:
    if field.type == _GROUP:
        raise SchemaError(f"{field.full_name}: groups are not supported")
    if field.type == _MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return "timestamp"
        return _struct_of(field.message_type, depth + 1)
    return _TYPES[field.type]


def _read(message: Any) -> dict[str, Any]:
    return {field.name: _read_field(message, field) for field in message.DESCRIPTOR.fields}


def _read_field(message: Any, field: Any) -> Any:
    if _is_map(field):
        kind = field.message_type.fields_by_name["value"]
        return {key: _plain(kind, value) for key, value in getattr(message, field.name).items()}
    if field.is_repeated:
        return [_plain(field, each) for each in getattr(message, field.name)]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, getattr(message, field.name))


def _plain(field: Any, value: Any) -> Any:
    import datetime as dt
    import decimal

    if field.type == _MESSAGE:
        return value.ToDatetime(tzinfo=dt.UTC) if field.message_type.full_name == _TIMESTAMP else _read(value)
    if field.type == _ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return decimal.Decimal(value) if field.type in _UNSIGNED_64 else value


def _fill(message: Any, values: dict[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        value = values.get(field.name)
        if value is None:
            continue
        target = getattr(message, field.name)
        if _is_map(field):
            kinds = field.message_type.fields_by_name
            kind = kinds["value"]
            for name, each in dict(value).items():
                key = _stored(kinds["key"], name)
                if kind.type == _MESSAGE:
                    _fill_one(kind, target[key], each)
                else:
                    target[key] = _stored(kind, each)
        elif field.is_repeated and field.type == _MESSAGE:
            for each in value:
                _fill_one(field, target.add(), each)
        elif field.is_repeated:
            target.extend(_stored(field, each) for each in value)
        elif field.type == _MESSAGE:
            target.SetInParent()
            _fill_one(field, target, value)
        else:
            setattr(message, field.name, _stored(field, value))


def _fill_one(field: Any, message: Any, value: Any) -> None:
    if field.message_type.full_name == _TIMESTAMP:
        message.FromDatetime(value)
    else:
        _fill(message, value)


def _stored(field: Any, value: Any) -> Any:
    if field.type == _ENUM:
        known = field.enum_type.values_by_name.get(value)
        if known is None and not str(value).lstrip("-").isdecimal():
            raise ValueError(f"{value!r} is not a value of {field.enum_type.full_name}")
        return int(value) if known is None else known.number
    return int(value) if field.type in _UNSIGNED_64 else value


class _Decoder:
    """Runs on executors."""

    def __init__(self, message: str, descriptors: bytes, kind: Any, *, confluent: bool, permissive: bool) -> None:
        self._message = message
        self._descriptors = descriptors
        self._kind = kind
        self._confluent = confluent
        self._permissive = permissive

    def __call__(self, values: Any) -> Any:
        from google.protobuf import message_factory

        made = message_factory.GetMessageClass(_descriptor(self._message, self._descriptors))
        decoded = [None if value is None else self._decode(made, value) for value in values.to_pylist()]
        return array_of(decoded, self._kind, permissive=self._permissive)

    def _decode(self, made: Any, value: bytes) -> Any:
        from google.protobuf.message import DecodeError

        try:
            payload = unframed(value, indexes=True)[2] if self._confluent else value
            return _read(made.FromString(payload))
        except (DecodeError, ValueError) as error:  # no framing, or a time that Python does not have
            if self._permissive:
                return None
            raise ValueError(f"a value of {len(value)} bytes is not a {self._message}: {error}") from error


class _Encoder:
    def __init__(self, message: str, descriptors: bytes, schema_id: int | None) -> None:
        self._message = message
        self._descriptors = descriptors
        self._schema_id = schema_id

    def __call__(self, values: Any) -> Any:
        import pyarrow as pa
        from google.protobuf import message_factory

        descriptor = _descriptor(self._message, self._descriptors)
        made = message_factory.GetMessageClass(descriptor)
        path = _path_of(descriptor)

        def encode(value: Any) -> bytes:
            message = made()
            _fill(message, value)
            payload: bytes = message.SerializeToString(deterministic=True)
            return payload if self._schema_id is None else framed(self._schema_id, payload, path)

        return pa.array([None if value is None else encode(value) for value in values.to_pylist()], pa.binary())


def _path_of(descriptor: Any) -> tuple[int, ...]:
    """Which message of its file this is: the numbers of the messages that lead to it."""
    path = []
    while descriptor.containing_type is not None:
        path.append(list(descriptor.containing_type.nested_types).index(descriptor))
        descriptor = descriptor.containing_type
    path.append(list(descriptor.file.message_types_by_name.values()).index(descriptor))
    return tuple(reversed(path))
