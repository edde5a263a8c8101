"""What a controller is as a voter, read from its properties file and its formatted directory (KIP-853).

Source: Kafka's `MetadataQuorumCommand.handleAddController`.
"""

from __future__ import annotations

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.configuration.quorum_addresses import advertised_controller_listeners
from odradek.broker.configuration.refusals import metadata_directory
from odradek.log.directories.checkpoint_formats import META_PROPERTIES, CorruptCheckpoint, parse_meta_properties
from odradek.ports.disk import Disk, SystemDisk


def controller_identity(path: str, disk: Disk | None = None) -> tuple[int, bytes, list[tuple[str, str, int]]]:
    """Node id, id of the metadata directory, and listeners as name, host and port. Raises ConfigError."""
    disk = disk or SystemDisk()
    config = BrokerConfig.load(path, disk=disk)
    if "controller" not in config.words("process.roles"):
        raise ConfigError(f"{path}: process.roles has no controller")
    directory = metadata_directory(config)
    try:
        found = parse_meta_properties(disk.read_file(f"{directory}/{META_PROPERTIES}"))
    except (OSError, CorruptCheckpoint) as error:
        raise ConfigError(f"{directory} is not formatted, or cannot be read: {error}") from error
    if found.directory_id is None:
        raise ConfigError(f"{directory}/{META_PROPERTIES} has no directory.id")
    listeners = [(each.name, each.host or "localhost", each.port) for each in advertised_controller_listeners(config)]
    return config.node_id, found.directory_id, listeners
