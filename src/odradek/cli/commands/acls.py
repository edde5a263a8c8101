"""`odradek acls`: who may do what (Apache's kafka-acls), and why."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.acl_selection import (
    add_resources,
    bindings_of,
    filters_of,
    operation,
    principal,
    resource,
    role,
)
from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin, is_given
from odradek.cli.session import run_admin
from odradek.cli.terminal.confirmation import add_confirmation, confirm
from odradek.cli.terminal.output import Column, show

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.wire.acls import AclBinding, AclFilter
    from odradek.wire.errors import KafkaError

ACTIONS: Final = ("list", "add", "remove", "explain")
DEFAULT_HOST: Final = "127.0.0.1"
OPTIONS: Final = {
    **dict.fromkeys(
        ("allow-principal", "deny-principal", "allow-host", "deny-host", "operation", "producer", "consumer",
         "idempotent"), ("add", "remove")
    ),
    "principal": ("list",), "role": ("explain",), "host": ("explain",), "yes": ("add", "remove"),
}  # fmt: skip
"""Option -> the actions that it goes with."""
COLUMNS: Final = (
    Column("RESOURCE", "resource_type", 10),
    Column("NAME", "resource_name", 20),
    Column("PATTERN", "pattern_type", 8),
    Column("PRINCIPAL", "principal", 16),
    Column("HOST", "host", 4),
    Column("PERMISSION", "permission"),
    Column("OPERATION", "operation"),
)
EXAMPLES: Final = """
odradek acls add --allow-principal User:alice --producer --topic orders
odradek acls add --allow-principal User:bob --consumer --topic orders --group billing
# all topics that begin with web-, from one network only
odradek acls add --allow-principal User:carol --allow-host 10.0.0.0/8 --topic web- --resource-pattern-type prefixed
odradek acls list --topic orders --resource-pattern-type match
# which ACL decides
odradek acls explain User:alice write topic:orders
# of a client whose certificate or token says that it is an analyst
odradek acls add --allow-principal Role:analysts --operation read --topic orders
odradek acls explain User:dora read topic:orders --role analysts
odradek acls remove --allow-principal User:alice --producer --topic orders --yes
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[list|add|remove] | explain PRINCIPAL OPERATION RESOURCE",
        help="list (default) shows ACLs, add and remove change them; explain says whether the principal may do the "
        "operation, and which ACL decides; RESOURCE is topic:NAME, group:NAME, transactional-id:NAME or cluster",
    )
    for action in ACTIONS[:3]:
        parser.add_argument(f"--{action}", action="store_true", help=argparse.SUPPRESS)
    add_resources(parser)
    rights = parser.add_argument_group("rights")
    rights.add_argument("--allow-principal", action="append", metavar="TYPE:NAME", help="who may (repeatable)")
    rights.add_argument("--deny-principal", action="append", metavar="TYPE:NAME", help="who may not (repeatable)")
    rights.add_argument("--allow-host", action="append", metavar="HOST", help="address or network; default: all")
    rights.add_argument("--deny-host", action="append", metavar="HOST", help="address or network; default: all")
    rights.add_argument("--operation", action="append", metavar="NAME", help="operation; default: all (repeatable)")
    rights.add_argument("--producer", action="store_true", help="what producers of --topic need")
    rights.add_argument("--consumer", action="store_true", help="what consumers of --topic in --group need")
    rights.add_argument("--idempotent", action="store_true", help="with --producer: idempotent writes on the cluster")
    rights.add_argument("--principal", action="append", metavar="TYPE:NAME", help="list: only these (repeatable)")
    rights.add_argument("--host", metavar="ADDRESS", help=f"explain: from this address (default: {DEFAULT_HOST})")
    rights.add_argument(
        "--role",
        action="append",
        metavar="NAME",
        help="explain: with this role of the client's certificate or token, beside those of ACLs (repeatable)",
    )
    parser.add_argument("--force", action="store_true", help=argparse.SUPPRESS)
    add_confirmation(parser)
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; the exit status."""
    words = list(arguments.words)
    action = words.pop(0) if words else "list"
    given = [each for each in ACTIONS[:3] if getattr(arguments, each)]
    if len(given) > 1 or (given and arguments.words):
        raise UsageError("one action at a time: list, add, remove or explain")
    action = given[0] if given else action
    if arguments.role and action != "explain":
        raise UsageError("--role is for explain; members of roles are granted with `odradek roles`")
    for option, actions in OPTIONS.items():
        if is_given(arguments, option) and action in ACTIONS and action not in actions:
            raise UsageError(f"--{option} goes with {' or '.join(actions)} only")
    if action == "explain":
        if len(words) != 3:
            raise UsageError("explain needs PRINCIPAL OPERATION RESOURCE, such as User:alice write topic:orders")
        return _explain(arguments, *words)
    if action not in ACTIONS or words:
        raise UsageError(f"unknown action {' '.join(arguments.words)!r}: list, add, remove or explain")
    return {"list": _list, "add": _add, "remove": _remove}[action](arguments)


def row(binding: AclBinding) -> dict[str, Any]:
    """An ACL for the output."""
    return {
        "resource_type": binding.resource_type.name.lower(),
        "resource_name": binding.resource_name,
        "pattern_type": binding.pattern_type.name.lower(),
        "principal": binding.principal,
        "host": binding.host,
        "permission": binding.permission.name.lower(),
        "operation": binding.operation.name.lower(),
    }


def _list(arguments: argparse.Namespace) -> int:
    filters = filters_of(arguments)
    principals = None if arguments.principal is None else {principal(each) for each in arguments.principal}

    async def work(admin: Admin) -> set[AclBinding]:
        return {binding for each in filters for binding in await admin.acls.describe(each)}

    found = run_admin(arguments, work)
    rows = [row(each) for each in sorted(found) if principals is None or each.principal in principals]
    show(rows, COLUMNS, arguments.output)
    return 0


def _add(arguments: argparse.Namespace) -> int:
    bindings = bindings_of(arguments)

    async def work(admin: Admin) -> dict[AclBinding, KafkaError | None]:
        return await admin.acls.create(bindings)

    outcomes = run_admin(arguments, work)
    for binding, error in outcomes.items():
        if error is not None:
            print(f"odradek acls: cannot add {_text(binding)}: {error}", file=sys.stderr)
    show([row(each) for each, error in outcomes.items() if error is None], COLUMNS, arguments.output)
    return 1 if any(outcomes.values()) else 0


def _remove(arguments: argparse.Namespace) -> int:
    filters = _removed(arguments)

    async def matching(admin: Admin) -> set[AclBinding]:
        return {binding for each in filters for binding in await admin.acls.describe(each)}

    async def remove(admin: Admin) -> dict[AclFilter, list[AclBinding | KafkaError] | KafkaError]:
        return await admin.acls.delete(filters)

    if not arguments.force:
        doomed = run_admin(arguments, matching)
        if len(doomed) > 1:
            confirm(arguments, f"remove {len(doomed)} ACLs", [_text(each) for each in sorted(doomed)])
    removed: set[AclBinding] = set()
    failed: list[KafkaError] = []
    for result in run_admin(arguments, remove).values():
        for each in result if isinstance(result, list) else [result]:
            if isinstance(each, tuple):
                removed.add(each)
            else:
                failed.append(each)
    for error in failed:
        print(f"odradek acls: cannot remove ACLs: {error}", file=sys.stderr)
    show([row(each) for each in sorted(removed)], COLUMNS, arguments.output)
    return 1 if failed else 0


def _removed(arguments: argparse.Namespace) -> list[AclFilter]:
    """The very ACLs that `add` would add, or all of the named resources where no principal is named.

    Raises UsageError for rights without a principal: they would select nothing, and all ACLs would be removed.
    """
    from odradek.wire.acls import AclFilter

    if not (arguments.allow_principal or arguments.deny_principal):
        for option in ("allow-host", "deny-host", "operation", "producer", "consumer", "idempotent"):
            if is_given(arguments, option):
                raise UsageError(
                    f"--{option} needs --allow-principal or --deny-principal; without rights and principals all ACLs "
                    "of the resource are removed"
                )
        filters = filters_of(arguments)
        if filters[0].resource_name is None:
            raise UsageError("which ACLs? name a resource: --topic, --group, --cluster, --transactional-id, ...")
        return filters
    return [
        AclFilter(
            each.resource_type,
            each.resource_name,
            each.principal,
            each.operation,
            each.permission,
            each.host,
            each.pattern_type,
        )
        for each in bindings_of(arguments)
    ]


def _text(binding: AclBinding) -> str:
    from odradek.authorization.decision_log import acl_text

    return acl_text(binding)


def _explain(arguments: argparse.Namespace, who: str, what: str, on: str) -> int:
    """Decide as a broker does, by its ACLs and settings; 1 if the operation is denied."""
    from odradek.authorization.decision_log import rule_text
    from odradek.cli.actions.access import authorizer_of

    wanted, (kind, name) = operation(what), resource(on)
    proven = [role(each) for each in arguments.role or ()]
    authorizer = run_admin(arguments, authorizer_of)
    host = arguments.host or DEFAULT_HOST
    subject = authorizer.subject(principal(who), host, proven)
    decision = authorizer.decide(subject, wanted, kind, name)
    found = {
        "principal": who,
        "operation": wanted.name.lower(),
        "resource_type": kind.name.lower(),
        "resource_name": name,
        "host": host,
        "roles": sorted(subject.roles),
        "decision": "allowed" if decision.is_allowed else "denied",
        "rule": rule_text(decision),
    }
    if arguments.output is not None:
        columns = tuple(Column(key.upper().replace("_", " "), key) for key in found)
        show([found], columns, arguments.output)
    else:
        roles = f" (roles: {', '.join(sorted(subject.roles))})" if subject.roles else ""
        print(f"{who}{roles} from {host}: {wanted.name} on {kind.name} {name} is {found['decision']}")
        print(f"by: {found['rule']}")
    return 0 if decision.is_allowed else 1
