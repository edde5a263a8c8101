"""A checkpoint file that is replaced in the background: the order of writes, and what a crash may leave in it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.log.directories.checkpoint_file import CheckpointFile
from odradek.log.directories.checkpoint_formats import parse_offsets
from odradek.ports.disk import SystemDisk

OLD, NEW = ("orders", 0), ("orders", 1)


class GatedDisk(SystemDisk):
    """The first call behind the port waits until the gate opens, and fails then if it has an error."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.error = 0
        self._is_first = True

    async def run(self, lane: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        is_first, self._is_first = self._is_first, False
        if is_first:
            await self.gate.wait()
            if self.error:
                raise OSError(self.error, "failed")
        return await super().run(lane, function, *args, **kwargs)


@pytest.mark.parametrize("error", [0, errno.EIO])
def test_file_may_have_old_and_new_partitions_until_it_is_replaced(tmp_path: Path, error: int) -> None:
    """A topic that is created again must not begin with what the file has of the deleted one."""

    async def scenario() -> None:
        disk = GatedDisk()
        disk.error = error
        file = CheckpointFile(disk, "checkpoints", f"{tmp_path}/offsets", [OLD])
        writing = asyncio.ensure_future(file.write({NEW: 5}))
        await asyncio.sleep(0)
        assert file.named == {OLD, NEW}
        disk.gate.set()
        if error:
            with pytest.raises(OSError, match="failed"):
                await writing
            assert file.named == {OLD, NEW}
        else:
            await writing
            assert file.named == {NEW}
            assert parse_offsets((tmp_path / "offsets").read_bytes()) == {NEW: 5}

    asyncio.run(scenario())


@pytest.mark.parametrize("later_in_this_thread", [False, True])
def test_slow_write_does_not_replace_a_later_one(tmp_path: Path, later_in_this_thread: bool) -> None:
    async def scenario() -> None:
        disk = GatedDisk()
        file = CheckpointFile(disk, "checkpoints", f"{tmp_path}/offsets")
        slow = asyncio.ensure_future(file.write({OLD: 4}))
        await asyncio.sleep(0)
        if later_in_this_thread:
            file.write_now({NEW: 5})
        else:
            await file.write({NEW: 5})
        disk.gate.set()
        await slow
        assert file.named == {NEW}

    asyncio.run(scenario())
    assert parse_offsets((tmp_path / "offsets").read_bytes()) == {NEW: 5}
    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]
