"""Who may do what, and how much: ACLs, SCRAM users, client quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ClientQuotaEntity,
    PatternType,
    QuotaEntityType,
    ResourceType,
    ScramCredential,
    ScramMechanism,
    raise_first,
)
from odradek.client.admin.users import DEFAULT_ITERATIONS
from odradek.console.paging import part_of
from odradek.console.rendering import console_of, page
from odradek.wire.errors import KafkaError

PAGE_ROWS: Final = 100
MAX_ITERATIONS: Final = 16_384
"""Kafka's limits for iterations of SCRAM credentials."""
MIN_ITERATIONS: Final = 4_096
QUOTAS: Final = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
)  # fmt: skip
"""Limits by Kafka's names; the last one is for addresses."""
CHOICES: Final[Mapping[str, Sequence[Any]]] = {
    "permission": [AclPermissionType.ALLOW, AclPermissionType.DENY],
    "operation": [each for each in AclOperation if each > AclOperation.ANY],
    "resource_type": [each for each in ResourceType if each > ResourceType.ANY],
    "pattern_type": [PatternType.LITERAL, PatternType.PREFIXED],
    "mechanism": [each for each in ScramMechanism if each is not ScramMechanism.UNKNOWN],
}
"""Values of the forms' fields."""


async def show(request: Request) -> Response:
    """All of them; a part that the user may not see has a message instead. Raises ClientError."""
    view = console_of(request).view_of(request)
    text = request.query_params.get("q", "").strip()
    failures = {"acls": "", "users": "", "quotas": ""}
    acls: list[AclBinding] = []
    users: dict[str, list[ScramCredential]] = {}
    quotas: Mapping[ClientQuotaEntity, Mapping[str, float]] = {}
    try:
        acls = [each for each in sorted(await view.admin.acls.describe()) if _has(each, text)]
    except KafkaError as error:
        failures["acls"] = str(error)
    try:
        users = raise_first(await view.admin.users.describe())
    except KafkaError as error:
        failures["users"] = str(error)
    try:
        quotas = await view.admin.quotas.describe()
    except KafkaError as error:
        failures["quotas"] = str(error)
    return page(
        request,
        "access.html",
        title="Access",
        view=view,
        q=text,
        part=part_of(request, acls, PAGE_ROWS),
        users={name: found for name, found in sorted(users.items()) if text.lower() in name.lower()},
        quotas=[
            (entity, entity_text(entity), limits)
            for entity, limits in quotas.items()
            if text.lower() in entity_text(entity).lower()
        ],
        failures=failures,
        choices=CHOICES,
        quota_names=QUOTAS,
        kinds=[str(each) for each in QuotaEntityType],
        iterations={"least": MIN_ITERATIONS, "most": MAX_ITERATIONS, "usual": DEFAULT_ITERATIONS},
    )


def entity_text(entity: ClientQuotaEntity) -> str:
    """An entity of quotas as pages name it, for instance `client-id (default), user alice`."""
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity.parts)


def _has(binding: AclBinding, text: str) -> bool:
    """Whether the principal or the resource contains a text, without regard to case."""
    return text.lower() in binding.principal.lower() or text.lower() in binding.resource_name.lower()
