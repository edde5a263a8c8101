"""Parts are connected by their constructors: no object's hooks are filled in from outside."""

import ast

from tests.unit.house.sources import package_sources


def _assigned(tree: ast.AST) -> list[ast.Attribute]:
    """The attributes that statements assign."""
    targets: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets.append(node.target)
    return [target for target in targets if isinstance(target, ast.Attribute)]


def test_hooks_are_not_assigned_from_outside() -> None:
    """A listener is an argument of a constructor, or of a method that says what it does with it."""
    found = [
        f"{source.name}:{target.lineno} {ast.unparse(target)}"
        for source in package_sources()
        for target in _assigned(source.tree)
        if target.attr.lstrip("_").startswith("on_")
        and not (isinstance(target.value, ast.Name) and target.value.id == "self")
    ]
    assert not found, f"hooks that another object fills in: {found}"


def test_objects_have_no_public_hooks() -> None:
    """Or a test, or a later part, would fill it in."""
    found = [
        f"{source.name}:{target.lineno} {target.attr}"
        for source in package_sources()
        for target in _assigned(source.tree)
        if target.attr.startswith("on_")
    ]
    assert not found, f"public attributes that are hooks: {found}"
