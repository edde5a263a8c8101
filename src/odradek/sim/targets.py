"""Names of functions of the product that checkers and coverage marks wrap and planted bugs replace.

A target is `module:Class.attribute`.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def locate(target: str) -> tuple[Any, str]:
    """Return the object that has the target, and the attribute's name. Raises ImportError or AttributeError."""
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, attribute = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, attribute


@contextlib.contextmanager
def replaced(makes: Iterable[tuple[str, Callable[[Any], Any]]]) -> Iterator[None]:
    """Put what `make` returns for the right one in the place of each (target, make), until the end of the context."""
    with contextlib.ExitStack() as undo:
        for target, make in makes:
            owner, attribute = locate(target)
            right = owner.__dict__[attribute]
            setattr(owner, attribute, make(right))
            undo.callback(setattr, owner, attribute, right)
        yield
