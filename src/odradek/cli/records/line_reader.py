"""Turns lines of input into records: text with separators (Kafka's LineMessageReader), or one JSON object per line."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from odradek.cli.arguments.errors import CommandError, UsageError

Headers = list[tuple[str, bytes | None]]

_DEFAULTS: Final = {
    "parse.key": "false",
    "parse.headers": "false",
    "ignore.error": "false",
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
}
_SHOWN_BYTES: Final = 200
_LATEST_MS: Final = (1 << 63) - 1


class Input(NamedTuple):
    """A record to be sent; timestamp in ms, None for now."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None = None


class LineReader:
    """`headers DELIMITER key SEPARATOR value`, headers and key only if the properties ask for them."""

    __slots__ = (
        "_header_delimiter", "_header_key_separator", "_header_separator", "_ignore_error", "_key_separator",
        "_null_marker", "_parse_headers", "_parse_key",
    )  # fmt: skip

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Properties as of Apache's reader. Raises UsageError."""
        settings = {**_DEFAULTS, **properties}
        unknown = set(settings) - set(_DEFAULTS) - {"null.marker", "topic"}
        if unknown:
            raise UsageError(f"the line reader has no property {', '.join(sorted(unknown))}")
        self._parse_key = _flag(settings, "parse.key")
        self._parse_headers = _flag(settings, "parse.headers")
        self._ignore_error = _flag(settings, "ignore.error")
        self._key_separator = settings["key.separator"].encode()
        self._header_delimiter = settings["headers.delimiter"].encode()
        self._header_separator = settings["headers.separator"].encode()
        self._header_key_separator = settings["headers.key.separator"].encode()
        marker = settings.get("null.marker")
        self._null_marker = None if marker is None else marker.encode()
        separators = ["key.separator", "headers.delimiter", "headers.separator", "headers.key.separator"]
        for name in separators:
            if not settings[name]:
                raise UsageError(f"{name} is empty")
            if settings[name] == marker:
                raise UsageError(f"null.marker and {name} may not be equal")
        for one, other in (separators[1:3], separators[1::2], separators[2:]):
            if settings[one] == settings[other]:
                raise UsageError(f"{one} and {other} may not be equal")

    def read(self, line: bytes, number: int) -> Input:
        """Raises CommandError for a line without the separators that were promised, unless ignore.error is set."""
        headers: Headers = []
        key: bytes | None = None
        rest = line
        if self._parse_headers:
            before, found, after = rest.partition(self._header_delimiter)
            if found:
                headers, rest = self._headers(before, number), after
            else:
                self._complain("headers delimiter", line, number)
        if self._parse_key:
            before, found, after = rest.partition(self._key_separator)
            if found:
                key, rest = self._nullable(before), after
            else:
                self._complain("key separator", line, number)
        return Input(key, self._nullable(rest), headers)

    def _headers(self, text: bytes, number: int) -> Headers:
        headers: Headers = []
        if self._nullable(text) is None:
            return headers
        for pair in text.split(self._header_separator):
            name, found, value = pair.partition(self._header_key_separator)
            if not found:
                self._complain(f"header key separator in {shown(pair)}", text, number)
                headers.append((_text(pair, number), None))
                continue
            if self._nullable(name) is None:
                raise CommandError(f"line {number}: the name of a header may not be the null marker")
            headers.append((_text(name, number), self._nullable(value)))
        return headers

    def _nullable(self, data: bytes) -> bytes | None:
        return None if data == self._null_marker else data

    def _complain(self, what: str, line: bytes, number: int) -> None:
        if not self._ignore_error:
            raise CommandError(f"line {number}: there is no {what}: {shown(line)}")


_RECORD_FIELDS: Final = frozenset({"key", "key_base64", "value", "value_base64", "headers", "timestamp"})
_PLACE_FIELDS: Final = frozenset({"topic", "partition", "offset", "timestamp_type", "leader_epoch"})
_HEADER_FIELDS: Final = frozenset({"key", "value", "value_base64"})


class JsonReader:
    """One JSON object per line, as `odradek consume -o json` prints it; its place (topic, offset, …) is not used.

    An unknown or missing field is an error: a record whose value is lost to a misspelling would be a tombstone.
    """

    __slots__ = ()

    def read(self, line: bytes, number: int) -> Input:
        """Raises CommandError for a line that is not such an object."""
        import json

        try:
            found = json.loads(line, parse_float=_Written)
        except (ValueError, RecursionError) as error:
            raise CommandError(f"line {number}: this is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise CommandError(f"line {number}: a JSON object is expected")
        _check_fields(found, _RECORD_FIELDS, _PLACE_FIELDS, f"line {number}")
        if "value" not in found and "value_base64" not in found:
            raise CommandError(f'line {number}: the field "value" is missing ("value": null writes a tombstone)')
        timestamp = found.get("timestamp")
        if timestamp is not None and (not isinstance(timestamp, int) or isinstance(timestamp, bool)):
            raise CommandError(f"line {number}: timestamp is not a number of milliseconds")
        if timestamp is not None and timestamp > _LATEST_MS:
            raise CommandError(f"line {number}: timestamp {timestamp} does not fit into 64 bits")
        if timestamp is not None and timestamp < 0:
            timestamp = None
        headers = _json_headers(found.get("headers"), number)
        return Input(_bytes(found, "key", number), _bytes(found, "value", number), headers, timestamp)


def _json_headers(given: Any, number: int) -> Headers:
    if given is None:
        return []
    if not isinstance(given, list):
        raise CommandError(f'line {number}: headers are a list of objects with "key" and "value"')
    headers: Headers = []
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("key"), str):
            raise CommandError(f'line {number}: headers are objects with "key" and "value"')
        _check_fields(each, _HEADER_FIELDS, frozenset(), f"line {number}: header {each['key']}")
        _utf8(each["key"], "the name of a header", number)
        headers.append((each["key"], _bytes(each, "value", number)))
    return headers


def _check_fields(found: dict[str, Any], known: frozenset[str], ignored: frozenset[str], place: str) -> None:
    """Raises CommandError for a field that has no meaning, or for a value in two forms."""
    for name in found:
        if name not in known and name not in ignored:
            raise CommandError(f"{place}: unknown field {name!r} (fields: {', '.join(sorted(known))})")
        if f"{name}_base64" in found and name in known:
            raise CommandError(f"{place}: {name} and {name}_base64 exclude each other")


def _bytes(found: dict[str, Any], name: str, number: int) -> bytes | None:
    """Text as UTF-8, `NAME_base64` as bytes, other JSON values as JSON."""
    encoded = found.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError) as error:
            raise CommandError(f"line {number}: {name}_base64: {error}") from error
    value = found.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return _utf8(value, name, number)
    try:
        return _utf8(_json_text(value), name, number)
    except RecursionError as error:
        raise CommandError(f"line {number}: {name}: {error}") from error


class _Written(float):
    """A number with a fraction or an exponent, as it is written: a float may be another number."""

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


def _json_text(value: Any) -> str:
    """JSON without spaces, with numbers as they were written."""
    import json

    if isinstance(value, _Written):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json_text(name)}:{_json_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _utf8(text: str, what: str, number: int) -> bytes:
    r"""Raises CommandError for half of a pair of surrogates, which JSON can write as `\ud800`."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CommandError(f"line {number}: {what} is not Unicode: {error.reason}") from error


def _flag(settings: Mapping[str, str], name: str) -> bool:
    return settings[name].strip().lower() == "true"


def _text(data: bytes, number: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"line {number}: the name of a header is not UTF-8: {shown(data)}") from error


def shown(data: bytes) -> str:
    """Part of a line for an error message."""
    text = data[:_SHOWN_BYTES].decode(errors="replace")
    return repr(text + ("…" if len(data) > _SHOWN_BYTES else ""))
