"""Warns of settings that the cluster accepts without effect."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.client.admin import Admin

_OWN_PREFIX: Final = "odradek."


async def without_effect(admin: Admin, kind: str, names: Iterable[str]) -> dict[str, str]:
    """Settings (of "topics", "brokers" or "groups") without effect in this cluster, and what they do elsewhere.

    Brokers of Apache Kafka, which implement them, have no settings named `odradek.…`.
    """
    from odradek.broker.configuration.setting_names import purpose_without_effect

    found = {name: purpose for name in names if (purpose := purpose_without_effect(kind, name)) is not None}
    return found if found and await is_odradek(admin) else {}


async def is_odradek(admin: Admin) -> bool:
    """Whether the cluster's brokers are Odradek's."""
    from odradek.client.admin import ConfigResource, ConfigResourceType
    from odradek.wire.errors import KafkaError

    broker = ConfigResource(ConfigResourceType.BROKER, str((await admin.describe_cluster()).brokers[0].node_id))
    entries = (await admin.describe_configs([broker]))[broker]
    return not isinstance(entries, KafkaError) and any(name.startswith(_OWN_PREFIX) for name in entries)


def warn_without_effect(command: str, found: Mapping[str, str]) -> None:
    """One line on standard error for each setting."""
    for name, purpose in found.items():
        print(f"odradek {command}: {name} has no effect in this version: {purpose}", file=sys.stderr)
