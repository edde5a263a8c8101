"""The process that evaluates expressions on records: the console ends it if one runs for too long.

Frames are JSON; bytes of records are written as Latin-1. The first frame has the kind and the expression, each further
one a list of records, and each answer the positions that match, or an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping
from operator import itemgetter
from types import ModuleType
from typing import Any, Final, NamedTuple

from odradek.console.messages.worker_frames import limit_memory, read_frame, write_frame

Matches = Callable[[dict[str, Any]], bool]
VALUE: Final = frozenset({"value"})


class Expression(NamedTuple):
    """A compiled expression."""

    matches: Matches
    """Whether the variables of a record match."""
    names: Collection[str]
    """The variables that it reads: the others are not computed."""


def compiled(kind: str, expression: str) -> Expression:
    """The expression as a function of a record's variables. Raises ValueError."""
    if kind == "cel":
        # The package imports its command line, whose libraries take longer than all the rest.
        sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))
        import cel

        program = cel.compile(expression)
        return Expression(lambda variables: program.execute(variables) is True, frozenset(program.variables()))
    import jsonpath

    try:
        path = jsonpath.compile(expression)
    except jsonpath.JSONPathError as error:
        raise ValueError(str(error)) from error

    def has_match(variables: dict[str, Any]) -> bool:
        value = variables["value"]
        return isinstance(value, dict | list) and next(iter(path.finditer(value)), None) is not None

    return Expression(has_match, VALUE)


def variables_of(record: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """What an expression reads: key and value parsed where they are JSON, else as text."""
    return {name: make(record) for name, make in _VARIABLES.items() if name in names}


def _headers(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _text(each) for name, each in record["headers"]}


def _whole(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: make(record) for name, make in _PARTS.items()},
        "timestampMs": record["timestamp"],
        "keyAsText": _text(record["key"]),
        "valueAsText": _text(record["value"]),
    }


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


_PARTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "topic": itemgetter("topic"),
    "partition": itemgetter("partition"),
    "offset": itemgetter("offset"),
    "timestamp": itemgetter("timestamp"),
    "key": lambda record: _parsed(record["key"]),
    "value": lambda record: _parsed(record["value"]),
    "headers": _headers,
}
_VARIABLES: Final = {**_PARTS, "record": _whole}


def evaluate(expression: Expression, records: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Positions of the records that match, the number of those that cannot be evaluated, and why the first cannot."""
    found, failed, why = [], 0, ""
    for at, record in enumerate(records):
        try:
            if expression.matches(variables_of(record, expression.names)):
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
        expression = compiled(first["kind"], first["expression"])
    except (ValueError, TypeError, RecursionError) as error:
        _answer({"error": str(error) or type(error).__name__})
        return
    _answer({})
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        _answer(evaluate(expression, json.loads(frame)))


def _answer(document: Mapping[str, Any]) -> None:
    write_frame(sys.stdout.buffer, json.dumps(document).encode())


if __name__ == "__main__":
    main()
