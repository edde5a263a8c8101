"""The process that evaluates expressions on records: the console ends it if one runs for too long.

Frames are JSON; bytes of records are written as Latin-1. The first frame has the kind and the expression, each further
one a list of records, and each answer the positions that match, or an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from odradek.console.messages.worker_frames import limit_memory, read_frame, write_frame

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


def main() -> None:
    """Answer until the input ends."""
    limit_memory()
    frame = read_frame(sys.stdin.buffer)
    if frame is None:
        return
    first = json.loads(frame)
    try:
        matches = compiled(first["kind"], first["expression"])
    except (ValueError, TypeError, RecursionError) as error:
        _answer({"error": str(error) or type(error).__name__})
        return
    _answer({})
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        _answer(evaluate(matches, json.loads(frame)))


def _answer(document: Mapping[str, Any]) -> None:
    write_frame(sys.stdout.buffer, json.dumps(document).encode())


if __name__ == "__main__":
    main()
