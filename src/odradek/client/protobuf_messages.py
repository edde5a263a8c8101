"""Protobuf messages by schema id and message index, and their fields as Python's objects. Needs the extra `formats`.

The schemas are descriptors in base64, as `RegistrySchemas` with the type PROTOBUF has them: no generated code is
needed.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from odradek.client.framing import ReferencedSchemas, unframed
from odradek.ports.installation import install_hint

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(f"Protobuf needs protobuf: {install_hint('formats')}", name=missing.name) from missing

_MESSAGE: Final = 11
_ENUM: Final = 14
# numbers of FieldDescriptorProto's type and label
_WELL_KNOWN: Final = frozenset(
    f"google/protobuf/{each}.proto"
    for each in (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp",
        "type", "wrappers",
    )
)  # fmt: skip
"""Imports that need no reference: they come with Protobuf."""
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_OPTIONS: Final = "confluent/meta.proto"
"""Only has options of fields, which need no definition. Registries have it without a reference."""
_DECIMAL: Final = "confluent/type/decimal.proto"


class ProtobufMessages:
    """Reads values in Confluent's wire format with the schemas that they were written with.

    `message_fields` makes a dict of the message that it returns.

    Example:

        registry = RegistrySchemas("http://registry:8081", schema_type="PROTOBUF")
        consumer = Consumer(
            "orders-in-protobuf",
            bootstrap_servers="127.0.0.1:9092",
            auto_offset_reset="earliest",
            value_deserializer=ProtobufMessages(registry).read,
        )
        async with consumer:
            for record in await consumer.poll(timeout_ms=1000):
                print(message_fields(record.value)["article"])
    """

    __slots__ = ("_kinds", "_roots", "_schemas")

    def __init__(self, schemas: ReferencedSchemas) -> None:
        """`schemas` is asked once for each id, with its first value."""
        self._schemas = schemas
        self._roots: dict[int, tuple[Any, Any]] = {}
        self._kinds: dict[tuple[int, tuple[int, ...]], Any] = {}

    def read(self, data: bytes) -> Any:
        """The message. Blocks while a schema is fetched.

        Raises ValueError for bytes that are not a message of their schema, LookupError for an id that `schemas` lacks,
        and whatever else `schemas` raises.
        """
        schema_id, indexes, payload = unframed(data, indexes=True)
        return parse_message(self.kind(schema_id, indexes), payload)

    def kind(self, schema_id: int, indexes: tuple[int, ...] = (0,)) -> Any:
        """The class of a message; `indexes` is the path to it in its file. Raises as `read`."""
        found = self._kinds.get((schema_id, indexes))
        if found is None:
            pool, root = self._root(schema_id)
            descriptor = pool.FindMessageTypeByName(_name_at(root, indexes, schema_id))
            found = self._kinds[schema_id, indexes] = message_factory.GetMessageClass(descriptor)
        return found

    def _root(self, schema_id: int) -> tuple[Any, Any]:
        """(the pool with the schema, its file)."""
        found = self._roots.get(schema_id)
        if found is None:
            text = self._schemas.schema(schema_id)
            pool = descriptor_pool.DescriptorPool()
            root = _file(f"schema-{schema_id}.proto", text)
            added: set[str] = set()
            try:
                for name, each in self._schemas.referenced(schema_id).items():
                    _add(pool, _file(name, each), added)
                _add(pool, root, added)
                pool.FindFileByName(root.name)
            except (TypeError, KeyError) as error:
                raise ValueError(f"schema {schema_id} is no complete Protobuf file: {error}") from error
            found = self._roots[schema_id] = pool, root
        return found


def parse_message(kind: Any, payload: bytes) -> Any:
    """A message of a class. Raises ValueError for other bytes."""
    message = kind()
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise ValueError(f"not a message {kind.DESCRIPTOR.full_name}: {error}") from error
    return message


def is_well_known(path: str) -> bool:
    """Whether an import needs no reference: it comes with Protobuf or with registries."""
    return path in _WELL_KNOWN or path in (_OPTIONS, _DECIMAL)


def message_fields(message: Any) -> dict[str, Any]:
    """The fields of a message by their names; a field with presence that is not set is None.

    Enums are their names, or the number as text where the schema has none; a Timestamp is a datetime in UTC, a Duration
    a timedelta, both to the microsecond; wrappers, Struct, Value and ListValue are their content, and Confluent's
    Decimal a Decimal. Raises ValueError for a time that Python does not have.
    """
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.type == _MESSAGE and field.message_type.GetOptions().map_entry:
        kind = field.message_type.fields_by_name["value"]
        return {key: _plain(kind, each) for key, each in value.items()}
    if field.is_repeated:
        return [_plain(field, each) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, value)


def _plain(field: Any, value: Any) -> Any:
    if field.type == _ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name in _WRAPPERS:
        return value.value
    special = _SPECIAL.get(name)
    return message_fields(value) if special is None else special(value)


def _moment(value: Any) -> dt.datetime:
    try:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
            seconds=value.seconds, microseconds=value.nanos // 1000
        )
    except OverflowError as error:
        raise ValueError(f"no time of Python's: {value.seconds} s after 1970") from error


def _span(value: Any) -> dt.timedelta:
    try:
        return dt.timedelta(seconds=value.seconds, microseconds=int(value.nanos / 1000))
    except OverflowError as error:
        raise ValueError(f"no time span of Python's: {value.seconds} s") from error


def _decimal(value: Any) -> decimal.Decimal:
    sign, digits, _ = decimal.Decimal(int.from_bytes(value.value, "big", signed=True)).as_tuple()
    return decimal.Decimal((sign, digits, -value.scale))


def _json_value(value: Any) -> Any:
    name = value.WhichOneof("kind")
    if name is None or name == "null_value":
        return None
    found = getattr(value, name)
    if name == "struct_value":
        return _json_object(found)
    return _json_list(found) if name == "list_value" else found


def _json_object(value: Any) -> dict[str, Any]:
    return {name: _json_value(each) for name, each in value.fields.items()}


def _json_list(value: Any) -> list[Any]:
    return [_json_value(each) for each in value.values]


_SPECIAL: Final[Mapping[str, Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": _moment,
    "google.protobuf.Duration": _span,
    "google.protobuf.Struct": _json_object,
    "google.protobuf.Value": _json_value,
    "google.protobuf.ListValue": _json_list,
    "confluent.type.Decimal": _decimal,
}


def _file(name: str, text: str) -> Any:
    """Raises ValueError."""
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError) as error:
        raise ValueError(
            f"the schema of {name} is not a descriptor in base64; the registry has to know format=serialized"
        ) from error
    file.name = name  # registries do not keep the name of a file
    kept = [each for each in file.dependency if each != _OPTIONS]
    if len(kept) < len(file.dependency):
        # These count places in the list of imports, and only matter where an import is passed on.
        del file.public_dependency[:]
        del file.weak_dependency[:]
        del file.dependency[:]
        file.dependency.extend(kept)
    return file


def _add(pool: Any, file: Any, added: set[str]) -> None:
    for path in file.dependency:
        if path in added:
            continue
        if path in _WELL_KNOWN:
            module = import_module(path.removesuffix(".proto").replace("/", ".") + "_pb2")
            known = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(known)
            added.add(path)
            _add(pool, known, added)
        elif path == _DECIMAL:
            _add(pool, _decimal_file(), added)
    pool.Add(file)
    added.add(file.name)


def _decimal_file() -> Any:
    """Confluent's decimals, which registries have without a reference."""
    file = descriptor_pb2.FileDescriptorProto(name=_DECIMAL, package="confluent.type", syntax="proto3")
    message = file.message_type.add(name="Decimal")
    for number, (name, kind) in enumerate((("value", 12), ("precision", 13), ("scale", 5)), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    return file


def _name_at(file: Any, indexes: tuple[int, ...], schema_id: int) -> str:
    """The full name of a message by its place. Raises ValueError."""
    names, messages = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"schema {schema_id} has no message with the indexes {list(indexes)}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)
