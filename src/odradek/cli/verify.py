"""`odradek verify DIR…`: check log directories or partitions of a stopped broker; nothing is changed.

Exit status 0 when all is well, 1 when something is wrong.
"""

from __future__ import annotations

import argparse

from odradek.broker.stored_files import Finding, partition_directories, verify_checkpoints, verify_partition
from odradek.cli.errors import CommandError
from odradek.ports.disk import SystemDisk


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="+", metavar="DIR", help="a log directory, or a partition's in one")


def run(arguments: argparse.Namespace) -> int:
    disk = SystemDisk()
    partitions = problems = 0
    for directory in arguments.directory:
        path = directory.rstrip("/") or "/"
        try:
            places = list(partition_directories(disk, path))
            if not places and not disk.exists(f"{path}/meta.properties"):
                raise CommandError(f"{path} is neither a log directory nor a partition's")
            for finding in verify_checkpoints(disk, path):
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


def _show(finding: Finding) -> None:
    where = f"byte {finding.position}"
    if finding.offset >= 0:
        where += f" (offset {finding.offset})"
    print(f"{finding.path}: {where}: {finding.problem}")
    print(f"  {finding.remedy}")
