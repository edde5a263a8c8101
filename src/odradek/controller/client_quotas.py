"""Quotas of users, client ids and addresses (KIP-546): what may be set, and who has what. Pure decisions.

Source: Kafka's `ClientQuotaControlManager`, `ClientQuotasImage` and `QuotaConfig`, for the checks and their messages.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek.controller.outcome import Decision, Failure
from odradek.metadata.configs.definitions import ConfigType
from odradek.metadata.image import ANY, ClientEntity, ClusterImage
from odradek.metadata.nodes import ConfigNode
from odradek.ports.store import Create, Operation, Put
from odradek.wire.errors import ErrorCode, KafkaError

_CLIENT_KEYS = {
    "producer_byte_rate": ConfigType.LONG,
    "consumer_byte_rate": ConfigType.LONG,
    "request_percentage": ConfigType.DOUBLE,
    "controller_mutation_rate": ConfigType.DOUBLE,
}
_IP_KEYS = {"connection_creation_rate": ConfigType.INT}
QUOTA_KEYS = frozenset((*_CLIENT_KEYS, *_IP_KEYS))
_LIMITS = {ConfigType.LONG: float((1 << 63) - 1), ConfigType.INT: float((1 << 31) - 1)}

_FIELDS = {"user": "user", "client-id": "client_id", "ip": "ip"}

Entity = Sequence[tuple[str, str | None]]
"""(type, name) pairs as on the wire; no name is the default of that type."""


class QuotaOperation(NamedTuple):
    """Set or remove one quota of an entity."""

    key: str
    value: float
    remove: bool


class QuotaChange(NamedTuple):
    """Changes of one entity's quotas."""

    entity: Entity
    operations: Sequence[QuotaOperation]


class ChangedQuota(NamedTuple):
    """The result for one entity; no failure means that all its changes took effect."""

    entity: Entity
    failure: Failure | None


class Match(IntEnum):
    """How a filter's component compares names, by Kafka's numbers (KIP-546)."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    """One condition of a filter: on entities of this type."""

    entity_type: str
    match_type: int
    match: str | None


def alter_client_quotas(
    image: ClusterImage, changes: Sequence[QuotaChange], *, validate_only: bool = False
) -> Decision[ChangedQuota]:
    """One reply for every entry; an entity is changed as a whole or not at all."""
    changed: dict[ClientEntity, dict[str, str]] = {}
    replies = []
    for change in changes:
        try:
            entity = client_entity(change.entity)
            before = changed.get(entity, image.client_configs.get(entity, {}))
            changed[entity] = _altered(entity, before, change.operations)
        except KafkaError as error:
            replies.append(ChangedQuota(change.entity, Failure(error.code, error.message)))
        else:
            replies.append(ChangedQuota(change.entity, None))
    if validate_only:
        return Decision((), image, replies)
    operations, changed_image = write_client_configs(image, changed)
    return Decision(operations, changed_image, replies)


def write_client_configs(
    image: ClusterImage, changed: Mapping[ClientEntity, Mapping[str, str]]
) -> tuple[list[Operation], ClusterImage]:
    """Make these the whole of what is set for each entity. Nodes stay when the last setting goes, as in Kafka."""
    operations: list[Operation] = []
    made: dict[ClientEntity, Mapping[str, str]] = {}
    for entity, configs in changed.items():
        if configs == image.client_configs.get(entity, {}):
            continue
        if entity.user is not None and entity.client_id is not None:
            above = ClientEntity(entity.user)
            if above not in image.client_configs and above not in made and above not in changed:
                # The store would make it without content, and the image would not know.
                operations.append(Create(ConfigNode.client_path(above), ConfigNode.encode({})))
                made[above] = {}
        path, data = ConfigNode.client_path(entity), ConfigNode.encode(configs)
        operations.append(Put(path, data) if entity in image.client_configs else Create(path, data))
        made[entity] = configs
    # A user's node comes before those of the user's clients.
    operations.sort(key=lambda operation: operation.path.count("/"))
    return operations, image.with_client_configs(made) if made else image


def client_entity(entity: Entity) -> ClientEntity:
    """The entity that these pairs name. Raises KafkaError INVALID_REQUEST."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    fields: dict[str, str] = {}
    for kind, name in entity:
        field = _FIELDS.get(kind)
        if field is None:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if field in fields:
            raise _invalid(f"Invalid client quota entity, contains duplicate entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        fields[field] = ANY if name is None else name
    if "ip" in fields:
        if len(fields) > 1:
            raise _invalid(f"Invalid quota entity combination, ip is combined with {', '.join(sorted(fields))}")
        if fields["ip"] != ANY:
            _check_address(fields["ip"])
    return ClientEntity(**fields)


def _check_address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError as error:
        # Kafka resolves names as well; what a name stands for may change, so that addresses alone are taken here.
        raise _invalid(f"{text} is not a valid IP or resolvable host") from error


def entity_pairs(entity: ClientEntity) -> list[tuple[str, str | None]]:
    """The (type, name) pairs of an entity."""
    found = ((kind, getattr(entity, field)) for kind, field in _FIELDS.items())
    return [(kind, None if name == ANY else name) for kind, name in found if name is not None]


def _altered(entity: ClientEntity, before: Mapping[str, str], operations: Sequence[QuotaOperation]) -> dict[str, str]:
    allowed = _CLIENT_KEYS if entity.ip is None else _IP_KEYS
    after = dict(before)
    for operation in operations:
        kind = allowed.get(operation.key)
        if kind is None:
            raise _invalid(f"Invalid configuration key {operation.key}")
        if operation.remove:
            after.pop(operation.key, None)
        else:
            after[operation.key] = _quota_text(operation.key, kind, operation.value)
    return after


def _quota_text(key: str, kind: ConfigType, value: float) -> str:
    if not value > 0 or math.isinf(value):
        raise _invalid(f"Quota {key} must be greater than 0")
    if kind is ConfigType.DOUBLE:
        return repr(value)
    if value != math.floor(value):
        raise _invalid(f"{key} cannot be a fractional value.")
    if value > _LIMITS[kind]:
        raise _invalid(f"Proposed value for {key} is too large for {'a LONG' if kind is ConfigType.LONG else 'an INT'}")
    return str(min(int(value), int(_LIMITS[kind]), (1 << 63) - 1))


def quotas_of(configs: Mapping[str, str]) -> dict[str, float]:
    """The quotas among what is set for an entity: credentials lie beside them."""
    return {key: float(text) for key, text in configs.items() if key in QUOTA_KEYS}


def describe_client_quotas(
    image: ClusterImage, components: Sequence[Component], *, strict: bool
) -> list[tuple[Entity, dict[str, float]]]:
    """The entities that a filter lets through, with their quotas. Raises KafkaError for a bad filter."""
    conditions = _conditions(components)
    found: list[tuple[Entity, dict[str, float]]] = []
    for entity, configs in image.client_configs.items():
        pairs = dict(entity_pairs(entity))
        if strict and len(pairs) != len(conditions):
            continue
        if all(_matches(component, pairs) for component in conditions.values()):
            quotas = quotas_of(configs)
            if quotas:
                found.append((entity_pairs(entity), quotas))
    return found


def _matches(component: Component, pairs: Mapping[str, str | None]) -> bool:
    if component.entity_type not in pairs:
        return False
    name = pairs[component.entity_type]
    if component.match_type == Match.EXACT:
        return name == component.match
    return component.match_type == Match.ANY or name is None


def _conditions(components: Sequence[Component]) -> dict[str, Component]:
    conditions: dict[str, Component] = {}
    for component in components:
        kind, match_type, match = component
        if not kind:
            raise _invalid("Unexpected empty filter component entity type")
        if kind not in _FIELDS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type {kind} not supported")
        if kind in conditions:
            raise _invalid(f"Duplicate filter component entity type: {kind}")
        if match_type == Match.EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        elif match_type in (Match.DEFAULT, Match.ANY):
            if match is not None:
                raise _invalid(
                    f"Request specified MATCH_TYPE_{Match(match_type).name}, but also specified a match string."
                )
        else:
            raise _invalid(f"Unknown match type {match_type}")
        conditions[kind] = component
    if "ip" in conditions and len(conditions) > 1:
        raise _invalid(
            "Invalid entity filter component combination, IP filter component should not be used with others"
        )
    return conditions


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
