"""Commits to an Iceberg table that fail if another one came since the table was loaded."""

from __future__ import annotations

from typing import Any, Final

_RETRIES: Final = "commit.retry.num-retries"


def exclusive(table: Any) -> Any:
    """A transaction that fails if there is another snapshot since the table was loaded."""
    # only in this copy: the commit sends changes, not this
    table.metadata.properties[_RETRIES] = "0"
    return table.transaction()
