"""Logs that are as safe as after a flush of all of them."""

from odradek.log.directories.log_directories import LogDirectories


async def flush_all(directories: LogDirectories) -> None:
    """Sync every open log that has something new."""
    await directories.writers.wait_until_drained()
    for log in directories.opened():
        if log.durability.is_dirty:
            await directories.flusher.flush(log.durability, log.end_offset)
