"""Every Python program in docs/CLIENT.md runs against a real broker and prints what the guide shows."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.broker import BrokerProcess

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "CLIENT.md"
ADDRESS = "127.0.0.1:9092"
PROGRAM = re.compile(
    r"^## (?P<title>[^\n]+)$|^```python\n(?P<code>.*?)^```\n\n```text\n(?P<shown>.*?)^```$", re.MULTILINE | re.DOTALL
)


def programs() -> list[tuple[str, str, str]]:
    found, title = [], ""
    for match in PROGRAM.finditer(GUIDE.read_text()):
        title = match["title"] or title
        if match["code"]:
            found.append((title, match["code"], match["shown"]))
    return found


@pytest.fixture(scope="module")
def guides_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker as the reader has one: with default settings, and none of the guide's topics."""
    with BrokerProcess(tmp_path_factory.mktemp("guide") / "data", {}) as broker:
        yield broker


def test_every_program_of_the_guide_shows_its_output() -> None:
    assert len(programs()) == GUIDE.read_text().count("```python\n") >= 10


@pytest.mark.parametrize(("title", "code", "shown"), [pytest.param(*each, id=each[0]) for each in programs()])
def test_program_of_the_guide_prints_what_it_shows(
    title: str, code: str, shown: str, guides_broker: BrokerProcess
) -> None:
    assert ADDRESS in code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace(ADDRESS, guides_broker.bootstrap), f"{GUIDE}: {title}", "exec"), {})
    assert printed.getvalue() == shown
