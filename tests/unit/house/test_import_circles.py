"""No module imports itself by way of others, be it only for types."""

from __future__ import annotations

import ast
import graphlib

from tests.unit.house.sources import package_sources


def module_name(name: str) -> str:
    parts = ["odradek", *name.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, modules: set[str]) -> set[str]:
    """The modules of the package that a file imports, at any place in it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                submodule = f"{node.module}.{each.name}"
                found.add(submodule if submodule in modules else node.module)
    return found & modules


def import_graph() -> dict[str, set[str]]:
    trees = {module_name(source.name): source.tree for source in package_sources()}
    return {name: imported(tree, set(trees)) for name, tree in trees.items()}


def test_modules_do_not_import_each_other_in_circles() -> None:
    graph = import_graph()
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise AssertionError("imports in a circle: " + " <- ".join(error.args[1])) from None
