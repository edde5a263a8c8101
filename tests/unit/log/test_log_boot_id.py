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


@pytest.mark.parametrize("clean", [True, False])
def test_a_loss_is_told_at_every_start_until_it_is_judged(tmp_path: Path, clean: bool) -> None:
    async def run() -> None:
        disk = RebootingDisk()

        def start() -> LogDirectories:
            directories = LogDirectories(disk, SystemClock(), SystemRandom(), [str(tmp_path)])
            directories.load(cluster_id="c", node_id=1)
            return directories

        first = start()
        first.create("t", 0, bytes(16))
        await first.close(clean=False)
        disk.boots = "second"
        for _ in range(2):
            again = start()
            assert again.records_may_be_lost
            await again.close(clean=clean)
        judged = start()
        judged.losses_are_judged()
        assert not judged.records_may_be_lost
        await judged.close(clean=clean)
        last = start()
        assert not last.records_may_be_lost
        await last.close()

    asyncio.run(run())
