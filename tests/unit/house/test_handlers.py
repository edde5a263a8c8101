"""Handlers take the few capabilities of the broker that they need, and their signatures say which."""

import ast

from tests.unit.house.sources import Source, package_sources

CAPABILITIES_MAX = 12
"""Those of Fetch, which serves consumers and followers, at once or in slices."""


def _handler_modules() -> list[Source]:
    return [
        source
        for source in package_sources()
        if source.name.startswith(("api/api_", "api/authorization/", "api/data/"))
    ]


def test_contexts_name_what_is_taken_of_the_broker() -> None:
    """`RequestContext[Any]` would let a handler reach everything, unseen by the type checker."""
    modules = _handler_modules()
    assert len(modules) > 50
    found = [
        f"{source.name}:{node.lineno}"
        for source in modules
        for node in ast.walk(source.tree)
        if isinstance(node, ast.arg)
        and node.annotation is not None
        and "RequestContext" in ast.unparse(node.annotation)
        and ("[" not in ast.unparse(node.annotation) or "[Any]" in ast.unparse(node.annotation))
    ]
    assert not found, f"contexts that do not say what their handler takes: {found}"


def test_no_handler_takes_all_services() -> None:
    """Only Envelope does, which passes them to the handler of the request inside."""
    found = [
        source.name
        for source in _handler_modules()
        if not source.name.endswith("api_58_envelope.py")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "Services" for alias in node.names)
    ]
    assert not found, f"handlers that take all services: {found}"


def test_handlers_take_few_capabilities() -> None:
    wide = {
        f"{source.name}:{node.lineno}": len(node.bases)
        for source in _handler_modules()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and node.name == "Uses" and len(node.bases) - 1 > CAPABILITIES_MAX
    }
    assert not wide, f"handlers that take more than {CAPABILITIES_MAX} capabilities: {wide}"


def test_every_capability_is_taken_by_a_handler() -> None:
    sources = {source.name: source for source in package_sources()}
    capabilities = sources.pop("api/requests/capabilities.py")
    named = {node.name for node in capabilities.tree.body if isinstance(node, ast.ClassDef)}
    taken = {node.id for source in sources.values() for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    assert not named - taken, f"capabilities that no handler takes: {sorted(named - taken)}"
