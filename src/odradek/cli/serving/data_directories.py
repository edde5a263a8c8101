"""Data directories of one broker, and of a cluster on one machine: telling them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from odradek.cli.arguments.errors import UsageError

_IDENTITY: Final = "meta.properties"
"""Lies where a broker keeps logs."""


def reject_cluster_directory(directory: str) -> None:
    """Raise UsageError where a cluster of this machine has its brokers: one broker alone would find no logs there."""
    path = Path(directory)
    if (path / "broker-1" / _IDENTITY).exists() and not (path / _IDENTITY).exists():
        raise UsageError(f"{directory} holds a cluster of this machine: start it with --brokers N")


def reject_broker_directory(directory: Path) -> None:
    """Raise UsageError where a single broker keeps its logs."""
    if (directory / _IDENTITY).exists():
        raise UsageError(f"{directory} holds the logs of a single broker: --brokers needs another --data-dir")
