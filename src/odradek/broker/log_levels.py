"""Levels of this process's loggers, read and changed as Kafka's BROKER_LOGGER resource (KIP-412). Nothing is stored.

Names are Python's; Kafka's `root` is everything of ours. FATAL and TRACE, which Python lacks, are levels 50 and 5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from odradek.controller.configs import ConfigChange, OperationType
from odradek.metadata.configs.definitions import ConfigSource
from odradek.metadata.configs.described import UNKNOWN_TYPE, Described
from odradek.wire.errors import ErrorCode, KafkaError

ROOT = "root"
"""Kafka's name of the logger above all."""
_OURS = "odradek"
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
"""Kafka's names of levels, with Python's numbers."""


class BrokerLoggers:
    """The loggers of broker `node_id`."""

    __slots__ = ("_node_id",)

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    def describe(self, broker: str, keys: Iterable[str] | None = None) -> list[Described]:
        """All that exist, or those of the names. Raises KafkaError INVALID_REQUEST for another broker."""
        self._check_broker(broker)
        chosen = None if keys is None else set(keys)
        source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
        return [
            Described(name, level_name(found), False, source, False, [], UNKNOWN_TYPE, None)
            for name, found in sorted(existing_loggers().items())
            if chosen is None or name in chosen
        ]

    def alter(self, broker: str, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> None:
        """Set levels, or give up what was set, all or none. Raises KafkaError."""
        self._check_broker(broker)
        loggers = existing_loggers()
        if len({change.name for change in changes}) < len(changes):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        for change in changes:
            _check(change, loggers)
        if validate_only:
            return
        for change in changes:
            found = loggers[change.name]
            if change.operation == OperationType.SET:
                found.setLevel(LEVELS[(change.value or "").upper()])
            else:
                found.setLevel(logging.NOTSET)

    def _check_broker(self, broker: str) -> None:
        if not broker:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        if not broker.isascii() or not broker.isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {broker}")
        if int(broker) != self._node_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {self._node_id} but received {broker}"
            )


def existing_loggers() -> dict[str, logging.Logger]:
    """The loggers of this process by Kafka's names."""
    made = {name: found for name, found in logging.root.manager.loggerDict.items() if isinstance(found, logging.Logger)}
    return {**made, ROOT: logging.getLogger(_OURS)}


def _check(change: ConfigChange, loggers: dict[str, logging.Logger]) -> None:
    name, operation, value = change
    if name not in loggers:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == OperationType.SET:
        if (value or "").upper() not in LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(LEVELS)}",
            )
    elif operation == OperationType.DELETE:
        if name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
    else:
        word = OperationType(operation).name if operation in OperationType.__members__.values() else str(operation)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{word} operation is not allowed for the BROKER_LOGGER resource")


def level_name(found: logging.Logger) -> str:
    """Kafka's name of the level that a logger has, its own or that of one above it."""
    level = found.getEffectiveLevel()
    # A level between two of Kafka's shows what it lets through.
    return next((name for name, number in LEVELS.items() if number >= level), "FATAL")
