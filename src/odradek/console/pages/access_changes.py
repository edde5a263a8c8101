"""Forms that change ACLs, SCRAM users and quotas."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    ClientQuotaEntity,
    PatternType,
    QuotaEntityType,
    ResourceType,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    raise_first,
)
from odradek.client.admin.users import DEFAULT_ITERATIONS
from odradek.console.forms import FormError, confirm, field, fields, number, see
from odradek.console.pages.access import CHOICES, MAX_ITERATIONS, MIN_ITERATIONS, QUOTAS, entity_text
from odradek.console.rendering import console_of, link
from odradek.wire.acls import CLUSTER_NAME, WILDCARD
from odradek.wire.errors import KafkaError

Choice = TypeVar("Choice", bound=IntEnum)

MAX_PASSWORD: Final = 1_024
"""Characters of a password."""
MAX_LIMIT: Final = 1e15


async def create_acl(request: Request) -> Response:
    """Add an ACL; the principal is typed to confirm. Raises FormError, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    binding = _binding(request)
    confirm(request, binding.principal)
    raise_first(await view.admin.acls.create([binding]))
    console_of(request).record_change(request, "create ACL", binding.principal, **_details(binding))
    return see(link(f"/c/{view.name}/access"))


async def delete_acl(request: Request) -> Response:
    """Delete exactly one ACL; its principal is typed to confirm. Raises FormError, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    binding = _binding(request)
    confirm(request, binding.principal)
    exact = AclFilter(
        binding.resource_type,
        binding.resource_name,
        binding.principal,
        binding.operation,
        binding.permission,
        binding.host,
        binding.pattern_type,
    )
    removed = (await view.admin.acls.delete([exact]))[exact]
    if isinstance(removed, KafkaError):
        raise removed
    for each in removed:
        if isinstance(each, KafkaError):
            raise each
    if not removed:
        raise FormError("This ACL does not exist any longer. Nothing was changed.")
    console_of(request).record_change(request, "delete ACL", binding.principal, **_details(binding))
    return see(link(f"/c/{view.name}/access"))


async def set_password(request: Request) -> Response:
    """Create a SCRAM user, or change a password, which needs the typed name. Raises FormError, KafkaError, ClientError.

    Neither messages nor the audit line contain the password.
    """
    view = console_of(request).view_of(request)
    name = field(request, "user")
    password = field(request, "password")
    mechanisms = [_choice(ScramMechanism, each, "mechanism") for each in fields(request, "mechanism")]
    if not name or not password or len(password) > MAX_PASSWORD:
        raise FormError(f"A user needs a name and a password of at most {MAX_PASSWORD} characters.")
    if not mechanisms:
        raise FormError("mechanism: choose at least one.")
    text = field(request, "iterations", "").strip() or str(DEFAULT_ITERATIONS)
    iterations = number(text, "iterations", least=MIN_ITERATIONS, most=MAX_ITERATIONS)
    known = (await view.admin.users.describe([name])).get(name)
    exists = isinstance(known, list)
    if exists and field(request, "confirm", "") != name:
        raise FormError(f"The user {name!r} exists: change its password in its row, with the typed name.")
    changes = [ScramUpsertion(name, each, password, iterations) for each in mechanisms]
    raise_first(await view.admin.users.alter(changes))
    console_of(request).record_change(
        request,
        "change password" if exists else "create user",
        name,
        mechanisms=[each.mechanism_name for each in mechanisms],
        iterations=iterations,
    )
    return see(link(f"/c/{view.name}/access"))


async def delete_user(request: Request) -> Response:
    """Delete all SCRAM credentials of a user, whose name is typed. Raises FormError, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    name = field(request, "user")
    confirm(request, name)
    known = raise_first(await view.admin.users.describe([name]))[name]
    raise_first(await view.admin.users.alter([ScramDeletion(name, each.mechanism) for each in known]))
    console_of(request).record_change(
        request, "delete user", name, mechanisms=[each.mechanism.mechanism_name for each in known]
    )
    return see(link(f"/c/{view.name}/access"))


async def set_quota(request: Request) -> Response:
    """Set one limit of an entity. Raises FormError, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    entity = _entity(request)
    limit = field(request, "limit")
    if limit not in QUOTAS:
        raise FormError(f"limit: {', '.join(QUOTAS)} expected.")
    value = _amount(field(request, "value"))
    confirm(request, entity_text(entity))
    raise_first(await view.admin.quotas.alter({entity: {limit: value}}))
    console_of(request).record_change(request, "set quota", entity_text(entity), limit=limit, value=value)
    return see(link(f"/c/{view.name}/access"))


async def delete_quota(request: Request) -> Response:
    """Remove all limits of an entity, whose text is typed. Raises FormError, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    entity = _entity(request)
    confirm(request, entity_text(entity))
    known = (await view.admin.quotas.describe()).get(entity)
    if not known:
        raise FormError(f"There is no quota for {entity_text(entity)}. Nothing was changed.")
    raise_first(await view.admin.quotas.alter({entity: dict.fromkeys(known)}))
    console_of(request).record_change(request, "delete quota", entity_text(entity), limits=dict(known))
    return see(link(f"/c/{view.name}/access"))


def _binding(request: Request) -> AclBinding:
    """The ACL of the form. Raises FormError."""
    principal = field(request, "principal").strip()
    kind, colon, name = principal.partition(":")
    if not kind or not colon or not name:
        raise FormError(f"principal: {principal!r} is not a principal such as User:alice.")
    resource_type = _choice(ResourceType, field(request, "resource_type"), "resource_type")
    resource = field(request, "resource_name", "").strip()
    if resource_type is ResourceType.CLUSTER:
        resource = CLUSTER_NAME
    if not resource:
        raise FormError("resource_name: a name, or * for all, expected.")
    return AclBinding(
        resource_type,
        resource,
        principal,
        _choice(AclOperation, field(request, "operation"), "operation"),
        _choice(AclPermissionType, field(request, "permission"), "permission"),
        field(request, "host", "").strip() or WILDCARD,
        _choice(PatternType, field(request, "pattern_type", PatternType.LITERAL.name), "pattern_type"),
    )


def _choice(kind: type[Choice], text: str, name: str) -> Choice:
    """Raises FormError."""
    for each in CHOICES[name]:
        if each.name == text:
            return kind(each)
    raise FormError(f"{name}: {', '.join(each.name for each in CHOICES[name])} expected.")


def _details(binding: AclBinding) -> dict[str, str]:
    return {
        "permission": binding.permission.name,
        "operation": binding.operation.name,
        "resource_type": binding.resource_type.name,
        "resource_name": binding.resource_name,
        "pattern_type": binding.pattern_type.name,
        "host": binding.host,
    }


def _entity(request: Request) -> ClientQuotaEntity:
    """Fields `entity:KIND` with a name, or `default:KIND` for the default of a kind. Raises FormError."""
    found: dict[str, str | None] = {}
    for kind in map(str, QuotaEntityType):
        name = field(request, f"entity:{kind}", "").strip()
        is_default = field(request, f"default:{kind}", "") == "yes"
        if name and is_default:
            raise FormError(f"{kind}: a name and the default exclude each other.")
        if name or is_default:
            found[kind] = name or None
    if not found:
        raise FormError("A quota is for a user, a client id or an address.")
    return ClientQuotaEntity.of(found)


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise FormError(f"value: {text!r} is not a number.") from None
    if not 0 < value <= MAX_LIMIT:
        raise FormError(f"value: a number above 0 and up to {MAX_LIMIT:g} expected.")
    return value
