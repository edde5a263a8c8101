"""Tables of the topics that ask for one by their own settings, `odradek.table.format` and others, without a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.client.admin import Admin, ConfigResource, ConfigResourceType
from odradek.client.errors import ClientError
from odradek.connect.client_failures import failure_of
from odradek.connect.errors import ConfigInvalid, ConnectError
from odradek.tables.specification import TableSpec, spec_of
from odradek.wire.errors import KafkaError

FORMAT: Final = "odradek.table.format"
SETTINGS: Final[Mapping[str, str]] = {
    FORMAT: "format",
    "odradek.table.mode": "mode",
    "odradek.table.columns": "columns",
    "odradek.table.partition.by": "partition.by",
}
"""Settings of topics, and those of tables that they stand for."""
NO_TABLE: Final = "none"


class Warehouse(NamedTuple):
    """Where tables of topics are, and what they have in common."""

    place: str
    """Folder or URL of Delta tables, namespace of Iceberg tables."""
    shared: Mapping[str, str] = {}
    """Settings of all tables."""
    secrets: Path | None = None
    """Folder of files that placeholders in these settings may name."""


async def find_specs(
    clients: Mapping[str, Any], warehouse: Warehouse, on_invalid: Callable[[ConfigInvalid], None]
) -> dict[str, TableSpec]:
    """The tables that topics ask for now, by the topic's name. A table whose settings are wrong is left out.

    Raises TargetAway while brokers are away, ConnectError for a cluster whose topics do not have these settings.
    """
    found = {}
    for topic, given in (await _wanted(clients)).items():
        try:
            found[topic] = spec_of(topic, table_settings(topic, given, warehouse), warehouse.secrets)
        except ConfigInvalid as error:
            on_invalid(error)
    return found


async def _wanted(clients: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The settings of tables in those of topics, by topic."""
    try:
        async with Admin(**clients) as admin:
            resources = [ConfigResource(ConfigResourceType.TOPIC, each) for each in await admin.list_topics()]
            described = await admin.describe_configs(resources, keys=list(SETTINGS))
    except (KafkaError, ClientError) as error:
        raise failure_of(error, "settings of topics") from error
    found: dict[str, dict[str, str]] = {}
    for resource, settings in described.items():
        if isinstance(settings, KafkaError):
            continue  # deleted meanwhile, or another user's
        if FORMAT not in settings:
            raise ConnectError(f"the brokers have no setting {FORMAT} of topics: describe the tables in a file")
        given = {name: settings[setting].value or "" for setting, name in SETTINGS.items()}
        if given["format"] != NO_TABLE:
            found[resource.name] = given
    return found


def table_settings(topic: str, given: Mapping[str, str], warehouse: Warehouse) -> dict[str, str]:
    """The settings of a topic's table; those of the topic come before the shared ones."""
    if given["format"] == "iceberg":
        # a dot would begin a further namespace
        path = f"{warehouse.place}.{re.sub(r'[^A-Za-z0-9_-]', '_', topic)}"
    else:
        path = f"{warehouse.place.rstrip('/')}/{topic}"
    own = {name: text for name, text in given.items() if text}
    return {**warehouse.shared, **own, "topic": topic, "path": path}
