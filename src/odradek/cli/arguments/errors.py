"""Failures of commands, and how exceptions of the client become one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(Exception):
    """A mistake in the arguments or in a file that they name: one line, exit status 2."""


class CommandError(Exception):
    """The command failed: one line, exit status 1. `code` is the name of Kafka's error, if it is one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def client_session(command: str | None = None) -> Iterator[None]:
    """Turn the client's exceptions into UsageError and CommandError.

    The client's warnings are printed for a `command` that runs for long; else they only precede the error.
    """
    with client_log(command), client_errors():
        yield


@contextmanager
def client_log(command: str | None) -> Iterator[None]:
    """Print the client's warnings as lines of the command, or drop them without one."""
    import logging
    import sys

    from odradek.broker.log_output import LineFormatter

    logger = logging.getLogger("odradek.client")
    handler = logging.NullHandler() if command is None else logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(f"odradek {command}: %(message)s"))
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    # The logger's level, not the handler's: `odradek connect` lets users change it.
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])


@contextmanager
def client_errors() -> Iterator[None]:
    """Turn the client's exceptions into UsageError and CommandError."""
    from odradek.client.errors import ClientError, ConfigError
    from odradek.records.errors import CorruptRecords
    from odradek.wire.errors import KafkaError
    from odradek.wire.primitives import EncodeError

    try:
        yield
    except ConfigError as error:
        raise UsageError(str(error)) from error
    except EncodeError as error:
        raise UsageError(f"a value does not fit into Kafka's protocol: {error}") from error
    except KafkaError as error:
        raise CommandError(str(error), error.code.name) from error
    except (ClientError, CorruptRecords) as error:
        raise CommandError(str(error) or type(error).__name__, type(error).__name__) from error
