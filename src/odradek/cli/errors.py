"""How a command fails, and how the client's failures become one line for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(Exception):
    """A mistake in the arguments or in a file they name: one line, exit status 2."""


class CommandError(Exception):
    """What the command was asked to do did not work: one line, exit status 1. `code` is Kafka's name, if it is one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def told() -> Iterator[None]:
    """Turns what the client raises into UsageError and CommandError."""
    from odradek.client.errors import ClientError, ConfigError
    from odradek.records.errors import CorruptRecords
    from odradek.wire.errors import KafkaError

    try:
        yield
    except ConfigError as error:
        raise UsageError(str(error)) from error
    except KafkaError as error:
        raise CommandError(str(error), error.code.name) from error
    except (ClientError, CorruptRecords) as error:
        raise CommandError(str(error) or type(error).__name__, type(error).__name__) from error
