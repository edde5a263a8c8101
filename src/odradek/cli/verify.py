"""`odradek verify DIR…`: check log directories or partitions of a stopped broker; nothing is changed.

Exit status 0 when all is well, 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from odradek.cli.errors import CommandError
from odradek.log.checkpoints import CorruptCheckpoint, parse_meta_properties, parse_offsets
from odradek.log.files import LOG
from odradek.log.log_directory import OFFSET_CHECKPOINTS
from odradek.log.verification import Finding, verify_partition
from odradek.ports.disk import SystemDisk

_PARTITION = re.compile(r"^.+-\d+(\.[^.]+-future)?$")
_META = "meta.properties"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="+", metavar="DIR", help="a log directory, or a partition's in one")


def run(arguments: argparse.Namespace) -> int:
    disk = SystemDisk()
    partitions = problems = 0
    for directory in arguments.directory:
        path = directory.rstrip("/") or "/"
        try:
            places = list(_partitions(disk, path))
            for finding in _of_directory(disk, path):
                problems += 1
                _show(finding)
            for place in places:
                partitions += 1
                for finding in verify_partition(disk, place):
                    problems += 1
                    _show(finding)
        except OSError as error:
            raise CommandError(f"{error.filename or path}: {error.strerror or error}") from error
    print(f"{partitions} partitions checked, {problems or 'no'} problem{'s' if problems != 1 else ''} found")
    return 1 if problems else 0


def _partitions(disk: SystemDisk, path: str) -> Iterator[str]:
    names = disk.list(path)
    if any(name.endswith(LOG) for name in names):
        yield path
        return
    for name in names:
        if _PARTITION.match(name) and disk.is_directory(f"{path}/{name}"):
            yield f"{path}/{name}"


def _of_directory(disk: SystemDisk, path: str) -> Iterator[Finding]:
    for name in disk.list(path):
        try:
            if name in OFFSET_CHECKPOINTS:
                parse_offsets(disk.read_file(f"{path}/{name}"))
            elif name == _META:
                parse_meta_properties(disk.read_file(f"{path}/{name}"))
        except CorruptCheckpoint as error:
            remedy = "the broker does not start" if name == _META else "ignored at the next start, which reads more"
            yield Finding(f"{path}/{name}", 0, -1, str(error), remedy)


def _show(finding: Finding) -> None:
    where = f"byte {finding.position}"
    if finding.offset >= 0:
        where += f" (offset {finding.offset})"
    print(f"{finding.path}: {where}: {finding.problem}")
    print(f"  {finding.remedy}")
