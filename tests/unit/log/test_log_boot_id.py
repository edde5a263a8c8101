import asyncio
from pathlib import Path

import pytest

from odradek.log.directories import LogDirectories
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SystemRandom


class RebootingDisk(SystemDisk):
    """A machine that has been started so often."""

    boots = "first"

    def boot_id(self) -> str:
        return self.boots


@pytest.mark.parametrize(
    ("clean", "boots", "lost"),
    [
        (True, "first", False),
        (True, "second", False),
        (False, "first", False),
        (False, "second", True),
        (False, "", True),
    ],
)
def test_records_may_be_lost_when_the_machine_went_down_with_them(
    tmp_path: Path, clean: bool, boots: str, lost: bool
) -> None:
    async def run() -> None:
        disk = RebootingDisk()
        first = LogDirectories(disk, SystemClock(), SystemRandom(), [str(tmp_path)])
        first.load(cluster_id="c", node_id=1)
        assert not first.records_may_be_lost
        first.create("t", 0, bytes(16))
        await first.close(clean=clean)
        disk.boots = boots
        second = LogDirectories(disk, SystemClock(), SystemRandom(), [str(tmp_path)])
        second.load(cluster_id="c", node_id=1)
        assert second.records_may_be_lost is lost
        await second.close()

    asyncio.run(run())
