"""The groups that `--group` and `--all-groups` choose."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.cli.session import run_admin
from odradek.cli.terminal.confirmation import confirm

if TYPE_CHECKING:
    from odradek.client.admin import Admin


async def chosen_groups(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    """The groups that `--group` or `--all-groups` choose."""
    if not arguments.all_groups:
        return list(dict.fromkeys(arguments.group))
    return [each.group_id for each in await admin.groups.list() if each.protocol_type in ("", "consumer")]


def confirmed_groups(arguments: argparse.Namespace, action: str) -> list[str]:
    """The chosen groups, confirmed if there are several. Raises UsageError, CommandError."""
    groups = run_admin(arguments, lambda admin: chosen_groups(admin, arguments))
    if len(groups) > 1:
        confirm(arguments, f"{action} {len(groups)} groups", groups)
    return groups
