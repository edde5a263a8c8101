"""The product contains no function that only tests call."""

import re
from collections import Counter

from tests.unit.house.sources import PACKAGE, functions, package_sources

FOR_USERS = ("client/", "testing/", "spark/", "cli/", "console/", "sim/planted/")
"""Packages whose functions others call: users, argparse, and the search for planted bugs."""
CALLED_BY_OTHERS = {
    "_authenticate_with_sasl": "kazoo",
    "_read_watch_event": "kazoo",
    "_serves": "the type checker",
    "default_exception_handler": "asyncio",
    "set_debug": "asyncio",
    "redirect_request": "urllib",
    "readinto": "io",
    "seekable": "io",
}
NEEDED_BY_TESTS = {
    "broker_failed": "the end of a registration, which channels decide otherwise",
}
"""Functions that only tests call, and why they stay."""
AHEAD_OF_THEIR_CALLERS: dict[str, str] = {}
"""What is tested before the part that needs it exists (formats, against Apache's files), and which part that is."""


def test_functions_are_called_in_the_product() -> None:
    words: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        words.update(re.findall(r"\w+", path.read_text()))
    found = {
        node.name: f"{source.name}:{node.lineno}"
        for source in package_sources()
        if not source.name.startswith(FOR_USERS)
        for node in functions(source.tree)
        if words[node.name] == 1 and not node.decorator_list and not node.name.startswith("__")
    }
    allowed = CALLED_BY_OTHERS.keys() | NEEDED_BY_TESTS.keys() | AHEAD_OF_THEIR_CALLERS.keys()
    assert {name: place for name, place in found.items() if name not in allowed} == {}
    assert allowed <= found.keys(), "an exception that is none"
