"""Which quota holds for a client, and with whom it is shared (KIP-55, KIP-546).

Source: Kafka's `ClientQuotaManager.DefaultQuotaCallback`: the most specific entry wins; a quota of a user counts all
the user's clients together, one of a client id all its users, and a default entry gives each their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.metadata.image import ANY, ClientEntity

Configs = Mapping[ClientEntity, Mapping[str, str]]


class Bound(NamedTuple):
    """`shared_by` is what those whose events count together have in common."""

    limit: float
    shared_by: ClientEntity


class QuotaTable:
    """The entries that set one quota (`producer_byte_rate` ...)."""

    __slots__ = ("_limits",)

    def __init__(self, key: str, configs: Configs) -> None:
        self._limits = {
            entity: float(settings[key])
            for entity, settings in configs.items()
            if key in settings and entity.ip is None
        }

    def __len__(self) -> int:
        return len(self._limits)

    def find(self, user: str, client_id: str) -> Bound | None:
        """The quota of a client, by Kafka's order of precedence; None without one."""
        for users, clients in (
            ((user, ANY), (client_id, ANY, None)),
            ((None,), (client_id, ANY)),
        ):
            for user_part in users:
                for client_part in clients:
                    limit = self._limits.get(ClientEntity(user_part, client_part))
                    if limit is not None:
                        own_user = None if user_part is None else user
                        return Bound(limit, ClientEntity(own_user, None if client_part is None else client_id))
        return None
