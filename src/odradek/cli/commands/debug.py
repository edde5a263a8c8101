"""`odradek debug`: collects what somebody needs to help with a cluster."""

from __future__ import annotations

import argparse
from typing import Final

from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import ANSWER_MS, add_connection, milliseconds

ACTIONS: Final = ("bundle",)

EXAMPLES: Final = """
# collect versions, configuration, metadata, groups and health
odradek debug bundle cluster.tar.gz
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the action and its options."""
    parser.add_argument("action", choices=ACTIONS, help="write an archive, without secrets")
    parser.add_argument("file", metavar="FILE", help="the tar.gz to write; an existing file is never replaced")
    parser.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="HTTP listener of a broker, whose metrics are added (repeatable)",
    )
    parser.add_argument(
        "--log", action="append", default=[], metavar="PATH", help="log whose last 10 MiB are added (repeatable)"
    )
    add_connection(parser)
    parser.add_argument(
        "--timeout", type=milliseconds, metavar="MS", help=f"time limit for responses (default: {ANSWER_MS})"
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Execute the action; the exit code."""
    from odradek.cli.actions.debug_bundle import bundle

    return bundle(arguments)
