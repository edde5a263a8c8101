"""`odradek roles`: principals that stand for their members. A role and its members are ACLs, which brokers know."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.acl_selection import principal
from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import Column, show

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.wire.acls import AclBinding

ACTIONS: Final = ("list", "grant", "revoke")
COLUMNS: Final = (Column("ROLE", "role", 16), Column("MEMBERS", "members", 20), Column("ACLS", "acls"))
EXAMPLES: Final = """
# what the role may do is said by ACLs, with the role as their principal
odradek acls add --allow-principal Role:analysts --operation read --topic orders
odradek roles grant analysts User:dora User:emil
odradek roles
odradek roles revoke analysts User:emil
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[list | grant ROLE PRINCIPAL… | revoke ROLE PRINCIPAL…]",
        help="list (default) shows roles, their members and how many ACLs they have; grant adds members to a role, "
        "revoke removes them",
    )
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; the exit status."""
    action, *words = arguments.words or ["list"]
    if action not in ACTIONS:
        raise UsageError(f"unknown action {action!r}: list, grant or revoke")
    if action == "list":
        if words:
            raise UsageError("list takes no names")
        return _list(arguments)
    if len(words) < 2:
        raise UsageError(f"{action} needs a role and its members, such as analysts User:alice")
    role, *members = words
    name = role if role.startswith("Role:") else f"Role:{role}"
    if name == "Role:":
        raise UsageError("a role needs a name")
    return _change(arguments, action, [_membership(name, principal(each)) for each in members])


def _membership(role: str, member: str) -> AclBinding:
    from odradek.wire.acls import AclBinding, AclOperation, ResourceType

    return AclBinding(ResourceType.USER, role, member, AclOperation.ALL)


def _list(arguments: argparse.Namespace) -> int:
    async def work(admin: Admin) -> list[AclBinding]:
        return await admin.acls.describe()

    rows: dict[str, dict[str, Any]] = {}

    def of(role: str) -> dict[str, Any]:
        return rows.setdefault(role, {"role": role.removeprefix("Role:"), "members": [], "acls": 0})

    for each in run_admin(arguments, work):
        if each == _membership(each.resource_name, each.principal) and each.resource_name.startswith("Role:"):
            of(each.resource_name)["members"].append(each.principal)
        elif each.principal.startswith("Role:"):
            of(each.principal)["acls"] += 1
    found = [rows[name] for name in sorted(rows)]
    if arguments.output is None or arguments.output in ("wide", "tsv"):
        found = [each | {"members": ", ".join(sorted(each["members"])) or None} for each in found]
    show(found, COLUMNS, arguments.output)
    return 0


def _change(arguments: argparse.Namespace, action: str, memberships: list[AclBinding]) -> int:
    async def work(admin: Admin) -> list[str]:
        from odradek.wire.acls import AclFilter

        if action == "grant":
            created = await admin.acls.create(memberships)
            return [f"{each.principal}: {error}" for each, error in created.items() if error is not None]
        filters = {
            AclFilter(
                e.resource_type, e.resource_name, e.principal, e.operation, e.permission, e.host, e.pattern_type
            ): e
            for e in memberships
        }
        problems = []
        for matching, removed in (await admin.acls.delete(list(filters))).items():
            if not isinstance(removed, list):
                problems.append(f"{filters[matching].principal}: {removed}")
            elif not removed:
                problems.append(f"{filters[matching].principal} is not a member")
        return problems

    problems = run_admin(arguments, work)
    for each in problems:
        print(f"odradek roles: cannot {action} {memberships[0].resource_name}: {each}", file=sys.stderr)
    return 1 if problems else 0
