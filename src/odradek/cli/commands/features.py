"""`odradek features`: levels of the cluster's features (Apache's kafka-features)."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin, is_given
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.admin.features import FeatureUpdate
    from odradek.wire.errors import KafkaError

ACTIONS: Final = ("describe", "upgrade", "downgrade", "disable")
COLUMNS: Final = (
    Column("FEATURE", "feature", 30),
    Column("MIN", "supported_min"),
    Column("MAX", "supported_max"),
    Column("LEVEL", "level"),
    Column("EPOCH", "epoch"),
)
EXAMPLES: Final = """
odradek features
odradek features upgrade --feature transaction.version=2
odradek features downgrade --feature transaction.version=1 --dry-run
odradek features disable --feature eligible.leader.replicas.version
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="describe", help="describe is the default")
    parser.add_argument(
        "--feature", action="append", default=[], metavar="NAME[=LEVEL]", help="feature to change (repeatable)"
    )
    parser.add_argument(
        "--unsafe", action="store_true", help="with downgrade and disable: even if metadata may be lost"
    )
    parser.add_argument("--dry-run", action="store_true", help="only check whether the change is possible")
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Check which options go together, and run the action; the exit status."""
    if arguments.action == "describe":
        for option in ("feature", "unsafe", "dry-run"):
            if is_given(arguments, option):
                raise UsageError(f"--{option} goes with upgrade, downgrade or disable only")
        return describe(arguments)
    if arguments.unsafe and arguments.action == "upgrade":
        raise UsageError("--unsafe goes with downgrade or disable only")
    return update(arguments, _updates(arguments))


def describe(arguments: argparse.Namespace) -> int:
    """Print the supported levels of each feature and the one in effect."""

    async def work(admin: Admin) -> list[dict[str, Any]]:
        found = await admin.features.describe()
        return [
            {
                "feature": name,
                "supported_min": supported.min_version,
                "supported_max": supported.max_version,
                "level": found.finalized[name].max_version if name in found.finalized else 0,
                "epoch": found.epoch,
            }
            for name, supported in sorted(found.supported.items())
        ]

    show(run_admin(arguments, work), COLUMNS, arguments.output)
    return 0


def _updates(arguments: argparse.Namespace) -> dict[str, FeatureUpdate]:
    """Raises UsageError."""
    from odradek.client.admin import FeatureUpgradeType
    from odradek.client.admin.features import FeatureUpdate

    kind = FeatureUpgradeType.UPGRADE
    if arguments.action != "upgrade":
        kind = FeatureUpgradeType.UNSAFE_DOWNGRADE if arguments.unsafe else FeatureUpgradeType.SAFE_DOWNGRADE
    if not arguments.feature:
        raise UsageError(f"{arguments.action} needs --feature")
    updates = {}
    for text in arguments.feature:
        name, equals, level = text.partition("=")
        if arguments.action == "disable":
            if equals:
                raise UsageError(f"--feature {text}: disable takes the name alone")
            level = "0"
        elif not level.isdecimal():
            raise UsageError(f"--feature {text}: NAME=LEVEL expected, the level as a number")
        if name in updates:
            raise UsageError(f"--feature {name} is given twice")
        updates[name] = FeatureUpdate(int(level), kind)
    return updates


def update(arguments: argparse.Namespace, updates: dict[str, FeatureUpdate]) -> int:
    """Change levels, all or none, and print the outcome of each; 1 if they were not changed."""

    async def work(admin: Admin) -> dict[str, KafkaError | None]:
        return await admin.features.update(updates, validate_only=arguments.dry_run)

    results = run_admin(arguments, work)
    failed = {name: error for name, error in results.items() if error is not None}
    if arguments.output in DOCUMENTS:
        rows = [
            {
                "feature": name,
                "level": updates[name].max_version_level,
                "changed": error is None and not arguments.dry_run,
                "error": None if error is None else str(error),
            }
            for name, error in results.items()
        ]
        show_document(rows, arguments.output)
        return 1 if failed else 0
    done = {"upgrade": "upgraded", "downgrade": "downgraded", "disable": "disabled"}[arguments.action]
    for name in results.keys() - failed.keys():
        goal = "" if arguments.action == "disable" else f" to {updates[name].max_version_level}"
        print(f"{name} {'can be' if arguments.dry_run else 'was'} {done}{goal}.")
    for name, error in failed.items():
        print(f"odradek features: cannot {arguments.action} {name}: {error}", file=sys.stderr)
    return 1 if failed else 0
