"""docs/COOKBOOK.md and the recipes in examples/cookbook agree; the recipes' own tests are in their files."""

import re

from tests.unit.house.sources import ROOT

PAGE = (ROOT / "docs/COOKBOOK.md").read_text()


def test_cookbook_page_links_each_recipe_once() -> None:
    linked = re.findall(r"\(\.\./examples/cookbook/(\w+\.py)\)", PAGE)
    assert sorted(linked) == sorted(path.name for path in (ROOT / "examples/cookbook").glob("*.py"))
    assert len(linked) == 21


def test_each_recipe_has_a_test() -> None:
    for path in (ROOT / "examples/cookbook").glob("*.py"):
        assert re.search(r"^def test_\w+\(", path.read_text(), re.MULTILINE), path.name
