"""`odradek debug`: collects what somebody needs to help with a cluster."""

from __future__ import annotations

import argparse
from typing import Final

from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import ANSWER_MS, add_connection, milliseconds

PROFILE_S: Final = 5.0
MAX_PROFILE_S: Final = 20.0
"""Longest profile that brokers make."""
ACTIONS: Final = ("bundle",)

EXAMPLES: Final = """
# collect versions, configuration, metadata, groups and health
odradek debug bundle cluster.tar.gz
# the same, with metrics, stacks and a profile of the broker on this machine
odradek debug bundle broker.tar.gz --metrics 127.0.0.1:9644
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
        help="HTTP listener of a broker, whose metrics are added; of one on this machine also stacks and a profile of "
        "its event loop (repeatable)",
    )
    parser.add_argument(
        "--log", action="append", default=[], metavar="PATH", help="log whose last 10 MiB are added (repeatable)"
    )
    parser.add_argument(
        "--profile-seconds",
        type=profile_seconds,
        default=PROFILE_S,
        metavar="SECONDS",
        help=f"length of the profile of an event loop, at most {MAX_PROFILE_S:g}; 0 for none (default: {PROFILE_S:g})",
    )
    add_connection(parser)
    parser.add_argument(
        "--timeout", type=milliseconds, metavar="MS", help=f"time limit for responses (default: {ANSWER_MS})"
    )
    add_examples(parser, EXAMPLES)


def profile_seconds(text: str) -> float:
    """An option's value. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_PROFILE_S:
        raise argparse.ArgumentTypeError(f"{text}: a number from 0 to {MAX_PROFILE_S:g} expected")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Execute the action; the exit code."""
    from odradek.cli.actions.debug_bundle import bundle

    return bundle(arguments)
