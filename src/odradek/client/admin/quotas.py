"""Quotas of users, clients and addresses (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from odradek.client.admin.enums import QuotaEntityType, QuotaMatch
from odradek.client.admin.requests import AdminRequests, failure_of, raise_failure
from odradek.wire.errors import KafkaError
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
    AlterClientQuotasResponse,
)
from odradek.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
)


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """What a quota limits: pairs of type and name, where None as a name is the default of that type.

    `ClientQuotaEntity.of({"user": "alice", "client-id": None})` are alice's clients without a quota of their own.

    Example:

        entity = ClientQuotaEntity.of({QuotaEntityType.USER: "alice", QuotaEntityType.CLIENT_ID: None})
        print(entity.as_dict())
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> Self:
        """An entity of names (None: the default) by QuotaEntityType."""
        return cls(tuple(sorted((str(kind), name) for kind, name in parts.items())))

    def as_dict(self) -> dict[str, str | None]:
        """Names by type."""
        return dict(self.parts)


class QuotaFilter(NamedTuple):
    """Which entities a description includes; `name` goes with EXACT."""

    entity_type: QuotaEntityType
    match: QuotaMatch = QuotaMatch.ANY
    name: str | None = None


class QuotasAdmin:
    """`admin.quotas`.

    Example:

        entity = ClientQuotaEntity.of({QuotaEntityType.USER: "anna"})
        raise_first(await admin.quotas.alter({entity: {"producer_byte_rate": 1_048_576.0}}))
        print(await admin.quotas.describe([QuotaFilter(QuotaEntityType.USER, QuotaMatch.EXACT, "anna")]))
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe(
        self, filters: Iterable[QuotaFilter] = (), *, strict: bool = False
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Quotas of the entities that all filters match; with `strict` only those that have no other part.

        Raises KafkaError.
        """
        components = [DescribeClientQuotasRequestComponent(each.entity_type, each.match, each.name) for each in filters]
        response = await self._requests.to_any(
            DescribeClientQuotasRequest(components, strict), DescribeClientQuotasResponse
        )
        raise_failure(response.error_code, response.error_message)
        return {
            ClientQuotaEntity.of({part.entity_type: part.entity_name for part in entry.entity}): {
                each.key: each.value for each in entry.values
            }
            for entry in response.entries or ()
        }

    async def alter(
        self, changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> dict[ClientQuotaEntity, KafkaError | None]:
        """Set quotas by name, for instance `producer_byte_rate`; None removes one."""
        entries = [
            AlterClientQuotasRequestEntry(
                [AlterClientQuotasRequestEntity(kind, name) for kind, name in entity.parts],
                [
                    AlterClientQuotasRequestOp(key, 0.0 if value is None else float(value), value is None)
                    for key, value in values.items()
                ],
            )
            for entity, values in changes.items()
        ]
        response = await self._requests.to_any(
            AlterClientQuotasRequest(entries, validate_only), AlterClientQuotasResponse
        )
        return {
            ClientQuotaEntity.of({part.entity_type: part.entity_name for part in each.entity}): failure_of(
                each.error_code, each.error_message
            )
            for each in response.entries
        }
