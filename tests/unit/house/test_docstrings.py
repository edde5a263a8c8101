"""Public classes and functions have docstrings."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.unit.house.sources import package_sources

PERCENT = {"replication": 84}
"""The share that a package must reach where it is not 100 %. These numbers may only rise."""


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
    names: Counter[str] = Counter()
    undocumented: dict[str, list[str]] = {}
    for source in package_sources():
        package = source.name.split("/")[0]
        for node in public(source.tree.body):
            names[package] += 1
            if ast.get_docstring(node) is None:
                undocumented.setdefault(package, []).append(f"{source.name}:{node.lineno} {node.name}")
    assert set(names) >= set(PERCENT)
    for package, found in undocumented.items():
        share = 100 - 100 * len(found) / names[package]
        assert share >= PERCENT.get(package, 100), f"{package} {share:.1f} %:\n" + "\n".join(found)
