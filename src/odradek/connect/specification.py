"""Configurations of connectors in files: properties, JSON or YAML.

| file | content |
|---|---|
| `NAME.properties` | the settings of one connector, as for Kafka's `connect-standalone.sh` |
| `NAME.json` | `{"name": …, "config": {…}}`, as for `POST /connectors`, or the settings of one connector |
| `NAME.yml`, `NAME.yaml` | the same as JSON, or `connectors:` with settings by name |

Beside `connectors:` may stand `runner:`, which says what `odradek pipeline run` runs the file with.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from odradek.ports.installation import install_hint

RUNNERS: Final = ("local", "spark")
"""What a file may name as its `runner`; the first one is the default."""


class SpecificationError(ValueError):
    """A file cannot be read, or describes no connectors; the text names the file."""


def read(
    paths: Sequence[Path], section: str = "connectors", runners: Collection[str] = RUNNERS
) -> dict[str, dict[str, str]]:
    """Configurations by the name of the connector, or of what else the section is of.

    `runners` are those that the command can be. Raises SpecificationError.
    """
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        for name, config in _read(path, section, runners).items():
            if name in found:
                raise SpecificationError(f"{path}: {section.removesuffix('s')} {name} is described twice")
            found[name] = config
    return found


def document_of(path: Path) -> Any:
    """The content of a file. Raises SpecificationError."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecificationError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return _parse(path, text)


def runner_of(path: Path, document: Mapping[str, Any]) -> str:
    """The runner that a file names, or the default. Raises SpecificationError."""
    runner = document.get("runner", RUNNERS[0])
    if runner not in RUNNERS:
        raise SpecificationError(f"{path}: runner={runner}: one of {', '.join(RUNNERS)} expected")
    return str(runner)


def _read(path: Path, section: str, runners: Collection[str]) -> dict[str, dict[str, str]]:
    document = document_of(path)
    if not isinstance(document, Mapping):
        raise SpecificationError(f"{path}: settings of a {section.removesuffix('s')} expected")
    if isinstance(document.get(section), Mapping):
        runner = runner_of(path, document)
        if runner not in runners:
            raise SpecificationError(f"{path}: runner: {runner} needs `odradek pipeline run`")
        return {str(name): _config(path, str(name), given) for name, given in document[section].items()}
    if isinstance(document.get("config"), Mapping):
        name = str(document.get("name", ""))
        config = _config(path, name, document["config"])
    else:
        config = _config(path, path.name, document)
        name = config.get("name", "")
    if not name:
        raise SpecificationError(f"{path}: name is missing")
    return {name: config}


def _parse(path: Path, text: str) -> Any:
    try:
        if path.suffix == ".properties":
            import javaproperties

            return javaproperties.loads(text)
        if path.suffix == ".json":
            return json.loads(text)
    except ValueError as error:
        raise SpecificationError(f"{path}: {error}") from error
    if path.suffix not in (".yml", ".yaml"):
        raise SpecificationError(f"{path}: a file .properties, .json, .yml or .yaml expected")
    try:
        import yaml
    except ImportError as error:
        raise SpecificationError(f"{path}: YAML needs a package: {install_hint('connect')}") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        line = str(error).replace("\n", " ")
        raise SpecificationError(f"{path}: {line}") from error


def _config(path: Path, name: str, given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise SpecificationError(f"{path}: {name}: settings expected")
    config = {}
    for setting, value in given.items():
        if isinstance(value, bool):
            config[str(setting)] = str(value).lower()
        elif isinstance(value, str | int | float):
            config[str(setting)] = str(value)
        elif isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
            config[str(setting)] = ",".join(map(str, value))
        else:
            raise SpecificationError(f"{path}: {name}: {setting}: a text expected")
    return config
