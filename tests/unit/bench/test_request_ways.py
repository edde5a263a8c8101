"""Which files of a request's way a reader has to open."""

import asyncio
from collections.abc import Callable

from bench.request_ways import _is_plain, _Way
from odradek.api.requests.context import RequestContext
from odradek.ports.clock import SystemClock
from odradek.replication.partition import Partition


def _way(name: str, *functions: Callable[..., object]) -> _Way:
    way = _Way("any")
    way.files[name] = {function.__code__ for function in functions}
    return way


def test_files_with_getters_only_are_not_read() -> None:
    way = _way("api/requests/context.py", RequestContext.__init__)
    assert way.files_to_read() == []


def test_files_that_lead_to_other_files_are_read() -> None:
    way = _way("api/requests/context.py", RequestContext.__init__)
    way.leading.add("api/requests/context.py")
    assert way.files_to_read() == ["api/requests/context.py"]


def test_files_with_decisions_are_read() -> None:
    way = _way("replication/partition.py", Partition.apply_state)
    assert way.files_to_read() == ["replication/partition.py"]


def test_ports_are_not_read() -> None:
    way = _way("ports/clock.py", SystemClock.now_ms)
    way.leading.add("ports/clock.py")
    assert way.files_to_read() == []


def test_functions_with_branches_are_not_plain() -> None:
    assert not _is_plain(Partition.apply_state.__code__)
    assert not _is_plain(asyncio.sleep.__code__)
