"""The events of `odradek pipeline run --lineage` from the beginning of a pipeline to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from odradek.cli.arguments.errors import UsageError

if TYPE_CHECKING:
    from odradek.spark.lineage import Lineage


@contextlib.contextmanager
def lineage_of(name: str, shorten: Callable[[str], str], *, is_wanted: bool) -> Iterator[Lineage | None]:
    """Emit the start and the end of a pipeline; None if no events are wanted.

    `shorten` makes a line of Spark's reason for a failure. Raises UsageError.
    """
    if not is_wanted:
        yield None
        return
    from odradek.spark.lineage import Emitter, Lineage, LineageError, open_client

    try:
        client = open_client()
    except LineageError as error:
        raise UsageError(f"--lineage: {error}") from error
    emitter = Emitter(client)
    lineage = Lineage(emitter.emit, name, shorten)
    lineage.begin()
    try:
        yield lineage
    except BaseException as error:
        lineage.end(str(error) or type(error).__name__)
        raise
    else:
        lineage.end(None)
    finally:
        emitter.close()
