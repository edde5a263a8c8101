"""Random and mutated frames of peers: short runs of `./dev fuzz`."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import pytest

from odradek.broker.network.server import Server
from tests.fuzz.frames import STAGES, connected, run, serving
from tests.unit.broker.network.test_connection import ScriptedStream


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("seed", [1, 2])
def test_frames_of_strangers_harm_no_other_client(seed: int, stage: str, tmp_path: Path) -> None:
    found = asyncio.run(run(4000, seed, tmp_path / "data", stage))
    assert found.answered > 50
    assert found.closed > 50
    assert found.answered + found.closed + found.waiting == found.frames


@pytest.mark.parametrize("stage", STAGES)
def test_closed_connections_are_freed_at_once(stage: str, tmp_path: Path) -> None:
    """Neither a timer nor the garbage collector, which is rare in a broker, has to come for them."""

    async def main() -> None:
        async with serving(stage, tmp_path / "data") as server:
            gc.collect()
            gc.disable()
            try:
                streams = [await closed_stream(server, stage) for _ in range(5)]
                await asyncio.sleep(0)
                assert [each() for each in streams] == [None] * 5
            finally:
                gc.enable()

    asyncio.run(main())


async def closed_stream(server: Server, stage: str) -> weakref.ref[ScriptedStream]:
    """A peer that was answered, and has gone."""
    stream = await connected(server, stage)
    stream.deliver(b"\0\x12\0\0\0\0\0\1\0\4test")
    # A connection that is called back late in a turn of the loop is read in the next one.
    while not stream.sent:
        await asyncio.sleep(0)
    stream.incoming.append(b"")  # its end
    stream.deliver()
    while not stream.closed:
        await asyncio.sleep(0)
    return weakref.ref(stream)
