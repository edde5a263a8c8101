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


WIRING = ("broker/assembly.py", "broker/lifecycle.py", "broker/opening.py", "broker/observability/assembly.py")
"""Modules that make the parts of a broker and connect them."""
WORLDS = ("sim/", "testing/")
"""Their objects are faults to be injected: a test or a nemesis sets them."""
MESSAGES = {"self._answer"}
"""Messages that a handler fills, not parts."""


def _plainly_assigned(tree: ast.AST) -> list[ast.Attribute]:
    """As `_assigned`, without counts."""
    counted = [node.target for node in ast.walk(tree) if isinstance(node, ast.AugAssign)]
    return [target for target in _assigned(tree) if target not in counted]


def test_parts_are_complete_when_constructed() -> None:
    """The modules that connect parts pass them to constructors and assign no attribute of them."""
    sources = [source for source in package_sources() if source.name in WIRING]
    assert len(sources) == len(WIRING)
    found = [
        f"{source.name}:{target.lineno} {ast.unparse(target)}"
        for source in sources
        for target in _assigned(source.tree)
        if ast.unparse(target.value) != "self"
    ]
    assert not found, f"assigned after the construction: {found}"


def test_no_object_assigns_attributes_of_its_parts() -> None:
    """A part changes by its methods, which say what happens. Counts are excepted: hot paths add to them."""
    found = [
        f"{source.name}:{target.lineno} {ast.unparse(target)}"
        for source in package_sources()
        if not source.name.startswith(WORLDS)
        for target in _plainly_assigned(source.tree)
        if isinstance(target.value, ast.Attribute)
        and ast.unparse(target.value).startswith("self.")
        and ast.unparse(target.value) not in MESSAGES
    ]
    assert not found, f"attributes of a part that another object assigns: {found}"


def test_objects_have_no_public_hooks() -> None:
    """Or a test, or a later part, would fill it in."""
    found = [
        f"{source.name}:{target.lineno} {target.attr}"
        for source in package_sources()
        for target in _assigned(source.tree)
        if target.attr.startswith("on_")
    ]
    assert not found, f"public attributes that are hooks: {found}"
