"""Settings of connectors: declared once, read with their defaults, and described for the REST interface.

Types and importances have the names of Kafka's ConfigDef.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from odradek.connect.errors import ConfigInvalid


class Type(StrEnum):
    """Type of a setting's value."""

    STRING = "STRING"
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a type
    INT = "INT"
    LONG = "LONG"
    BOOLEAN = "BOOLEAN"
    LIST = "LIST"
    CLASS = "CLASS"


class Importance(StrEnum):
    """How much a user should care."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


REQUIRED: Final = object()
"""The default of a setting that must be given."""


class Setting(NamedTuple):
    """One setting: name, type, default (`REQUIRED`, or a value of its type), meaning, and what is accepted."""

    name: str
    type: Type
    default: Any
    documentation: str
    importance: Importance = Importance.MEDIUM
    choices: Sequence[str] = ()
    minimum: int | None = None
    group: str = "Common"

    @property
    def is_required(self) -> bool:
        """Whether a configuration without it is an error."""
        return self.default is REQUIRED

    def parse(self, text: str) -> Any:
        """The value of the setting. Raises ValueError with the accepted values."""
        value = _PARSERS[self.type](text.strip())
        if self.choices and value not in self.choices:
            raise ValueError(f"one of {', '.join(self.choices)} expected")
        if self.minimum is not None and value < self.minimum:
            raise ValueError(f"at least {self.minimum} expected")
        return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false expected")
    return text.lower() == "true"


def _number(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("a whole number expected") from None
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(f"a number of {bits} bits expected")
        return value

    return parse


def _list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


_PARSERS: Final[Mapping[Type, Callable[[str], Any]]] = {
    Type.STRING: str,
    Type.PASSWORD: str,
    Type.CLASS: str,
    Type.INT: _number(32),
    Type.LONG: _number(64),
    Type.BOOLEAN: _boolean,
    Type.LIST: _list,
}


class Checked(NamedTuple):
    """A configuration as read: values by name, and lines about what is wrong by name."""

    values: dict[str, Any]
    errors: dict[str, list[str]]

    def valid(self) -> dict[str, Any]:
        """The values. Raises ConfigInvalid."""
        if self.errors:
            raise ConfigInvalid(self.errors)
        return self.values


def check(
    settings: Sequence[Setting],
    config: Mapping[str, str],
    prefixes: Sequence[str] = (),
    *,
    of: str = "this connector",
) -> Checked:
    """Read a configuration `of` something; names that begin with one of the prefixes are passed through unread.

    An unknown name is an error that names the nearest one: a misspelt limit would silently have no effect.
    """
    values: dict[str, Any] = {}
    errors: dict[str, list[str]] = {}
    for each in settings:
        text = config.get(each.name)
        if text is None:
            if each.is_required:
                errors[each.name] = [f"{each.name} is missing: {each.documentation}"]
            else:
                values[each.name] = each.default
            continue
        try:
            values[each.name] = each.parse(text)
        except ValueError as error:
            shown = "[hidden]" if each.type is Type.PASSWORD else text
            errors[each.name] = [f"{each.name}={shown}: {error}"]
    known = [each.name for each in settings]
    for name in config:
        if name in known or name.startswith(tuple(prefixes)):
            continue
        near = difflib.get_close_matches(name, known, 1)
        errors[name] = [f"{name} is not a setting of {of}" + (f"; did you mean {near[0]}?" if near else "")]
    return Checked(values, errors)


def described(settings: Sequence[Setting]) -> Iterator[str]:
    """A line for each setting: name, meaning, accepted values, default."""
    for each in settings:
        default = "required" if each.is_required else f"default: {_shown(each.default)}"
        choices = f" ({', '.join(each.choices)})" if each.choices else ""
        yield f"{each.name}: {each.documentation}{choices} [{default}]"


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list):
        return ",".join(default) or "none"
    return str(default) if default != "" else "none"
