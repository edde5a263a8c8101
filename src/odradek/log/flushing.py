"""What has to be synced to make a log durable, as a plan that another thread may execute."""

from __future__ import annotations

from typing import NamedTuple

from odradek.ports.disk import Disk, File


class FlushPlan(NamedTuple):
    """Makes everything below the offset durable once it is synced; see PartitionLog.plan_flush and finish_flush."""

    offset: int
    files: list[File]
    directories: list[str]
    """Directories whose names have to be durable, too."""
    generation: int
    """The number of truncations before it: one in between makes it void."""

    def sync(self, disk: Disk) -> None:
        """Do it. Touches nothing but the files, so any thread may. Raises OSError."""
        for file in self.files:
            file.sync()
        for directory in self.directories:
            disk.sync_directory(directory)
