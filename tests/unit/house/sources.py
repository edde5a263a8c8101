"""The parsed sources of the package, shared by the tests of its style."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src" / "odradek"


class Source(NamedTuple):
    path: Path
    name: str  # relative to src/odradek, with slashes
    text: str
    tree: ast.Module


@cache
def package_sources() -> tuple[Source, ...]:
    """Every module of the package but the generated codecs."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith("wire/messages/"):
            text = path.read_text()
            found.append(Source(path, name, text, ast.parse(text, str(path))))
    assert found
    return tuple(found)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
