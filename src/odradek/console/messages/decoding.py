"""Bytes of records as people read them: JSON, text, hex, and the internal topics of Kafka."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.client.framing import HEADER, MAGIC
from odradek.client.reports.stored_records import decode_offsets_record, decode_transaction_record
from odradek.console.messages.masks import RawRecord
from odradek.console.messages.schema_decoding import Origin
from odradek.console.messages.schema_worker import Decoded
from odradek.records.record import Record

MAX_SHOWN: Final = 64 * 1024
"""Bytes of a key or value that a page shows; downloads have all."""
PREVIEW: Final = 240
_HEX_BYTES: Final = 4_096
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
"""Of a text that is JSON."""
_STORED: Final = {"__consumer_offsets": decode_offsets_record, "__transaction_state": decode_transaction_record}


class Shown(NamedTuple):
    """Text for a page. `kind`: json, avro, protobuf, text, hex, internal, empty, or none (a null)."""

    kind: str
    text: str
    is_cut: bool = False
    note: str = ""
    """A note on its schema."""

    @property
    def preview(self) -> str:
        """The beginning on one line."""
        line = " ".join(self.text[: PREVIEW * 4].split())
        return line if len(line) <= PREVIEW else line[:PREVIEW] + "…"


class ShownRecord(NamedTuple):
    """A record for a page."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    leader_epoch: int
    key: Shown
    value: Shown
    headers: list[tuple[str, Shown]]
    size_bytes: int


def show_record(record: RawRecord, form: str, origin: Origin | None = None) -> ShownRecord:
    """A record as text; `form` is how its value is read: auto, json, text, hex. `origin`: what it was decoded from."""
    headers = [(name, show(value, "auto")) for name, value in record.headers]
    key, value = _stored(record) if form == "auto" and record.topic in _STORED else (None, None)
    return ShownRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.leader_epoch,
        key or _noted(show(record.key, "hex" if form == "hex" else "auto"), origin and origin.key),
        value or _noted(show(record.value, form), origin and origin.value),
        headers,
        len(record.key or b"") + len(record.value or b""),
    )


def _noted(shown: Shown, decoded: Decoded | None) -> Shown:
    """The text with what is known of its schema."""
    if decoded is None:
        return shown
    where = "" if decoded.schema_id is None else f"schema id {decoded.schema_id}"
    if decoded.format:
        return shown._replace(kind=decoded.format, note=where)
    why = f"not decoded: {decoded.text.decode(errors='replace')}"
    return shown._replace(note=f"{where}; {why}" if where else why)


def show(data: bytes | None, form: str) -> Shown:
    """Bytes as text, at most 64 KiB of them."""
    if data is None:
        return Shown("none", "null")
    if not data:
        return Shown("empty", "")
    if form == "hex":
        return _hex(data)
    if form == "auto" and data[0] == MAGIC and len(data) > HEADER.size and HEADER.unpack_from(data)[1]:
        return _framed(data)
    is_cut = len(data) > MAX_SHOWN
    try:
        text = data.decode()
    except UnicodeDecodeError:
        if form == "auto":
            return _hex(data)
        text = data[:MAX_SHOWN].decode(errors="replace")
    if form in ("auto", "json") and not is_cut and text.lstrip()[:1] in ("{", "["):
        try:
            return Shown("json", _indented(text))
        except (ValueError, RecursionError):
            pass
    if form == "auto" and not _is_readable(text[:MAX_SHOWN]):
        return _hex(data)
    return Shown("text", text[:MAX_SHOWN], is_cut)


def _indented(text: str) -> str:
    """A JSON text with its parts on lines of their own. Raises ValueError, RecursionError.

    Numbers stay as they are written, because floats would round them, and so do names that occur twice. Escapes become
    their characters, but for half of a pair of surrogates, which no page can have.
    """
    json.loads(text)  # what follows expects JSON
    parts: list[str] = []
    depth, before = 0, ""
    for token in _TOKEN.findall(text):
        closes, is_first = token in ("}", "]"), before in ("{", "[")
        if closes:
            depth -= 1
        if before == ":":
            parts.append(" ")
        elif (before == "," or is_first or closes) and not (is_first and closes):
            parts.append("\n" + "  " * depth)
        parts.append(_unescaped(token) if "\\" in token else token)
        if token in ("{", "["):
            depth += 1
        before = token
    return "".join(parts)


def _unescaped(token: str) -> str:
    return json.dumps(json.loads(token), ensure_ascii=False).encode(errors="backslashreplace").decode()


def _framed(data: bytes) -> Shown:
    """A value that begins as Confluent's wire format does. Values of JSON Schema are text behind the header."""
    schema_id = HEADER.unpack_from(data)[1]
    inner = show(data[HEADER.size :], "json") if data[HEADER.size :].lstrip()[:1] in (b"{", b"[") else None
    if inner is not None and inner.kind == "json":
        return inner._replace(note=f"schema id {schema_id}")
    return _hex(data)._replace(note=f"begins as Confluent's wire format does, with schema id {schema_id}")


def _is_readable(text: str) -> bool:
    return all(character.isprintable() or character in "\t\r\n" for character in text)


def _hex(data: bytes) -> Shown:
    lines = []
    for at in range(0, min(len(data), _HEX_BYTES), 16):
        part = data[at : at + 16]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{at:06x}  {part.hex(' '):<47}  {letters}")
    return Shown("hex", "\n".join(lines), len(data) > _HEX_BYTES)


def _stored(record: RawRecord) -> tuple[Shown | None, Shown | None]:
    """Key and value of a record of an internal topic; None for what is not known."""
    stored = Record(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    key, value = _STORED[record.topic](stored)
    return _internal(key), _internal(value)


def _internal(text: str | None) -> Shown | None:
    if text is None:
        return None
    try:
        return Shown("internal", _indented(text))
    except ValueError:
        return Shown("internal", text)


def document_of(record: RawRecord) -> Mapping[str, Any]:
    """A record for a download: text where it is UTF-8, else base64 with the encoding in a field of its own."""
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        text, encoding = _text(data)
        found[name] = text
        if encoding:
            found[f"{name}_encoding"] = encoding
    found["headers"] = [
        {"name": name, "value": _text(value)[0], "encoding": _text(value)[1]} for name, value in record.headers
    ]
    return found


def _text(data: bytes | None) -> tuple[str | None, str | None]:
    if data is None:
        return None, None
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
