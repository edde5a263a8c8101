"""./dev bench metrics-cost: what metrics cost per request.

Two versions of each function that serves requests take turns in one process, a block of 2,000 requests each: one as it
is in the sources, and one without the statements that count or time a request, or count a topic's traffic. Two
processes, or two checkouts, differ by more than the metrics cost. A statement that is not in the sources ends the
run: the list below follows them.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from bench.request_cost import measure

_DISPATCH = (
    ("            started = self._now()\n            size", "            started = 0.0\n            size"),
    ("            counters.bytes_in += size\n", ""),
    ("            took = self._now() - started\n", "            took = 0.0\n"),
    (
        """\
                timing = (context, key, self.slow, self._now, started + took, took)
                answer.timing = tuple.__new__(RequestTiming, timing)
""",
        "",
    ),
    (
        """\
            bucket = 0 if took <= FIRST_BOUND else 1 if took <= SECOND_BOUND else bisect_left(BOUNDS, took)
            counters.immediate[bucket] += 1
            counters.immediate_s += took
            if took >= self.slow.least_s:
                self.slow.took(context, key, took)
""",
        "",
    ),
)
_APPEND = (
    ("        traffic = self.traffic\n        traffic.produces += 1\n", ""),
    ("            traffic.bytes_in += size\n", ""),
    ("            traffic.messages_in += last_offset - first_offset + 1\n", ""),
)
_FETCH = (
    (
        """\
            if partition is not None:
                traffic = partition.traffic
                traffic.fetches += 1
                if read is None:
                    traffic.failed_fetches += 1
                else:
                    traffic.bytes_out += read.size
""",
        "",
    ),
)


class Measured(NamedTuple):
    """A function of the request path, and its statements of metrics with what stands in their place without them."""

    module: str
    owner: str
    name: str
    statements: Sequence[tuple[str, str]]


FUNCTIONS = (
    Measured("odradek.broker.network.dispatch", "Dispatcher", "__call__", _DISPATCH),
    Measured("odradek.replication.partition", "Partition", "append", _APPEND),
    Measured("odradek.api.api_01_fetch", "_Reader", "answer", _FETCH),
)
CASES = ("produce acks=1", "produce acks=all", "fetch", "heartbeat")


def without(text: str, statements: Sequence[tuple[str, str]]) -> str:
    """The source of a module with its statements of metrics replaced.

    Raises ValueError if a statement is not exactly once in it.
    """
    for statement, replacement in statements:
        if text.count(statement) != 1:
            raise ValueError(f"these lines are {text.count(statement)} times in the source, not once:\n{statement}")
        text = text.replace(statement, replacement)
    return text


def code_of(text: str, function: Measured) -> CodeType:
    """The code of the function in the source of its module. Raises LookupError if there is none."""
    code = compile(text, function.module, "exec", dont_inherit=True)
    for name in (function.owner, function.name):
        found = [each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name]
        if not found:
            raise LookupError(f"{function.module} has no {function.owner}.{function.name}")
        code = found[0]
    return code


def versions(function: Measured) -> tuple[Any, FunctionType, FunctionType]:
    """The class, and its method with metrics and without them; both are compiled alike."""
    module = importlib.import_module(function.module)
    owner = getattr(module, function.owner)
    method = getattr(owner, function.name)
    text = Path(str(module.__file__)).read_text()

    def made(source: str) -> FunctionType:
        found = FunctionType(code_of(source, function), vars(module), function.name, method.__defaults__)
        found.__kwdefaults__ = method.__kwdefaults__
        return found

    return owner, made(text), made(without(text, function.statements))


def turns() -> Callable[[int], None]:
    """What puts the methods with metrics in their places before even blocks, and those without before odd ones."""
    found = [(function.name, *versions(function)) for function in FUNCTIONS]

    def begins(number: int) -> None:
        for name, owner, counting, silent in found:
            setattr(owner, name, silent if number % 2 else counting)

    return begins


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench metrics-cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="*", help=f"as of ./dev bench requests (default: {', '.join(CASES)})")
    parser.add_argument("--pairs", type=int, default=60, help="blocks with metrics, and as many without (60)")
    arguments = parser.parse_args(argv)
    figures = asyncio.run(measure(arguments.case or list(CASES), 2 * arguments.pairs, {}, turns()))
    print(f"{'processor time per request, µs':34}{'with':>8}{'without':>10}{'least':>8}{'median':>9}")
    for name, values in figures.items():
        counting, silent = values[::2], values[1::2]
        typical = median(a - b for a, b in zip(counting, silent, strict=True))
        least = min(counting) - min(silent)
        print(f"{name:34}{min(counting):8.2f}{min(silent):10.2f}{least:+8.2f}{typical:+9.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
