"""The authorizers that a configuration may name, and its super users."""

from __future__ import annotations

from typing import Final

AUTHORIZERS: Final = (
    "odradek",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Values of `authorizer.class.name`; all are this one, which decides as Kafka's do."""


def super_users(text: str) -> frozenset[str]:
    """The principals in `super.users`. Raises ValueError for one that has no type."""
    names = [each.strip() for each in text.split(";") if each.strip()]
    for name in names:
        kind, separator, rest = name.partition(":")
        if not (kind and separator and rest):
            raise ValueError(f"{name!r} is not a principal such as User:alice")
    return frozenset(names)
