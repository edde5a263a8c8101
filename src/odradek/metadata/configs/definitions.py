"""What a configuration is: its type, default, limits and scope, and how its text is read.

Source: Kafka's `ConfigDef`; messages are those that its clients and tools show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

Value = bool | int | float | str | tuple[str, ...] | None


class ConfigType(IntEnum):
    """The numbers are those of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class SetValue(NamedTuple):
    """One place where a configuration is set, as DescribeConfigs lists it among the synonyms."""

    name: str
    text: str | None
    source: ConfigSource


class Importance(IntEnum):
    """Kafka's importance of a configuration."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2


class Scope(IntEnum):
    """How a running broker takes a new value (KIP-226)."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class InvalidConfig(ValueError):
    """A name or value that Kafka would refuse; the text is for the one who set it."""


class RefusedConfig(InvalidConfig):
    """A valid setting that this version must not ignore and does not implement."""


class Validator(Protocol):
    """The limits of a configuration."""

    def ensure_valid(self, name: str, value: Value) -> None:
        """Raise InvalidConfig unless the parsed value may be given to this name."""
        ...


def _refuse(name: str, value: Value, problem: str) -> InvalidConfig:
    return InvalidConfig(f"Invalid value {_java_text(value)} for configuration {name}: {problem}")


class Range(NamedTuple):
    """Numbers from minimum to maximum, both included; None is no limit."""

    minimum: int | float | None
    maximum: int | float | None = None

    def ensure_valid(self, name: str, value: Value) -> None:
        """Implements Validator."""
        if not isinstance(value, int | float):
            raise _refuse(name, value, "Value must be non-null")
        if self.minimum is not None and value < self.minimum:
            raise _refuse(name, value, f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise _refuse(name, value, f"Value must be no more than {self.maximum}")


class RangeOr(NamedTuple):
    """A range and one value outside of it."""

    minimum: int
    maximum: int
    extra: int

    def ensure_valid(self, name: str, value: Value) -> None:
        """Implements Validator."""
        if value != self.extra and not (isinstance(value, int) and self.minimum <= value <= self.maximum):
            allowed = f"between {self.minimum} and {self.maximum} or equal to {self.extra}"
            raise _refuse(name, value, f"Value must be {allowed}")


class OneOf(NamedTuple):
    """For a list: each of its members."""

    allowed: tuple[str, ...]
    ignore_case: bool = False

    def ensure_valid(self, name: str, value: Value) -> None:
        """Implements Validator."""
        for one in value if isinstance(value, tuple) else (value,):
            if self.ignore_case and isinstance(one, str):
                valid = one.lower() in (a.lower() for a in self.allowed)
            else:
                valid = one in self.allowed
            if not valid:
                how = " (case insensitive)" if self.ignore_case else ""
                raise _refuse(name, one, f"String must be one of{how}: {', '.join(self.allowed)}")


class NonEmpty(NamedTuple):
    """Text of at least one character."""

    def ensure_valid(self, name: str, value: Value) -> None:
        """Implements Validator."""
        if value == "":
            raise _refuse(name, value, "String must be non-empty")


class ThrottledReplicas(NamedTuple):
    """A list of PARTITION:BROKER, or `*` for all replicas (KIP-73)."""

    def ensure_valid(self, name: str, value: Value) -> None:
        """Implements Validator."""
        parts = value if isinstance(value, tuple) else ()
        if parts != ("*",) and not all(re.fullmatch(r"[0-9]+:[0-9]+", part) for part in parts):
            form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            needed = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
            raise _refuse(name, value, needed)


_DURATION = re.compile(r"by_duration:p(?=.)(\d+d)?(t(?=.)(\d+h)?(\d+m)?(\d+(\.\d{1,9})?s)?)?", re.IGNORECASE)


class ShareOffsetReset(NamedTuple):
    """`earliest`, `latest` or `by_duration:` with a duration of ISO 8601 (KIP-932)."""

    def ensure_valid(self, name: str, value: Value) -> None:
        """Implements Validator."""
        text = str(value)
        if text.lower() not in ("latest", "earliest") and not _DURATION.fullmatch(text):
            raise _refuse(name, value, "Value must be one of: latest, earliest, by_duration:PnDTnHnMn.nS")


def at_least(minimum: float) -> Range:
    """A range without a maximum."""
    return Range(minimum)


def between(minimum: float, maximum: float) -> Range:
    """A range with both limits."""
    return Range(minimum, maximum)


def one_of(*allowed: str) -> OneOf:
    """One of these words, case-sensitive."""
    return OneOf(allowed)


class ConfigDefinition(NamedTuple):
    """One configuration. `default` is text as in a properties file; None where Kafka's is null."""

    name: str
    type: ConfigType
    default: str | None
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    scope: Scope = Scope.READ_ONLY
    listed: bool = True
    """Kafka's internal configurations work but are not described."""

    @property
    def is_sensitive(self) -> bool:
        """Whether its values are secrets."""
        return self.type is ConfigType.PASSWORD

    def parse_default(self) -> Value:
        """The default in its own type."""
        return self.parse(self.default)

    def parse(self, text: str | None) -> Value:
        """The typed value of a text. Raises InvalidConfig with Kafka's message."""
        value = None if text is None else _parse(self, text)
        # A null default stands for "not set" and is what no validator sees.
        if self.validator is not None and not (value is None and self.default is None):
            self.validator.ensure_valid(self.name, value)
        return value


_INTEGER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?|[+-]?(NaN|Infinity)")
_BITS = {ConfigType.INT: 31, ConfigType.SHORT: 15, ConfigType.LONG: 63}


def _parse(definition: ConfigDefinition, text: str) -> Value:
    kind = definition.type
    trimmed = text.strip()
    bits = _BITS.get(kind)
    if bits is not None:
        if _INTEGER.fullmatch(trimmed):
            number = int(trimmed)
            if -(1 << bits) <= number < (1 << bits):
                return number
        raise InvalidConfig(_not_a_number(definition, text))
    if kind is ConfigType.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise InvalidConfig(
                f"Invalid value {text} for configuration {definition.name}: Expected value to be either true or false"
            )
        return lowered == "true"
    if kind is ConfigType.DOUBLE:
        if not _REAL.fullmatch(trimmed):
            raise InvalidConfig(_not_a_number(definition, text))
        return float(trimmed.rstrip("dDfF") if "N" not in trimmed and "I" not in trimmed else trimmed)
    if kind is ConfigType.LIST:
        return split_list(trimmed)
    return trimmed


def _not_a_number(definition: ConfigDefinition, text: str) -> str:
    kind = ConfigType(definition.type).name
    return f"Invalid value {text} for configuration {definition.name}: Not a number of type {kind}"


def split_list(text: str) -> tuple[str, ...]:
    """Kafka's list syntax: commas with space around them; the second of two equal members goes."""
    trimmed = text.strip()
    return tuple(dict.fromkeys(part.strip() for part in trimmed.split(","))) if trimmed else ()


def _java_text(value: Value) -> str:
    """A value as Java prints it, for messages that are Kafka's to the letter."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return str(value)


def plain_text(value: Value) -> str | None:
    """A value as a properties file would hold it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def by_name(definitions: Sequence[ConfigDefinition]) -> dict[str, ConfigDefinition]:
    """The definitions by their names, each of which must be unique."""
    found = {definition.name: definition for definition in definitions}
    assert len(found) == len(definitions), "a configuration is defined twice"
    return found
