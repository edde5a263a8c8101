"""Changes of dynamic configurations: of topics, of one broker or all, of groups. Pure decisions over the cluster image.

Source: Kafka's `ConfigurationControlManager`, `ConfigAdminManager` and `ControllerConfigurationValidator`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek.controller.names import name_problem
from odradek.controller.outcome import Decision, Failure, Settings
from odradek.metadata.configs.catalog import (
    GROUP,
    TOPIC,
    broker_definition,
    topic_default,
    validate_dynamic_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)
from odradek.metadata.configs.client_metrics import DEFINITIONS as CLIENT_METRICS
from odradek.metadata.configs.client_metrics import validate_client_metrics
from odradek.metadata.configs.definitions import (
    ConfigDefinition,
    ConfigType,
    InvalidConfig,
    RefusedConfig,
    plain_text,
    split_list,
)
from odradek.metadata.configs.effect_rules import ensure_not_refused
from odradek.metadata.image import DEFAULT_BROKER, ClusterImage
from odradek.metadata.nodes import ConfigNode
from odradek.ports.store import Create, Delete, Operation, Put
from odradek.wire.errors import ErrorCode, KafkaError


class ResourceType(IntEnum):
    """Kinds of resources with configurations, by Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class OperationType(IntEnum):
    """Changes of a configuration, by Kafka's numbers (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of one configuration; `operation` is an OperationType."""

    name: str
    operation: int
    value: str | None


class ResourceChanges(NamedTuple):
    """`replace`: the changes are all SET, and whatever else was set goes (AlterConfigs, not its incremental heir)."""

    type: int
    name: str
    changes: Sequence[ConfigChange]
    replace: bool = False


class AlteredResource(NamedTuple):
    """The result for one resource; no failure means that it was changed."""

    type: int
    name: str
    failure: Failure | None


# Kafka can move its listeners while it runs; we cannot yet, and say so instead of accepting it.
_FIXED_HERE = frozenset(("listeners", "listener.security.protocol.map"))


def alter_configs(
    image: ClusterImage, resources: Sequence[ResourceChanges], settings: Settings, *, validate_only: bool = False
) -> Decision[AlteredResource]:
    """One reply for every distinct resource; each is changed as a whole or not at all."""
    counts = Counter((resource.type, resource.name) for resource in resources)
    operations: list[Operation] = []
    changed = image
    replies = []
    for key, resource in {(r.type, r.name): r for r in resources}.items():
        try:
            if counts[key] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            before = _current(image, resource)
            after = _changed(resource, before, settings)
            _validate(resource, before, after, settings)
        except RefusedConfig as error:
            replies.append(AlteredResource(*key, Failure(ErrorCode.INVALID_CONFIG, str(error))))
            continue
        except InvalidConfig as error:
            # A broker answers for itself, and as a broker does: INVALID_REQUEST.
            code = ErrorCode.INVALID_REQUEST if resource.type == ResourceType.BROKER else ErrorCode.INVALID_CONFIG
            replies.append(AlteredResource(*key, Failure(code, str(error))))
            continue
        except KafkaError as error:
            replies.append(AlteredResource(*key, Failure(error.code, error.message)))
            continue
        replies.append(AlteredResource(*key, None))
        if not validate_only and after != before:
            operations.append(_operation(image, resource, after))
            changed = _with_configs(changed, resource, after)
    return Decision(operations, changed, replies)


def _current(image: ClusterImage, resource: ResourceChanges) -> Mapping[str, str]:
    name = resource.name
    if resource.type == ResourceType.TOPIC:
        problem = name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return image.topics[name].configs
    if resource.type == ResourceType.BROKER:
        if name == DEFAULT_BROKER:
            return image.broker_configs.get(name, {})
        if not name.isascii() or not name.isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
        if int(name) not in image.brokers:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"No broker with id {name} found.")
        return image.broker_configs.get(name, {})
    if resource.type == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        return image.group_configs.get(name, {})
    if resource.type == ResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        return image.client_metrics.get(name, {})
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {_type_name(resource.type)}")


def _type_name(number: int) -> str:
    return ResourceType(number).name if number in ResourceType.__members__.values() else str(number)


def _changed(resource: ResourceChanges, before: Mapping[str, str], settings: Settings) -> dict[str, str]:
    names = Counter(change.name for change in resource.changes)
    if any(count > 1 for count in names.values()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [c.name for c in resource.changes if c.value is None and c.operation != OperationType.DELETE]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    after = {} if resource.replace else dict(before)
    for change in resource.changes:
        value = change.value or ""
        if change.operation == OperationType.SET:
            after[change.name] = value
        elif change.operation == OperationType.DELETE:
            after.pop(change.name, None)
        elif change.operation in (OperationType.APPEND, OperationType.SUBTRACT):
            operation = OperationType(change.operation)
            after[change.name] = _edited(resource, change.name, operation, value, after.get(change.name), settings)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.operation}")
    return after


def _edited(
    resource: ResourceChanges,
    name: str,
    operation: OperationType,
    value: str,
    current: str | None,
    settings: Settings,
) -> str:
    definition = _definition(resource, name)
    if definition is None or definition.type is not ConfigType.LIST:
        raise InvalidConfig(f"Can't {operation.name} to key {name} because its type is not LIST.")
    if current is None and resource.type == ResourceType.TOPIC:
        current = plain_text(topic_default(definition, settings.value))
    elif current is None and resource.type == ResourceType.BROKER:
        current = plain_text(settings.value(name))
    words = dict.fromkeys(split_list(current or ""))
    for word in split_list(value):
        if operation is OperationType.APPEND:
            words[word] = None
        else:
            words.pop(word, None)
    return ",".join(words)


def _definition(resource: ResourceChanges, name: str) -> ConfigDefinition | None:
    if resource.type == ResourceType.TOPIC:
        return TOPIC.get(name)
    if resource.type == ResourceType.GROUP:
        return GROUP.get(name)
    if resource.type == ResourceType.CLIENT_METRICS:
        return CLIENT_METRICS.get(name)
    return broker_definition(name)


def _validate(
    resource: ResourceChanges, before: Mapping[str, str], after: Mapping[str, str], settings: Settings
) -> None:
    if resource.type == ResourceType.TOPIC:
        validate_topic_configs(after, settings.value, existing=before)
    elif resource.type == ResourceType.GROUP:
        validate_group_configs(after, settings.value)
    elif resource.type == ResourceType.CLIENT_METRICS:
        validate_client_metrics(after)
    else:
        touched = {change.name: after.get(change.name, "") for change in resource.changes}
        fixed = sorted(_FIXED_HERE & touched.keys())
        if fixed:
            raise InvalidConfig(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        ensure_not_refused({name: text for name, text in after.items() if before.get(name) != text})
        validate_dynamic_broker_configs(after, per_broker=resource.name != DEFAULT_BROKER)


def _path(resource: ResourceChanges) -> str:
    if resource.type == ResourceType.TOPIC:
        return ConfigNode.topic_path(resource.name)
    if resource.type == ResourceType.GROUP:
        return ConfigNode.group_path(resource.name)
    if resource.type == ResourceType.CLIENT_METRICS:
        return ConfigNode.client_metrics_path(resource.name)
    return ConfigNode.broker_path(resource.name)


def _operation(image: ClusterImage, resource: ResourceChanges, after: Mapping[str, str]) -> Operation:
    # Every topic has its node; for brokers and groups it stands while something is set, or since Kafka has left it.
    path = _path(resource)
    if resource.type == ResourceType.TOPIC:
        return Put(path, ConfigNode.encode(after))
    if not after:
        return Delete(path)
    data = ConfigNode.encode(after)
    known = {ResourceType.GROUP: image.group_configs, ResourceType.CLIENT_METRICS: image.client_metrics}
    exists = resource.name in known.get(ResourceType(resource.type), image.broker_configs)
    return Put(path, data) if exists else Create(path, data)


def _with_configs(image: ClusterImage, resource: ResourceChanges, configs: Mapping[str, str]) -> ClusterImage:
    if resource.type == ResourceType.TOPIC:
        return image.with_topic_configs(resource.name, configs)
    if resource.type == ResourceType.GROUP:
        return image.with_group_configs(resource.name, configs)
    if resource.type == ResourceType.CLIENT_METRICS:
        return image.with_client_metrics(resource.name, configs)
    return image.with_broker_configs(resource.name, configs)
