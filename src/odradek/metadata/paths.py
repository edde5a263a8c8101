"""Paths of nodes in a metadata store."""

from __future__ import annotations

from odradek.ports.store import StoreError


def checked(path: str) -> str:
    """The path, if it is absolute, without empty parts and without a slash at its end. Raises StoreError."""
    if not path.startswith("/") or (path != "/" and (path.endswith("/") or "//" in path)):
        raise StoreError(f"{path!r} is not a path of a node")
    return path


def parent_of(path: str) -> str:
    """The path of the node above."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """The last part of the path."""
    return path.rpartition("/")[2]


def is_at_or_below(path: str, top: str) -> bool:
    """Whether the path is `top` or lies below it."""
    return top == "/" or path == top or path.startswith(top + "/")
