"""The client reference is that of the code, and every public name of the client is documented."""

import ast
from collections.abc import Iterator

import odradek.client
from odradek.client.reference import FILE, REGENERATE, reference
from tests.unit.house.sources import ROOT, package_sources


def test_reference_is_up_to_date() -> None:
    assert (ROOT / FILE).read_text() == reference(), f"out of date; run: {REGENERATE}"


def test_reference_has_every_name_of_the_package() -> None:
    headings = {line[5:-1] for line in reference().splitlines() if line.startswith("### `")}
    assert not set(odradek.client.__all__) - headings - {"ErrorCode"}


def undocumented(node: ast.Module | ast.ClassDef, place: str) -> Iterator[str]:
    for each in node.body:
        if not isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or each.name.startswith("_"):
            continue
        if ast.get_docstring(each) is None:
            yield f"{place}.{each.name}"
        if isinstance(each, ast.ClassDef):
            yield from undocumented(each, f"{place}.{each.name}")


def test_every_public_class_and_function_has_a_docstring() -> None:
    sources = [each for each in package_sources() if each.name.startswith("client/")]
    assert len(sources) > 30
    assert not [name for each in sources for name in undocumented(each.tree, each.name)]
