"""The way of a Python developer: every program of docs/CLIENT.md, by itself, prints what the guide shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.newcomer.environments import Newcomer
from tests.newcomer.pages import Page, Program

PAGE = Page("docs/CLIENT.md")
ADDRESS = "127.0.0.1:9092"
PROGRAMS = PAGE.programs()


@pytest.fixture(scope="module")
def bootstrap(fresh_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker as the reader has one: with default settings, and none of the guide's topics."""
    person = Newcomer(fresh_programs, tmp_path_factory.mktemp("broker"))
    with person.serving("odradek serve --listen 127.0.0.1:0") as address:
        yield address


def test_every_program_of_the_guide_shows_its_output() -> None:
    assert len(PROGRAMS) == PAGE.text.count("```python\n") >= 10
    assert not [each.section for each in PROGRAMS if each.shown is None]


@pytest.mark.parametrize("program", [pytest.param(each, id=each.section) for each in PROGRAMS])
def test_program_of_the_guide_prints_what_it_shows(program: Program, bootstrap: str, newcomer: Newcomer) -> None:
    assert ADDRESS in program.code
    assert newcomer.program(program.code.replace(ADDRESS, bootstrap)) == program.shown
