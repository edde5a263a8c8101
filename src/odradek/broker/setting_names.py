"""Names of settings by the resource that they belong to, for tools that complete or check them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.metadata.config_definitions import Scope
from odradek.metadata.configs import BROKER, GROUP, TOPIC

DYNAMIC_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": tuple(TOPIC),
    "brokers": tuple(name for name, each in BROKER.items() if each.scope != Scope.READ_ONLY),
    "groups": tuple(GROUP),
}
"""Settings that can change while brokers run, by the type of resource."""

BROKER_SETTINGS: Final = tuple(BROKER)
"""All settings of a broker's properties file."""
