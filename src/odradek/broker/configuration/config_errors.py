"""Problems of a configuration and their places: one line for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class ConfigError(ValueError):
    """A configuration that no broker can start with; the text names the setting."""


class Problem(NamedTuple):
    """A setting that cannot be used, and why."""

    name: str
    text: str


def config_error(problems: Sequence[Problem], origins: Mapping[str, str]) -> ConfigError:
    """The error that shows all problems; `origins` say where a setting was found, as FILE:LINE, in their order."""
    order = {name: index for index, name in enumerate(origins)}
    ordered = sorted(problems, key=lambda each: order.get(each.name, len(order)))
    lines = [f"{origins[each.name]}: {each.text}" if each.name in origins else each.text for each in ordered]
    if len(lines) == 1:
        return ConfigError(lines[0])
    return ConfigError("\n  ".join((f"{len(lines)} settings cannot be used:", *lines)))
