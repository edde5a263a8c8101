"""Names of functions of the product that coverage marks wrap and planted bugs replace: `module:Class.attribute`."""

from __future__ import annotations

import importlib
from typing import Any


def locate(target: str) -> tuple[Any, str]:
    """Return the object that has the target, and the attribute's name. Raises ImportError or AttributeError."""
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, attribute = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, attribute
