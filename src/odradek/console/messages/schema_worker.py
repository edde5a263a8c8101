"""The process that decodes Avro and Protobuf: bytes of strangers can cost it its memory, its time or its life.

The first frame is the list of schemas in JSON. Each further frame has parts of records, and its answer what became of
them, in the same order.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from odradek.client.framing import HEADER, MAGIC, FramingError, unframed
from odradek.console.messages.worker_frames import limit_memory, read_frame, write_frame

MAX_TEXT: Final = 1024 * 1024
"""Bytes of a decoded part: a small value may hold a large document."""
PARTS: Final = ("key", "value")
_ASKED: Final = struct.Struct(">BI")
_ANSWERED: Final = struct.Struct(">BqI")
_FORMATS: Final = ("", "avro", "protobuf")
_MESSAGE: Final = 11
_ENUM: Final = 14
_WELL_KNOWN: Final = ("google.protobuf.Timestamp", "google.protobuf.Duration")

Read = Callable[[bytes, bool], Any]
"""Makes a document of a value's bytes, which begin with a header or not. Raises errors of many kinds."""


class Decoded(NamedTuple):
    """A part of a record. `format` is empty if it could not be decoded; `text` is then the reason, else JSON."""

    format: str
    schema_id: int | None
    text: bytes


class Schema(NamedTuple):
    """A compiled schema: `read` for its own values, and Avro's schema, to which others may be resolved."""

    format: str
    read: Read
    parsed: Any = None


def compiled(rule: Mapping[str, Any]) -> Schema:
    """The schema of a rule. Raises errors of many kinds."""
    if rule["format"] == "avro":
        from fastavro import parse_schema

        parsed = parse_schema(json.loads(rule["text"]))
        return Schema("avro", lambda data, is_framed: read_avro(data, parsed, None, is_framed=is_framed), parsed)
    descriptor = _descriptor(base64.b64decode(rule["text"]), rule["message"])
    return Schema("protobuf", lambda data, is_framed: _read_protobuf(data, descriptor, is_framed=is_framed))


class Decoder:
    """Decodes parts by the schemas of one topic."""

    def __init__(self, rules: Iterable[Mapping[str, Any]]) -> None:
        self._schemas = {(each["part"], each["id"]): compiled(each) for each in rules}

    def decode(self, part: str, data: bytes) -> Decoded | None:
        """A part as JSON; None if no schema is for it. A value with a header is first tried with it."""
        header = HEADER.unpack_from(data)[1] if len(data) >= HEADER.size and data[0] == MAGIC else None
        writer, usual = self._schemas.get((part, header)), self._schemas.get((part, None))
        why = "there is no schema for this id"
        for schema, is_framed in ((writer, True), (usual, True), (usual, False)):
            if schema is None or (is_framed and header is None):
                continue
            try:
                if schema is writer and usual is not None and writer.format == usual.format == "avro" and is_framed:
                    document = read_avro(data, writer.parsed, usual.parsed, is_framed=True)
                else:
                    document = schema.read(data, is_framed)
                text = json.dumps(document, ensure_ascii=False, default=_plain).encode(errors="backslashreplace")
            except Exception as error:  # noqa: BLE001 - whatever a value of strangers raises concerns it alone
                why = f"{type(error).__name__}: {error}"[:300]
                continue
            if len(text) > MAX_TEXT:
                why = f"its document has more than {MAX_TEXT} bytes"
                continue
            return Decoded(schema.format, header if is_framed else None, text)
        return Decoded("", header, why.encode(errors="replace")) if writer or usual else None


def read_avro(data: bytes, writer: Any, reader: Any, *, is_framed: bool) -> Any:
    """The document of Avro's binary form, which has to take all bytes. Raises errors of many kinds."""
    from fastavro import schemaless_reader

    stream = io.BytesIO(data)
    stream.seek(HEADER.size if is_framed else 0)
    document = schemaless_reader(stream, writer, reader)
    if stream.tell() != len(data):
        raise ValueError(f"{len(data) - stream.tell()} bytes follow the value")
    return document


def _plain(value: Any) -> Any:
    """JSON for what Avro's logical types become."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _descriptor(descriptors: bytes, message: str) -> Any:
    """The message of a descriptor set. Raises KeyError, TypeError, DecodeError."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return pool.FindMessageTypeByName(message)


def _read_protobuf(data: bytes, descriptor: Any, *, is_framed: bool) -> Any:
    from google.protobuf import message_factory

    if is_framed:
        _, path, data = unframed(data, indexes=True)
        descriptor = _at(descriptor.file, path)
    message = message_factory.GetMessageClass(descriptor).FromString(data)
    if data and not message.ListFields():
        raise ValueError(f"no field of {descriptor.full_name} is in the value")
    return _document(message)


def _at(file: Any, path: tuple[int, ...]) -> Any:
    """The message of a file that indexes lead to. Raises FramingError."""
    found = list(file.message_types_by_name.values())
    descriptor = None
    for index in path:
        if not 0 <= index < len(found):
            raise FramingError(f"{file.name} has no message at {path}")
        descriptor = found[index]
        found = list(descriptor.nested_types)
    return descriptor


def _document(message: Any) -> Any:
    """Fields by name: those that are set, and those that have a value in any case."""
    if message.DESCRIPTOR.full_name in _WELL_KNOWN:
        try:
            return message.ToJsonString()
        except ValueError:
            return {"seconds": message.seconds, "nanos": message.nanos}
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if field.type == _MESSAGE and field.message_type.GetOptions().map_entry:
            kind = field.message_type.fields_by_name["value"]
            found[field.name] = {str(key): _value(kind, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, each) for each in value]
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.type == _MESSAGE:
        return _document(value)
    if field.type == _ENUM:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


# --- frames ---


def pack_parts(parts: Iterable[tuple[str, bytes]]) -> bytes:
    """A frame of parts: the kind and the bytes of each."""
    return b"".join(_ASKED.pack(PARTS.index(part), len(data)) + data for part, data in parts)


def unpack_answers(frame: bytes) -> list[Decoded | None]:
    """The answers to the parts of a frame, in order."""
    found: list[Decoded | None] = []
    at = 0
    while at < len(frame):
        number, schema_id, length = _ANSWERED.unpack_from(frame, at)
        at += _ANSWERED.size
        if number == len(_FORMATS):
            found.append(None)
        else:
            found.append(Decoded(_FORMATS[number], None if schema_id < 0 else schema_id, frame[at : at + length]))
        at += length
    return found


def answer(decoder: Decoder, frame: bytes) -> bytes:
    """The results of the parts of a frame."""
    found = []
    at = 0
    while at < len(frame):
        part, length = _ASKED.unpack_from(frame, at)
        at += _ASKED.size
        decoded = decoder.decode(PARTS[part], frame[at : at + length])
        at += length
        if decoded is None:
            found.append(_ANSWERED.pack(len(_FORMATS), -1, 0))
        else:
            number, schema_id = _FORMATS.index(decoded.format), decoded.schema_id
            found.append(_ANSWERED.pack(number, -1 if schema_id is None else schema_id, len(decoded.text)))
            found.append(decoded.text)
    return b"".join(found)


def main() -> None:
    """Answer until the input ends."""
    limit_memory()
    first = read_frame(sys.stdin.buffer)
    if first is None:
        return
    decoder = Decoder(json.loads(first))
    write_frame(sys.stdout.buffer, b"")
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        write_frame(sys.stdout.buffer, answer(decoder, frame))


if __name__ == "__main__":
    main()
