"""The programs of docs/TESTING.md run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.newcomer.pages import Page
from tests.unit.house.sources import ROOT

pytest_plugins = ["pytester"]

PROGRAMS = re.findall(r"```python\n(.*?)```", Page("docs/TESTING.md").text, re.DOTALL)


def program(text: str) -> str:
    found = [each for each in PROGRAMS if text in each]
    assert len(found) == 1, text
    return str(found[0])


def test_program_with_asyncio_runs(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(program("async with Cluster(3)"))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"2 records at 127\.0\.0\.1:\d+\n", done.stdout)


@pytest.mark.parametrize("text", ["def test_orders_are_written(", "class Orders(KafkaTestCase)"])
def test_tests_of_the_page_pass(text: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(program(text))
    options = ("-p", "no:odradek", "-p", "odradek.testing.plugin", "-p", "no:cacheprovider", "-p", "no:randomly")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)


def test_application_of_the_page_is_that_of_the_example() -> None:
    example = " ".join((ROOT / "examples/testing/test_shipping.py").read_text().split())
    for line in (
        "warehouse.ship(order.value.decode())",
        'await sim.faults(30, ["kill program", "kill", "reset", "cut"])',
    ):
        assert line in example
        assert line in Page("docs/TESTING.md").text
