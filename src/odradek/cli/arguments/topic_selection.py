"""The topics that `--topic` chooses: literal names, or a regular expression."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.cli.arguments.errors import CommandError
from odradek.cli.arguments.names import literal_topics, missing_topics, topic_pattern

if TYPE_CHECKING:
    from odradek.client.admin import Admin


async def matching(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    """Names of the existing topics that `--topic` and `--exclude-internal` choose, sorted."""
    names = await admin.list_topics(include_internal=not arguments.exclude_internal)
    if arguments.topic is None:
        return names
    if is_regex(arguments):
        pattern = topic_pattern(arguments.topic)
        return [each for each in names if pattern.fullmatch(each)]
    wanted = frozenset(literal_topics(arguments.topic))
    return [each for each in names if each in wanted]


def is_regex(arguments: argparse.Namespace) -> bool:
    """Whether `--topic` is a regular expression."""
    return bool(arguments.regex or arguments.apache_compatible)


async def matching_or_error(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    """Names of the topics that `--topic` chooses. Raises CommandError for one that does not exist."""
    names = await matching(admin, arguments)
    if arguments.topic is None or arguments.if_exists:
        return names
    if is_regex(arguments):
        if not names:
            raise CommandError(f"no topic matches {arguments.topic}", "UNKNOWN_TOPIC_OR_PARTITION")
        return names
    missing = [each for each in literal_topics(arguments.topic) if each not in names]
    if missing:
        raise CommandError(missing_topics(missing), "UNKNOWN_TOPIC_OR_PARTITION")
    return names
