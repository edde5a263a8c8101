"""Public classes and functions have docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.unit.house.sources import package_sources


def needs_docstring(node: ast.AST) -> bool:
    """Overloads and setters have that of the function or property to which they belong."""
    decorators = [ast.unparse(each) for each in getattr(node, "decorator_list", ())]
    return not any(each == "overload" or each.endswith(".setter") for each in decorators)


def public(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The public classes and functions of a module, and the public methods of its public classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if needs_docstring(node):
                yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body)


def test_public_names_have_docstrings() -> None:
    names = [(source.name, node) for source in package_sources() for node in public(source.tree.body)]
    assert len(names) > 3_000
    undocumented = [f"{name}:{node.lineno} {node.name}" for name, node in names if ast.get_docstring(node) is None]
    assert not undocumented, "\n".join(undocumented)
