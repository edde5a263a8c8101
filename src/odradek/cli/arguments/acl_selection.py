"""Options that name the resources, principals and operations of ACLs, as those of Apache's kafka-acls."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import product
from typing import Final

from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.suggestions import suggestion
from odradek.security.proven_roles import roles_named
from odradek.wire.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)

RESOURCE_OPTIONS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
PATTERN_TYPES: Final = ("literal", "prefixed", "match", "any")
_OPERATIONS: Final = {each.name.replace("_", "").lower(): each for each in AclOperation if each > AclOperation.ANY}


def add_resources(parser: argparse.ArgumentParser) -> None:
    """Add the options that name resources."""
    resources = parser.add_argument_group("resources")
    for option, what in (
        ("topic", "topic"),
        ("group", "consumer group"),
        ("transactional-id", "transactional id"),
        ("delegation-token", "delegation token"),
        ("user-principal", "user, as a resource (User:NAME, or Role:NAME for members of a role)"),
    ):
        resources.add_argument(f"--{option}", action="append", metavar="NAME", help=f"{what}; * is all (repeatable)")
    resources.add_argument("--cluster", action="store_true", help="the cluster")
    resources.add_argument(
        "--resource-pattern-type",
        choices=PATTERN_TYPES,
        type=str.lower,
        metavar="TYPE",
        help="literal (default), or prefixed: all names that begin so; to list and remove also match: what applies to "
        "the name, and any",
    )


def principal(text: str) -> str:
    """A principal such as `User:alice`. Raises UsageError."""
    kind, separator, name = text.partition(":")
    if not (kind and separator and name):
        raise UsageError(f"{text!r} is not a principal such as User:alice")
    return text


def role(text: str) -> str:
    """The principal of a role that is named `analysts` or `Role:analysts`. Raises UsageError for what is no role."""
    found = roles_named([text.removeprefix("Role:")])
    if not found:
        raise UsageError(f"{text!r} is not the name of a role such as analysts")
    return found[0]


def operation(text: str) -> AclOperation:
    """An operation in any spelling: `DescribeConfigs`, `describe_configs`. Raises UsageError."""
    found = _OPERATIONS.get(text.replace("_", "").replace("-", "").lower())
    if found is None:
        names = [each.name.lower() for each in _OPERATIONS.values()]
        hint = suggestion(text.lower(), names)
        raise UsageError(f"{text!r} is not an operation ({hint or ', '.join(names)})")
    return found


def resource(text: str) -> tuple[ResourceType, str]:
    """A resource such as `topic:orders`, or `cluster`. Raises UsageError."""
    kind, _, name = text.partition(":")
    if kind.lower() == "cluster" and name in ("", CLUSTER_NAME):
        return ResourceType.CLUSTER, CLUSTER_NAME
    found = RESOURCE_OPTIONS.get(kind.lower().replace("-", "_"))
    if kind.lower() == "user":
        found = ResourceType.USER
    if found is None or not name:
        raise UsageError(f"{text!r} is not a resource: topic:NAME, group:NAME, transactional-id:NAME, cluster")
    return found, name


def resources_of(arguments: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    """The resources that the options name."""
    found = [(kind, name) for option, kind in RESOURCE_OPTIONS.items() for name in getattr(arguments, option) or ()]
    if arguments.cluster:
        found.append((ResourceType.CLUSTER, CLUSTER_NAME))
    return list(dict.fromkeys(found))


def pattern_type_of(arguments: argparse.Namespace) -> PatternType:
    """The pattern type that is asked for, LITERAL by default."""
    return PatternType[(arguments.resource_pattern_type or "literal").upper()]


def filters_of(arguments: argparse.Namespace) -> list[AclFilter]:
    """What `list` and `remove` mean: a filter for each resource, or one for all."""
    resources = resources_of(arguments)
    if not resources:
        kind = PatternType.ANY if arguments.resource_pattern_type is None else pattern_type_of(arguments)
        return [AclFilter(pattern_type=kind)]
    return [AclFilter(kind, name, pattern_type=pattern_type_of(arguments)) for kind, name in resources]


def bindings_of(arguments: argparse.Namespace) -> list[AclBinding]:
    """The ACLs that the options describe. Raises UsageError."""
    pattern = pattern_type_of(arguments)
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise UsageError("--resource-pattern-type is literal or prefixed for ACLs that are added")
    rights = _rights_of(arguments, pattern)
    found: list[AclBinding] = []
    for permission, principals, hosts in (
        (AclPermissionType.ALLOW, arguments.allow_principal, arguments.allow_host),
        (AclPermissionType.DENY, arguments.deny_principal, arguments.deny_host),
    ):
        if hosts and not principals:
            raise UsageError(f"--{permission.name.lower()}-host goes with --{permission.name.lower()}-principal")
        found += [
            AclBinding(of.type, of.name, principal(name), what, permission, host, of.pattern_type)
            for (of, what), name, host in product(rights, principals or (), hosts or (WILDCARD,))
        ]
    if not found:
        raise UsageError("whose? --allow-principal or --deny-principal")
    return found


def _rights_of(arguments: argparse.Namespace, pattern: PatternType) -> list[tuple[ResourcePattern, AclOperation]]:
    """Resources and operations: those of `--producer` and `--consumer`, else those that are named."""
    of = {
        kind: [ResourcePattern(kind, n, pattern) for k, n in resources_of(arguments) if k == kind]
        for kind in ResourceType
    }
    if not (arguments.producer or arguments.consumer):
        if arguments.idempotent:
            raise UsageError("--idempotent goes with --producer only")
        named = [each for patterns in of.values() for each in patterns]
        if not named:
            raise UsageError("which resource? --topic, --group, --cluster, --transactional-id, ...")
        operations = [operation(each) for each in arguments.operation or ("all",)]
        return list(product(named, operations))
    if arguments.operation:
        raise UsageError("--producer and --consumer choose the operations; --operation does not go with them")
    if not of[ResourceType.TOPIC]:
        raise UsageError("--producer and --consumer need --topic")
    if arguments.deny_principal:
        raise UsageError("--producer and --consumer are to allow; --deny-principal does not go with them")
    found: list[tuple[ResourcePattern, AclOperation]] = []
    if arguments.producer:
        found += _producer_rights(of, idempotent=arguments.idempotent)
    if arguments.consumer:
        if not of[ResourceType.GROUP]:
            raise UsageError("--consumer needs --group")
        found += product(of[ResourceType.TOPIC], (AclOperation.READ, AclOperation.DESCRIBE))
        found += product(of[ResourceType.GROUP], (AclOperation.READ,))
    return list(dict.fromkeys(found))


def _producer_rights(
    of: dict[ResourceType, list[ResourcePattern]], *, idempotent: bool
) -> Iterable[tuple[ResourcePattern, AclOperation]]:
    write, describe = AclOperation.WRITE, AclOperation.DESCRIBE
    yield from product(of[ResourceType.TOPIC], (write, describe, AclOperation.CREATE))
    yield from product(of[ResourceType.TRANSACTIONAL_ID], (write, describe))
    if idempotent:
        yield ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), AclOperation.IDEMPOTENT_WRITE
