"""Secrets in configurations: `${file:PATH:KEY}` and `${directory:PATH:FILE}`, as Kafka's config providers write them.

Configurations are stored and shown with the placeholders; only tasks see what they stand for. Files are those below
the folder that the worker was started with (`--secrets`), so that a configuration cannot read others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from odradek.ports.config_providers import resolve_references

_PLACEHOLDER: Final = re.compile(r"\$\{(?:file|directory):")
_PREFIX: Final = "config.providers"
_CLASSES: Final = {"file": "FileConfigProvider", "directory": "DirectoryConfigProvider"}


def resolve(config: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    """The configuration with secrets in place of placeholders. Raises ValueError, which names no secret."""
    given = {name: text for name, text in config.items() if not name.startswith(_PREFIX)}
    if folder is None:
        for name, text in given.items():
            if _PLACEHOLDER.search(text):
                raise ValueError(f"{name}: placeholders need --secrets DIR")
        return given
    providers = {_PREFIX: ",".join(_CLASSES)}
    for name, kind in _CLASSES.items():
        providers[f"{_PREFIX}.{name}.class"] = kind
        providers[f"{_PREFIX}.{name}.param.allowed.paths"] = str(folder)
    found = resolve_references({**given, **providers}, lambda path: Path(path).read_bytes())
    return {name: text.rstrip("\r\n") for name, text in found.settings.items()}
