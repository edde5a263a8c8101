"""`odradek cluster restart --rolling`: one broker of this machine after the other, each time with all replicas in sync.

The supervisor of `odradek serve --brokers N` notes its processes in the data directory and starts again what ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.session import run_admin
from odradek.client.errors import CallTimedOut
from odradek.client.reports.cluster import look
from odradek.ports.disk import SystemDisk

if TYPE_CHECKING:
    from odradek.client.admin import Admin

PROCESSES: Final = "odradek-processes.json"
LOCK: Final = ".lock"
"""Held by the supervisor; the name is that in log directories, so a single broker does not use the same one."""
PATIENCE_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.1


def restart(arguments: argparse.Namespace) -> int:
    """Restart the supervised brokers one after the other, each once the cluster is in sync; the exit code.

    Raises UsageError without --rolling or --data-dir.
    """
    if not arguments.rolling:
        raise UsageError("--rolling is needed: a restart of all brokers at once would stop the cluster")
    if not arguments.data_dir:
        raise UsageError("--data-dir DIR of `odradek serve --brokers N` is needed")
    path = Path(arguments.data_dir) / PROCESSES
    _check_runs(path)
    patience = PATIENCE_SECONDS if arguments.patience is None else arguments.patience

    async def work(admin: Admin) -> int:
        await _check_cluster(admin, path.parent)
        known = _processes(path)
        for broker in sorted(known, key=int):
            await _until(admin, lambda found: not found["under_replicated"], patience)
            before = _processes(path)[broker]
            _stop_process(before)
            await _until(admin, partial(_has_other_process, path, broker, before), patience)
            await _until(admin, partial(_is_back, int(broker)), patience)
            print(f"broker {broker} has restarted", flush=True)
        await _until(admin, lambda found: not found["under_replicated"], patience)
        elected = await _elect_preferred(admin)
        print(f"{elected} partitions are led by their preferred replicas now", flush=True)
        return len(known)

    print(f"{run_admin(arguments, work)} brokers have restarted; all replicas are in sync")
    return 0


async def _elect_preferred(admin: Admin) -> int:
    """Spread leadership again: the broker that restarted last leads nothing. The number of new leaders."""
    answers = await admin.replicas.elect()
    return sum(failure is None for failure in answers.values())


def _stop_process(process: int) -> None:
    """Raises CommandError."""
    try:
        os.kill(process, signal.SIGTERM)
    except ProcessLookupError:
        return  # it has just died: it is started again all the same
    except OSError as error:
        raise CommandError(f"process {process}: {error.strerror}") from error


def _check_runs(path: Path) -> None:
    """Raises CommandError unless a supervisor runs there: the processes that one noted may belong to others by now."""
    _processes(path)
    try:
        lock = SystemDisk().lock(str(path.parent / LOCK))
    except BlockingIOError:
        return
    except OSError as error:
        raise CommandError(f"{path.parent}: {error.strerror}") from error
    lock.release()
    raise CommandError(f"{path.parent}: `odradek serve --brokers N` is not running there")


async def _check_cluster(admin: Admin, home: Path) -> None:
    """Raise CommandError where the brokers of the directory are not of the cluster that is asked if it is in sync.

    The default server, or that of a profile, may be of another one.
    """
    asked = (await admin.describe_cluster()).cluster_id
    for own in _clusters_in(home):
        if own != asked:
            raise CommandError(
                f"{home} holds brokers of cluster {own}, and the bootstrap server is of cluster {asked}: name a "
                "broker of the former with --bootstrap-server"
            )


def _clusters_in(home: Path) -> set[str | None]:
    """The cluster ids of the brokers in the directory. Raises CommandError."""
    from odradek.broker.storage.stored_files import META_PROPERTIES, CorruptCheckpoint, parse_meta_properties

    found = set()
    for file in sorted(home.glob(f"broker-*/{META_PROPERTIES}")):
        try:
            found.add(parse_meta_properties(file.read_bytes()).cluster_id)
        except OSError as error:
            raise CommandError(f"{file}: {error.strerror}") from error
        except CorruptCheckpoint as error:
            raise CommandError(f"{file}: {error}") from error
    return found


def _has_other_process(path: Path, broker: str, process: int, _found: dict[str, Any]) -> bool:
    return _processes(path)[broker] != process


def _is_back(broker: int, found: dict[str, Any]) -> bool:
    here = any(each["broker"] == broker and each["role"] != "dead" for each in found["brokers"])
    return here and not found["under_replicated"]


def _processes(path: Path) -> dict[str, int]:
    """Broker id -> process. Raises CommandError."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        return {str(broker): int(process) for broker, process in content["brokers"].items()}
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}: is that the data directory of a running cluster?") from error
    except (ValueError, KeyError) as error:
        raise CommandError(f"{path}: {error}: is that the data directory of a running cluster?") from error


async def _until(admin: Admin, true: Callable[[dict[str, Any]], bool], patience: float) -> None:
    """Raises CommandError when it takes longer."""
    try:
        async with asyncio.timeout(patience):
            while not true(await look(admin)):  # noqa: ASYNC110 - brokers do not notify clients
                await asyncio.sleep(_LOOK_SECONDS)
    except CallTimedOut:
        raise
    except TimeoutError as error:
        raise CommandError(
            f"replicas are not in sync after {patience:g} s; the other brokers were not restarted", "NOT_IN_SYNC"
        ) from error
