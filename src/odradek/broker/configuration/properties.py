"""Properties files: Java's syntax, with the line where each setting is."""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.configuration.config_errors import ConfigError


class FoundSetting(NamedTuple):
    """A setting's text and its line in the file, counted from 1."""

    text: str
    line: int


def parse_properties(data: bytes, path: str) -> dict[str, FoundSetting]:
    """The settings of a file (UTF-8, or ISO 8859-1) by name; of one that stands there twice, the last.

    Raises ConfigError for escapes that cannot be read.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    import javaproperties  # its import takes longer than all the rest of a start without a file

    found: dict[str, FoundSetting] = {}
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                found[element.key] = FoundSetting(element.value, line)
            line += len(element.source.splitlines())
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"{path}:{line}: {error}") from error
    return found
