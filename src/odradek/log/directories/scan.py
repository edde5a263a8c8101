"""What a log directory holds when the broker starts: one listing and four small files (LogManager.loadLogs)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, NamedTuple, TypeVar

from odradek.log.directories.checkpoint_file import TEMPORARY, CheckpointFile
from odradek.log.directories.checkpoint_formats import (
    BOOT_ID,
    BROKER_EPOCH,
    CLEAN_SHUTDOWN,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PROMISE,
    CorruptCheckpoint,
    MetaProperties,
    format_last_use,
    format_promise,
    parse_clean_shutdown,
    parse_last_use,
    parse_meta_properties,
    parse_offsets,
    parse_promise,
)
from odradek.log.directories.identity import claim
from odradek.log.directories.log_directory import OFFSET_CHECKPOINTS, LogDirectory, LogDirectoryError
from odradek.log.directories.ownership import CLUSTER_METADATA
from odradek.log.directories.replica_copy import parse_future_name
from odradek.log.disk_errors import is_transient
from odradek.log.segments.files import DELETE_DIRECTORY
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random
from odradek.records.topic_partition import PartitionKey

T = TypeVar("T")

_RECORDS_LOST: Final = "records may be lost"
"""In the place of the id of a boot."""
_PARTITION: Final = re.compile(r"^(.+)-(0|[1-9][0-9]*)$")
"""As a broker names the directory of a partition: `backup-2026-01-01` is not one."""
_DOOMED: Final = re.compile(rf"^.+\.[0-9a-f]{{32}}{DELETE_DIRECTORY}$")
"""As a broker renames it before it removes it; `orders-before-delete` may be the operator's."""


class Found(NamedTuple):
    """Names in a log directory, by what they are."""

    clean: bool
    """Whether the last stop was a clean one."""
    partitions: list[PartitionKey]
    futures: list[tuple[PartitionKey, str]]
    """Replicas on their way here, with their paths."""
    doomed: list[str]
    """Paths of directories that are to be removed."""


def scan(
    disk: Disk, directory: LogDirectory, own: MetaProperties, random: Random, report: Callable[[str], None]
) -> Found:
    """Take the directory into use: identity, checkpoints. LogDirectoryError if it is another node's; OSError."""
    path = directory.path
    names = disk.list(path)
    directory.directory_id = claim(disk, path, META_PROPERTIES in names, own, random)
    clean = CLEAN_SHUTDOWN in names
    if clean:
        disk.remove(f"{path}/{CLEAN_SHUTDOWN}")
    # A power loss that brought it back would have the next start believe what was written since; one that undid what
    # the process before this one renamed would bring back a partition that may be in another log directory by then.
    disk.sync_directory(path)
    for name in OFFSET_CHECKPOINTS:
        offsets = directory.offsets(name)
        if name in names:
            offsets.update(_read_offsets(disk, f"{path}/{name}", report))
        directory.checkpoints[name] = CheckpointFile(disk, path, f"{path}/{name}", offsets)
    found = Found(clean, [], [], [])
    for name in names:
        if name.endswith(TEMPORARY) and name.startswith(OFFSET_CHECKPOINTS):
            disk.remove(f"{path}/{name}")
            continue
        if _DOOMED.match(name):
            found.doomed.append(f"{path}/{name}")
            continue
        future = parse_future_name(name)
        if future is not None:
            found.futures.append((future, f"{path}/{name}"))
            continue
        match = _PARTITION.match(name)
        if match is not None and name != CLUSTER_METADATA:
            found.partitions.append((match[1], int(match[2])))
    _forget_others(directory, set(found.partitions), {key for key, _ in found.futures})
    return found


def _forget_others(directory: LogDirectory, here: set[PartitionKey], coming: set[PartitionKey]) -> None:
    """The checkpoints may be older than a deletion: a new topic of the same name would begin where the old one did.

    Of a replica on its way here only the log start is written before it takes over: the rest is of an earlier one.
    """
    for name in OFFSET_CHECKPOINTS:
        offsets = directory.offsets(name)
        kept = here | coming if name == LOG_START_OFFSETS else here
        for key in [each for each in offsets if each not in kept]:
            del offsets[key]


def may_have_lost_records(disk: Disk, found: Found, path: str) -> bool:
    """Whether what was not synced may be gone: the machine has rebooted since an unclean stop. OSError.

    A process that dies alone loses nothing that it had written. Once true it stays so over further starts, clean ends
    included, until `note_boots`.
    """
    present = disk.boot_id()
    was_used, known = _noted_boot(disk, found, path)
    lost = was_used and (known == _RECORDS_LOST or (not found.clean and (not present or known != present)))
    file = f"{path}/{BOOT_ID}"
    if lost:
        if known != _RECORDS_LOST:
            disk.write_atomic(file, _RECORDS_LOST.encode())
    elif known != present:
        disk.write_atomic(file, present.encode(), sync=False)
    return lost


def _noted_boot(disk: Disk, found: Found, path: str) -> tuple[bool, str]:
    """Whether the directory was used before, and what it notes of the boot. OSError."""
    file = f"{path}/{BOOT_ID}"
    if disk.exists(file):
        return True, disk.read_file(file).decode(errors="replace")
    # The directories of new partitions may be gone, too.
    return bool(found.partitions), ""


def promised_until(disk: Disk, found: Found, path: str) -> float:
    """When the last promises of the process before end, by the machine's clock; infinity if a reboot undid the note.

    To be asked before `may_have_lost_records`, which notes the present boot. OSError.
    """
    was_used, known = _noted_boot(disk, found, path)
    if was_used and known != disk.boot_id():
        return inf
    file = f"{path}/{PROMISE}"
    return parse_promise(disk.read_file(file)) if disk.exists(file) else -inf


def note_promise(disk: Disk, paths: Sequence[str], until: float) -> bool:
    """Note in one of the directories until when this broker promises; whether one takes the note.

    It is not synced: only the end of the machine undoes it, and the next process notices that.
    """
    for path in paths:
        try:
            disk.write_atomic(f"{path}/{PROMISE}", format_promise(until), sync=False)
        except OSError:
            continue
        return True
    return False


def note_losses(disk: Disk, directories: Sequence[LogDirectory], failed: Callable[[str, OSError], None]) -> None:
    """Note on the disk that records may be lost, as after an unclean stop. LogDirectoryError if that cannot be noted in
    a directory that stays in use.
    """
    for directory in directories:
        if directory.offline is None:
            try:
                disk.write_atomic(f"{directory.path}/{BOOT_ID}", _RECORDS_LOST.encode())
            except OSError as error:
                failed(directory.path, error)
                if is_transient(error):
                    raise LogDirectoryError(f"{directory.path}: {_RECORDS_LOST}, and not noted: {error}") from error


def note_boots(disk: Disk, directories: Sequence[LogDirectory], failed: Callable[[str, OSError], None]) -> None:
    """Note the current boot: from now on only a reboot may lose records."""
    _note(disk, directories, BOOT_ID, disk.boot_id().encode(), failed)


def note_epoch(
    disk: Disk, directories: Sequence[LogDirectory], epoch: int, failed: Callable[[str, OSError], None]
) -> None:
    """Note the registration under which the directories are used from now on."""
    _note(disk, directories, BROKER_EPOCH, format_last_use(epoch, len(directories)), failed)


def _note(
    disk: Disk, directories: Sequence[LogDirectory], name: str, data: bytes, failed: Callable[[str, OSError], None]
) -> None:
    """Write a file into each directory; it is not synced, as only the end of the machine undoes it."""
    for directory in directories:
        if directory.offline is None:
            try:
                disk.write_atomic(f"{directory.path}/{name}", data, sync=False)
            except OSError as error:
                failed(directory.path, error)


def last_epoch(disk: Disk, paths: Sequence[str]) -> int:
    """The epoch of the registration under which all of these directories were last used; -1 where it is unknown.

    A clean stop marks the directories with it. After another end the note of the registration counts, which differs
    where the processes since then have not used all of the directories. To be read before `scan` removes the marks.
    """
    for name in (CLEAN_SHUTDOWN, BROKER_EPOCH):
        try:
            agreed = _agreed(disk, paths, name, parse_clean_shutdown)
        except OSError:
            continue
        return -1 if agreed is None else agreed
    return -1


def are_those_of_last_use(disk: Disk, paths: Sequence[str]) -> bool:
    """Whether exactly these directories were used under the last registration: none was replaced or left out since."""
    try:
        agreed = _agreed(disk, paths, BROKER_EPOCH, parse_last_use)
    except OSError:
        return False
    return agreed is not None and agreed[0] >= 0 and agreed[1] == len(paths)


def _agreed(disk: Disk, paths: Sequence[str], name: str, parse: Callable[[bytes], T]) -> T | None:
    """What the files of that name say in all of the directories; None where they differ. Raises OSError."""
    found = {parse(disk.read_file(f"{path}/{name}")) for path in paths}
    return found.pop() if len(found) == 1 else None


def _read_offsets(disk: Disk, path: str, report: Callable[[str], None]) -> dict[PartitionKey, int]:
    try:
        return parse_offsets(disk.read_file(path))
    except CorruptCheckpoint as error:
        # Every offset in it is one that recovery can do without, only slower.
        report(f"{path}: {error}; ignored")
        return {}


def stored_identity(disk: Disk, paths: Sequence[str]) -> MetaProperties:
    """The cluster and node that the first directory with a `meta.properties` belongs to; all None without one.

    Raises LogDirectoryError for a broken file.
    """
    for path in paths:
        try:
            return parse_meta_properties(disk.read_file(f"{path}/{META_PROPERTIES}"))
        except CorruptCheckpoint as error:
            raise LogDirectoryError(f"{path}/{META_PROPERTIES}: {error}") from error
        except OSError:
            continue
    return MetaProperties(None, None, None)
