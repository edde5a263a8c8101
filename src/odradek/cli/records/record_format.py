"""How `odradek consume` prints records: Apache's DefaultMessageFormatter, templates as of rpk and kcat, JSON, TSV."""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.client.model import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord

RawRecord = ConsumerRecord[bytes | None, bytes | None]
Format = Callable[[RawRecord], bytes]
"""A record -> what is printed for it."""

DEFAULT_FORMATTERS: Final = frozenset(
    {"org.apache.kafka.tools.consumer.DefaultMessageFormatter", "kafka.tools.DefaultMessageFormatter"}
)
NO_OP_FORMATTERS: Final = frozenset(
    {"org.apache.kafka.tools.consumer.NoOpMessageFormatter", "kafka.tools.NoOpMessageFormatter"}
)
_TIME_NAMES: Final = {CREATE_TIME: "CreateTime", LOG_APPEND_TIME: "LogAppendTime"}
_PARTS: Final = ("timestamp", "key", "offset", "epoch", "partition", "headers", "value")
_DEFAULTS: Final = {
    **{f"print.{each}": "true" if each == "value" else "false" for each in _PARTS},
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
    "key.deserializer": "",
    "value.deserializer": "",
    "header.deserializer": "",
    "headers.deserializer": "",
}


# --- Apache's formatter ---


def default_format(properties: Mapping[str, str]) -> Format:
    """`timestamp partition offset epoch headers key value`, as far as asked for. Raises UsageError."""
    settings = {**_DEFAULTS, **properties}
    for name in properties:
        if name not in _DEFAULTS and not name.startswith(("key.deserializer.", "value.deserializer.", "headers.")):
            raise UsageError(f"the formatter has no property {name}")
    wanted = {each for each in _PARTS if settings[f"print.{each}"].strip().lower() == "true"}
    separator, line_end = settings["key.separator"].encode(), settings["line.separator"].encode()
    null = settings["null.literal"].encode()
    key_text, value_text = deserializer(settings["key.deserializer"]), deserializer(settings["value.deserializer"])
    header_text = deserializer(settings["header.deserializer"] or settings["headers.deserializer"])
    headers_separator = settings["headers.separator"].encode()

    def headers(record: RawRecord) -> bytes:
        pairs = [
            name.encode() + b":" + (null if value is None else header_text(value)) for name, value in record.headers
        ]
        return headers_separator.join(pairs) or b"NO_HEADERS"

    def timestamp(record: RawRecord) -> bytes:
        if record.timestamp < 0:
            return b"NO_TIMESTAMP"
        return f"{_TIME_NAMES.get(record.timestamp_type, 'NoTimestampType')}:{record.timestamp}".encode()

    writers: dict[str, Format] = {
        "timestamp": timestamp,
        "partition": lambda r: b"Partition:%d" % r.partition,
        "offset": lambda r: b"Offset:%d" % r.offset,
        "epoch": lambda r: b"Epoch:%d" % r.leader_epoch if r.leader_epoch >= 0 else b"Epoch:NOT_PRESENT",
        "headers": headers,
        "key": lambda r: null if r.key is None else key_text(_raw(r.key)),
        "value": lambda r: null if r.value is None else value_text(_raw(r.value)),
    }
    chosen = [write for name, write in writers.items() if name in wanted]
    if wanted == {"value"} and not settings["value.deserializer"]:
        return lambda r: (null if r.value is None else _raw(r.value)) + line_end
    return lambda r: separator.join([write(r) for write in chosen]) + line_end


def _raw(data: object) -> bytes:
    assert isinstance(data, bytes)
    return data


def deserializer(name: str) -> Callable[[bytes], bytes]:
    """Apache's deserializer of this class name, as text. Raises UsageError; the function raises CommandError."""
    short = name.rpartition(".")[2].removesuffix("Deserializer").lower()
    if short in ("", "string", "bytearray", "bytes", "bytebuffer"):
        return lambda data: data
    if short == "uuid":
        return lambda data: str(uuid.UUID(data.decode())).encode()
    if short == "void":
        return lambda _: b"null"
    layouts = {"short": ">h", "integer": ">i", "long": ">q", "float": ">f", "double": ">d", "boolean": ">?"}
    if short not in layouts:
        raise UsageError(f"unknown deserializer {name}")
    layout = struct.Struct(layouts[short])

    def text(data: bytes) -> bytes:
        if len(data) != layout.size:
            raise CommandError(f"a {short} has {layout.size} bytes, not {len(data)}")
        (value,) = layout.unpack(data)
        return str(value).lower().encode()

    return text


# --- templates ---

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}


def template_format(template: str) -> Format:
    r"""`%t` topic, `%p` partition, `%o` offset, `%k` key, `%v` or `%s` value, `%h{…}` headers, `%d` timestamp, …

    Upper case gives lengths (%T, %K, %V or %S, %H: number of headers), %e the leader epoch, %i counts records, %% is a
    per cent sign. `%v{hex}`, `{base64}`, `{json}`, `{unpack[>I]}` (Python's struct), `%d{strftime[%F]}` (UTC).

    Raises UsageError.
    """
    parts = compile_template(template, _RECORD_TOKENS)
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])


def _counter(_: str) -> Callable[[Any], bytes]:
    count = 0

    def counted(_: Any) -> bytes:
        nonlocal count
        count += 1
        return b"%d" % count

    return counted


def number_token(read: Callable[[Any], int]) -> Callable[[str], Callable[[Any], bytes]]:
    """A token that prints a number of the record."""

    def make(modifier: str) -> Callable[[Any], bytes]:
        if modifier not in ("", "ascii"):
            raise UsageError(f"-f: {{{modifier}}} is for keys, values and headers")
        return lambda record: b"%d" % read(record)

    return make


def length_token(read: Callable[[Any], bytes | None]) -> Callable[[str], Callable[[Any], bytes]]:
    """A token that prints the length of a part of the record, -1 for null."""

    def length(record: Any) -> int:
        data = read(record)
        return -1 if data is None else len(data)

    return number_token(length)


def data_token(read: Callable[[Any], bytes | None]) -> Callable[[str], Callable[[Any], bytes]]:
    """A token that prints a part of the record, in the form of its modifier."""

    def make(modifier: str) -> Callable[[Any], bytes]:
        convert = _conversion(modifier)
        return lambda record: b"" if (data := read(record)) is None else convert(data)

    return make


def _conversion(modifier: str) -> Callable[[bytes], bytes]:
    if modifier == "":
        return lambda data: data
    if modifier == "hex":
        return lambda data: data.hex().encode()
    if modifier in ("base64", "base64raw"):
        strip = b"=" if modifier == "base64raw" else b""
        return lambda data: base64.b64encode(data).rstrip(strip) if strip else base64.b64encode(data)
    if modifier == "json":
        import json

        return lambda data: json.dumps(data.decode(errors="replace"), ensure_ascii=False).encode()
    if modifier.startswith("unpack[") and modifier.endswith("]"):
        return _unpack(modifier[7:-1])
    raise UsageError(f"-f: {{{modifier}}} is not one of hex, base64, base64raw, json, unpack[…]")


def _unpack(text: str) -> Callable[[bytes], bytes]:
    try:
        layout = struct.Struct(text if text[:1] in ("<", ">", "=", "!") else f">{text}")
    except struct.error as error:
        raise UsageError(f"-f: unpack[{text}]: {error}") from error

    def unpack(data: bytes) -> bytes:
        if len(data) < layout.size:
            raise CommandError(f"unpack[{text}] needs {layout.size} bytes, the record has {len(data)}")
        values = layout.unpack_from(data)
        return b" ".join(each if isinstance(each, bytes) else str(each).encode() for each in values)

    return unpack


def _time(modifier: str) -> Callable[[Any], bytes]:
    if modifier == "":
        return lambda record: b"%d" % record.timestamp
    if modifier.startswith("strftime[") and modifier.endswith("]"):
        layout = modifier[9:-1]
        return lambda record: datetime.fromtimestamp(record.timestamp / 1000, UTC).strftime(layout).encode()
    raise UsageError(f"-f: %d{{{modifier}}}: strftime[…] expected")


def _headers(modifier: str) -> Callable[[Any], bytes]:
    parts = compile_template(modifier or "%k=%v ", _HEADER_TOKENS)

    def text(record: Any) -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else part(header) for header in record.headers for part in parts
        )

    return text


Tokens = Mapping[str, Callable[[str], Callable[[Any], bytes]]]

_HEADER_TOKENS: Final[Tokens] = {
    "k": data_token(lambda header: header[0].encode()),
    "v": data_token(lambda header: header[1]),
    "K": length_token(lambda header: header[0].encode()),
    "V": length_token(lambda header: header[1]),
}
_RECORD_TOKENS: Final[Tokens] = {
    "t": data_token(lambda record: record.topic.encode()),
    "T": length_token(lambda record: record.topic.encode()),
    "k": data_token(lambda record: record.key),
    "K": length_token(lambda record: record.key),
    "v": data_token(lambda record: record.value),
    "V": length_token(lambda record: record.value),
    "s": data_token(lambda record: record.value),
    "S": length_token(lambda record: record.value),
    "p": number_token(lambda record: record.partition),
    "o": number_token(lambda record: record.offset),
    "e": number_token(lambda record: record.leader_epoch),
    "H": number_token(lambda record: len(record.headers)),
    "h": _headers,
    "d": _time,
    "i": _counter,
}


def compile_template(template: str, tokens: Tokens) -> list[bytes | Callable[[Any], bytes]]:
    """A template as its literal parts and functions of a record. Raises UsageError."""
    parts: list[bytes | Callable[[Any], bytes]] = []
    text = bytearray()
    at = 0
    while at < len(template):
        character = template[at]
        following = template[at + 1 : at + 2]
        at += 1
        if character == "\\" and following:
            at += 1
            if following == "x":
                try:
                    text += bytes.fromhex(template[at : at + 2])
                except ValueError:
                    raise UsageError(f"-f: \\x{template[at : at + 2]} is not a byte") from None
                at += 2
            else:
                text += _ESCAPES.get(following) or f"\\{following}".encode()
        elif character == "%":
            at += 1
            if following in ("%", "{", "}"):
                text += following.encode()
                continue
            if following not in tokens:
                raise UsageError(f"-f: %{following} is not one of %{', %'.join(tokens)}, %%")
            modifier, at = _braces(template, at)
            if text:
                parts.append(bytes(text))
                text.clear()
            parts.append(tokens[following](modifier))
        else:
            text += character.encode()
    if text:
        parts.append(bytes(text))
    return parts


def _braces(template: str, at: int) -> tuple[str, int]:
    """What stands in braces at a position, which may hold braces, and the position behind it."""
    if template[at : at + 1] != "{":
        return "", at
    depth = 0
    for end in range(at, len(template)):
        depth += {"{": 1, "}": -1}.get(template[end], 0)
        if depth == 0:
            return template[at + 1 : end], end + 1
    raise UsageError(f"-f: no closing brace: {template[at:]}")


# --- for programs ---


def json_format() -> Format:
    """One JSON object per line; bytes that are not UTF-8 stand in `key_base64` and `value_base64`."""
    import json

    # ASCII and no spaces around: lines stay short, and any reader takes them.
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return lambda record: encode(record_row(record)).encode() + b"\n"


def yaml_format() -> Format:
    """A format that writes each record as an element of a YAML list."""
    from odradek.cli.terminal.output import yaml_lines

    return lambda record: "\n".join([*yaml_lines([record_row(record)]), ""]).encode()


def record_row(record: RawRecord) -> dict[str, Any]:
    """A record as JSON has it."""
    row: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": _TIME_NAMES.get(record.timestamp_type),
    }
    _put(row, "key", record.key)
    _put(row, "value", record.value)
    headers = []
    for name, value in record.headers:
        header: dict[str, Any] = {"key": name}
        _put(header, "value", value)
        headers.append(header)
    row["headers"] = headers
    return row


def _put(row: dict[str, Any], name: str, data: object) -> None:
    if data is None:
        row[name] = None
        return
    raw = _raw(data)
    try:
        row[name] = raw.decode()
    except UnicodeDecodeError:
        row[f"{name}_base64"] = base64.b64encode(raw).decode()


def tsv_format() -> Format:
    """topic, partition, offset, timestamp, key, value; tabs and line ends escaped, nulls as `-`."""
    from odradek.cli.terminal.output import tsv_escaped

    def text(data: object) -> bytes:
        if data is None:
            return b"-"
        return tsv_escaped(_raw(data).decode(errors="backslashreplace")).encode()

    return lambda r: (
        b"\t".join([r.topic.encode(), b"%d\t%d\t%d" % (r.partition, r.offset, r.timestamp), text(r.key), text(r.value)])
        + b"\n"
    )


def table_format() -> Format:
    """Lines for people, aligned as far as that can be done without knowing what comes."""

    def line(record: RawRecord) -> bytes:
        moment = "-" if record.timestamp < 0 else _moment(record.timestamp)
        key, value = (_for_people(each) for each in (record.key, record.value))
        return f"{record.topic:<15} {record.partition:>4} {record.offset:>10} {moment} {key:<15} {value}\n".encode()

    return line


def _moment(timestamp_ms: int) -> str:
    """A time in UTC; the number where that is after the year 9999, as with microseconds in the place of ms."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(" ", "milliseconds")[:-6]
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def _for_people(data: object) -> str:
    from odradek.cli.terminal.output import printable

    return "-" if data is None else printable(_raw(data).decode(errors="backslashreplace"))
