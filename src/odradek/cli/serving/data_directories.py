"""Data directories of one broker, and of a cluster on one machine: telling them apart."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from odradek.cli.arguments.errors import UsageError

_IDENTITY: Final = "meta.properties"
"""Lies where a broker keeps logs."""


def reject_cluster_directory(directory: str) -> None:
    """Raise UsageError where a cluster of this machine has its brokers: one broker alone would find no logs there."""
    path = Path(directory)
    if brokers_in(path) and not (path / _IDENTITY).exists():
        raise UsageError(f"{directory} holds a cluster of this machine: start it with --brokers N")


def brokers_in(directory: Path) -> list[int]:
    """The ids of the brokers that a cluster of this machine has in the directory."""
    numbers = (each.parent.name.partition("-")[2] for each in directory.glob(f"broker-*/{_IDENTITY}"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def reject_other_brokers(directory: Path, ids: Collection[int]) -> None:
    """Raise UsageError where brokers of other ids keep their logs, and none of these: their replicas would be left."""
    found = brokers_in(directory)
    if found and not set(found) & set(ids):
        held = f"broker {found[0]}" if len(found) == 1 else f"brokers {found[0]} to {found[-1]}"
        raise UsageError(f"{directory} holds the logs of {held}: start it with --first-id {found[0]}")


def reject_broker_directory(directory: Path) -> None:
    """Raise UsageError where a single broker keeps its logs."""
    if (directory / _IDENTITY).exists():
        raise UsageError(f"{directory} holds the logs of a single broker: --brokers needs another --data-dir")
