"""`odradek verify DIR…`: check log directories or partitions of a stopped broker; nothing is changed.

Exit status 0 when all is well, 1 when something is wrong, 2 where there is no log.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

from odradek.broker.storage.stored_files import (
    LOCK,
    Finding,
    log_directories,
    partition_directories,
    verify_checkpoints,
    verify_partition,
)
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.ports.disk import SystemDisk
from odradek.ports.foreign_files import hold

EXAMPLES: Final = """
# check the files of a stopped broker
odradek verify ./data
# check those of all brokers of a cluster on this machine
odradek verify ./three
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "directory",
        nargs="+",
        metavar="DIR",
        help="a log directory, the data folder of a cluster, or the directory of one partition",
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Check every directory; the exit status. Raises UsageError where there is no log, CommandError."""
    disk = SystemDisk()
    partitions = problems = 0
    for path in [each for directory in arguments.directory for each in _found(disk, directory)]:
        if _is_in_use(path):
            print(
                f"odradek verify: a broker uses {path} (it holds {LOCK}): what it writes meanwhile may look like "
                "damage; stop it first",
                file=sys.stderr,
            )
        try:
            for finding in verify_checkpoints(disk, path):
                problems += 1
                _show(finding)
            for place in partition_directories(disk, path):
                partitions += 1
                for finding in verify_partition(disk, place):
                    problems += 1
                    _show(finding)
        except OSError as error:
            raise CommandError(f"{error.filename or path}: {error.strerror or error}") from error
    print(f"{partitions} partitions checked, {problems or 'no'} problem{'s' if problems != 1 else ''} found")
    return 1 if problems else 0


def _is_in_use(path: str) -> bool:
    try:
        held = hold(f"{path}/{LOCK}")
    except BlockingIOError:
        return True
    except OSError:
        return False  # the lock of another user, who may let this one read the rest
    if held is not None:
        held.release()
    return False


def _found(disk: SystemDisk, directory: str) -> list[str]:
    """The log directories that an argument stands for. Raises UsageError."""
    if not directory:
        raise UsageError("the name of a directory is empty")
    path = directory.rstrip("/") or "/"
    try:
        found = log_directories(disk, path)
    except OSError as error:
        raise UsageError(f"{error.filename or path}: {error.strerror or error}") from error
    if not found:
        raise UsageError(
            f"{path} holds no log: name a log directory, a cluster's data folder or a partition's directory"
        )
    return found


def _show(finding: Finding) -> None:
    where = f"byte {finding.position}"
    if finding.offset >= 0:
        where += f" (offset {finding.offset})"
    print(f"{finding.path}: {where}: {finding.problem}")
    print(f"  {finding.remedy}")
