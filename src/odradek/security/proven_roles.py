"""Roles that a proof of identity gives: from a certificate's subject or a token's claim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST_ROLES: Final = 100
"""Roles of one client: each decision looks at all of them."""
_MOST_CHARACTERS: Final = 249
_ROLE: Final = "Role:"


def roles_named(names: Iterable[str]) -> tuple[str, ...]:
    """The principals (`Role:NAME`) of the names that may be roles, each once, the first `MOST_ROLES` of them.

    A name that is empty, too long, a wildcard, or has characters that are not printable gives no role.
    """
    found: dict[str, None] = {}
    for name in names:
        role = name.strip()
        if role and role != "*" and len(role) <= _MOST_CHARACTERS and role.isprintable():
            found[_ROLE + role] = None
    return tuple(found)[:MOST_ROLES]
