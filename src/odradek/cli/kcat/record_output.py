"""How `odradek -C` prints records: kcat's `-f` and `-J`."""

from __future__ import annotations

import json
from typing import Any

from odradek.cli.records.record_format import Format, compile_template, data_token, length_token, number_token


def kcat_format(template: str, null: bytes) -> Format:
    """The format of `-f`; a null key or value is printed as `null`. Raises UsageError."""

    def headers(_: str) -> Any:
        return lambda record: b",".join(
            name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers
        )

    def value_length(_: str) -> Any:
        return lambda record: (-1 if record.value is None else len(record.value)).to_bytes(4, "big", signed=True)

    tokens = {
        "t": data_token(lambda record: record.topic.encode()),
        "p": number_token(lambda record: record.partition),
        "o": number_token(lambda record: record.offset),
        "k": data_token(lambda record: null if record.key is None else record.key),
        "K": length_token(lambda record: record.key),
        "s": data_token(lambda record: null if record.value is None else record.value),
        "S": length_token(lambda record: record.value),
        "R": value_length,
        "T": number_token(lambda record: record.timestamp),
        "h": headers,
    }
    parts = compile_template(template, tokens)
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])


def json_envelope(record: Any) -> bytes:
    """A record as `kcat -J` prints it, without the id of the broker."""
    kinds = {0: "create", 1: "logappend"}
    row: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": kinds.get(record.timestamp_type, "unknown"),
        "ts": record.timestamp,
    }
    if record.headers:
        row["headers"] = [_text(each) for pair in record.headers for each in pair]
    row["key"] = _text(record.key)
    row["payload"] = _text(record.value)
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _text(data: str | bytes | None) -> str | None:
    return data.decode(errors="replace") if isinstance(data, bytes) else data
