"""The process that evaluates expressions on records: the console ends it if one runs for too long.

Frames on standard input and output are a length of four bytes and JSON; bytes of records are written as Latin-1. The
first frame has the kind and the expression, each further one a list of records, and each answer the positions that
match, or an error.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

MAX_BYTES: Final = 2 * 1024**3
"""Address space of the process: an expression that builds large values fails."""
LENGTH: Final = struct.Struct(">I")

Matches = Callable[[Mapping[str, Any]], bool]


def compiled(kind: str, expression: str) -> Matches:
    """The expression as a function of a record's variables. Raises ValueError."""
    if kind == "cel":
        import cel

        program = cel.compile(expression)
        return lambda variables: program.execute(dict(variables)) is True
    import jsonpath

    try:
        path = jsonpath.compile(expression)
    except jsonpath.JSONPathError as error:
        raise ValueError(str(error)) from error

    def has_match(variables: Mapping[str, Any]) -> bool:
        value = variables["value"]
        return isinstance(value, dict | list) and next(iter(path.finditer(value)), None) is not None

    return has_match


def variables_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What an expression reads: key and value parsed where they are JSON, else as text."""
    key, value = _parsed(record["key"]), _parsed(record["value"])
    headers = {name: _text(each) for name, each in record["headers"]}
    place = {name: record[name] for name in ("topic", "partition", "offset", "timestamp")}
    whole = {
        **place,
        "key": key,
        "value": value,
        "headers": headers,
        "timestampMs": record["timestamp"],
        "keyAsText": _text(record["key"]),
        "valueAsText": _text(record["value"]),
    }
    return {**place, "key": key, "value": value, "headers": headers, "record": whole}


def _text(data: str | None) -> str | None:
    return None if data is None else data.encode("latin-1").decode(errors="replace")


def _parsed(data: str | None) -> Any:
    text = _text(data)
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def evaluate(matches: Matches, records: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Positions of the records that match, the number of those that cannot be evaluated, and why the first cannot."""
    found, failed, why = [], 0, ""
    for at, record in enumerate(records):
        try:
            if matches(variables_of(record)):
                found.append(at)
        except Exception as error:  # noqa: BLE001 - whatever an expression raises concerns one record
            failed += 1
            why = why or f"{type(error).__name__}: {error}"[:300]
    return {"found": found, "failed": failed, "why": why}


def read_frame(stream: BinaryIO) -> Any:
    """The next frame; None at the end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return json.loads(stream.read(LENGTH.unpack(head)[0]))


def write_frame(stream: BinaryIO, document: Any) -> None:
    """Send a frame."""
    data = json.dumps(document).encode()
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def main() -> None:
    """Answer until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    first = read_frame(sys.stdin.buffer)
    if first is None:
        return
    try:
        matches = compiled(first["kind"], first["expression"])
    except (ValueError, TypeError, RecursionError) as error:
        write_frame(sys.stdout.buffer, {"error": str(error) or type(error).__name__})
        return
    write_frame(sys.stdout.buffer, {})
    while (records := read_frame(sys.stdin.buffer)) is not None:
        write_frame(sys.stdout.buffer, evaluate(matches, records))


if __name__ == "__main__":
    main()
