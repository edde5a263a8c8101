"""Changes of configurations, quotas and users, from requests and their answers. Secrets are never among the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from odradek.api.audit.answered import Answered
from odradek.api.audit.trail import Change
from odradek.controller.client_quotas import client_entity, quotas_of
from odradek.controller.configs import ResourceType
from odradek.metadata.configs.catalog import GROUP, TOPIC, broker_definition
from odradek.metadata.configs.definitions import ConfigDefinition
from odradek.metadata.image import ClientEntity, ClusterImage
from odradek.security.scram import MECHANISMS, Mechanism, ScramCredential
from odradek.wire.errors import KafkaError

HIDDEN: Final = "[hidden]"
"""The value of a setting that may be a secret: a password, or one that this version does not know."""
_KINDS: Final = {
    ResourceType.TOPIC: "TOPIC",
    ResourceType.BROKER: "BROKER",
    ResourceType.BROKER_LOGGER: "BROKER_LOGGER",
    ResourceType.CLIENT_METRICS: "CLIENT_METRICS",
    ResourceType.GROUP: "GROUP",
}
_OPEN: Final = (ResourceType.CLIENT_METRICS, ResourceType.BROKER_LOGGER)
"""Resources whose settings have no definitions, and none of which is a secret."""
_DEFINITIONS: Final[dict[int, Callable[[str], ConfigDefinition | None]]] = {
    ResourceType.TOPIC: TOPIC.get,
    ResourceType.BROKER: broker_definition,
    ResourceType.GROUP: GROUP.get,
}


def altered_configs(served: Answered) -> Iterator[Change]:
    """Of AlterConfigs and IncrementalAlterConfigs: the settings that the request names, and those that it removes."""
    if served.request.validate_only:
        return
    named: dict[tuple[int, str], dict[str, str | None]] = {}
    for resource in served.request.resources:
        found = named.setdefault((resource.resource_type, resource.resource_name), {})
        found.update((each.name, each.value) for each in resource.configs)
    for each in served.answer.responses:
        kind, name = each.resource_type, each.resource_name
        wanted = named.get((kind, name), {})
        if kind == ResourceType.BROKER_LOGGER:
            # Levels are this process's alone: no image has them.
            yield Change(_KINDS[ResourceType(kind)], name, None, None if each.error_code else wanted, each.error_code)
            continue
        was, now = _configs(served.before, kind, name), _configs(served.after, kind, name)
        shown = {*wanted, *(setting for setting in {*was, *now} if was.get(setting) != now.get(setting))}
        before, after = ({key: _shown(kind, key, found.get(key)) for key in sorted(shown)} for found in (was, now))
        text = _KINDS[ResourceType(kind)] if kind in _KINDS else str(kind)
        yield Change(text, name, before, before if each.error_code else after, each.error_code)


def _configs(image: ClusterImage, kind: int, name: str) -> Mapping[str, str]:
    if kind == ResourceType.TOPIC:
        return image.topic_configs(name)
    if kind == ResourceType.BROKER:
        # Kafka's tools name the settings of all brokers by the empty text; so does the image's default entry.
        return image.broker_configs.get(name, {})
    if kind == ResourceType.GROUP:
        return image.group_configs.get(name, {})
    return image.client_metrics.get(name, {})


def _shown(kind: int, setting: str, value: str | None) -> str | None:
    if value is None or kind in _OPEN:
        return value
    definition = _DEFINITIONS[kind](setting) if kind in _DEFINITIONS else None
    return HIDDEN if definition is None or definition.is_sensitive else value


def altered_quotas(served: Answered) -> Iterator[Change]:
    """Of AlterClientQuotas."""
    if served.request.validate_only:
        return
    for each in served.answer.entries:
        pairs = [(part.entity_type, part.entity_name) for part in each.entity]
        name = ",".join(f"{kind}={'<default>' if value is None else value}" for kind, value in pairs)
        try:
            entity = client_entity(pairs)
        except KafkaError:
            yield Change("CLIENT_QUOTA", name, None, None, each.error_code)
            continue
        before, after = (quotas_of(image.client_configs.get(entity, {})) for image in served[2:4])
        yield Change("CLIENT_QUOTA", name, before, before if each.error_code else after, each.error_code)


def altered_users(served: Answered) -> Iterator[Change]:
    """Of AlterUserScramCredentials: which mechanisms a user has, and which of them the request wrote."""
    written: dict[str, list[str]] = {}
    for each in (*served.request.upsertions, *served.request.deletions):
        written.setdefault(each.name, []).append(_mechanism(each.mechanism))
    for result in served.answer.results:
        before, after = (_credentials(image, result.user) for image in served[2:4])
        changed = {**after, "written": sorted(written.get(result.user, []))}
        yield Change("USER", result.user, before, before if result.error_code else changed, result.error_code)


def _mechanism(number: int) -> str:
    return Mechanism(number).config_name if number in MECHANISMS.values() else str(number)


def _credentials(image: ClusterImage, user: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, text in image.client_configs.get(ClientEntity(user), {}).items():
        if key in MECHANISMS:
            try:
                found[key] = {"iterations": ScramCredential.parse(text).iterations}
            except ValueError:
                found[key] = {}
    return found
