"""The directory of a controller at its start: locked, of this node and cluster, with its vote and its metadata log.

Source: Kafka's `SharedServer`, `KafkaRaftManager`, `MetaPropertiesEnsemble`.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.configuration.refusals import is_controller_only, metadata_directory
from odradek.broker.ports import Ports
from odradek.broker.storage.bootstrap_records import feature_records, without_unsupported_features
from odradek.kraft.checkpoints import read_checkpoint
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_records import decode_metadata_record
from odradek.kraft.raft.log_index import LogIndex
from odradek.log.directories.checkpoint_formats import (
    LOCK,
    META_PROPERTIES,
    CorruptCheckpoint,
    MetaProperties,
    parse_meta_properties,
)
from odradek.log.directories.log_directory import LogDirectoryError
from odradek.log.directories.ownership import BOOTSTRAP
from odradek.log.environment import LogEnvironment, StandaloneOwner
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.metadata.kraft.quorum_state_file import load_quorum_state
from odradek.ports.disk import Disk
from odradek.wire.errors import KafkaError
from odradek.wire.messages.quorum_state import QuorumStateData

logger = logging.getLogger("odradek.broker.quorum")


class ControllerStorage(NamedTuple):
    """What the directory of a controller holds."""

    cluster_id: str
    directory_id: bytes
    log: DurableMetadataLog
    log_index: LogIndex
    state: QuorumStateData
    bootstrap: list[Any]
    """The first records of the cluster, should this controller be its first leader."""


def open_controller_storage(config: BrokerConfig, ports: Ports, opened: AsyncExitStack) -> ControllerStorage:
    """Open the directory; `opened` closes it again. Raises LogDirectoryError and ConfigError."""
    disk, path = ports.disk, metadata_directory(config)
    found = _identity(disk, path, config.node_id)
    if is_controller_only(config) or path not in config.log_dirs:
        _lock(disk, path, opened)  # else the broker of this process has locked it
    environment = LogEnvironment(disk, ports.clock, ports.random, owner=StandaloneOwner(disk, logger.warning))
    try:
        log = DurableMetadataLog.open(path, environment, segment_bytes=config.number("metadata.log.segment.bytes"))
        opened.callback(log.close)
        state = load_quorum_state(disk, log.directory) or QuorumStateData()
        return ControllerStorage(
            found.cluster_id or "", found.directory_id or b"", log, log.index(), state, _bootstrap(disk, path)
        )
    except (CorruptMetadata, KafkaError, OSError) as error:
        raise LogDirectoryError(f"the metadata log in {path} cannot be read: {error}") from error


def _lock(disk: Disk, path: str, opened: AsyncExitStack) -> None:
    try:
        lock = disk.lock(f"{path}/{LOCK}")
    except BlockingIOError as error:
        raise LogDirectoryError(f"{path} is in use by another process (it holds {LOCK})") from error
    except OSError as error:
        raise LogDirectoryError(f"{path}: {error.strerror or error}") from error
    opened.callback(lock.release)


def _identity(disk: Disk, path: str, node_id: int) -> MetaProperties:
    """`meta.properties` of the directory. Raises ConfigError where it is not formatted, or of another node."""
    try:
        found = parse_meta_properties(disk.read_file(f"{path}/{META_PROPERTIES}"))
    except OSError:
        text = f"{path} is not formatted: run `odradek storage format -t CLUSTER_ID -c server.properties` once"
        raise ConfigError(text) from None
    except CorruptCheckpoint as error:
        raise LogDirectoryError(f"{path}/{META_PROPERTIES}: {error}") from error
    if found.node_id not in (None, node_id):
        raise ConfigError(f"{path} is of node {found.node_id}, and node.id is {node_id}")
    if not found.cluster_id or not found.directory_id:
        raise ConfigError(f"{path}/{META_PROPERTIES} has no cluster.id or no directory.id: it is not of a KRaft node")
    return found


def _bootstrap(disk: Disk, path: str) -> list[Any]:
    """The records that `storage format` left. Raises CorruptMetadata and OSError."""
    file = f"{path}/{BOOTSTRAP}"
    if not disk.exists(file):
        return feature_records()
    found = [decode_metadata_record(each.value).record for each in read_checkpoint(disk.read_file(file)).entries]
    return without_unsupported_features(found)
