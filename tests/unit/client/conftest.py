"""Fixtures of the client's tests."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio", "uvloop"])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`asyncio.run` of the test makes this kind of event loop, for tests that depend on its timers and its turns."""
    if request.param == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        monkeypatch.setattr("asyncio.events.new_event_loop", uvloop.new_event_loop)
