"""Pages of the documentation, and the commands, programs and tables that are in them."""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

from tests.unit.house.sources import ROOT

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Program(NamedTuple):
    """A fenced example and what the page says that it prints, if the page says so."""

    section: str
    code: str
    shown: str | None


class Page:
    """A Markdown page. Commands are in indented blocks; a line between two blocks ends a block."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Its path in the repository."""
        self.text = (ROOT / name).read_text()

    def sections(self) -> dict[str, str]:
        """Heading -> text up to the next heading; what comes before the first section has the name of the page."""
        hidden = FENCED.sub(lambda match: re.sub(r"^#", " #", match[0], flags=re.MULTILINE), self.text)
        parts = re.split(r"^#+ (.+)$", hidden, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def blocks(self, section: str | None = None) -> list[str]:
        """The indented blocks of a section, or of the page."""
        text = self.text if section is None else self.sections()[section]
        prose = FENCED.sub("", text)
        found = re.findall(r"^(?:    .*\n(?:\n(?=    ))?)+", prose, re.MULTILINE)
        return [textwrap.dedent(block) for block in found]

    def commands(self, section: str | None = None) -> list[str]:
        """The commands of these blocks, one a line; lines that end in a backslash or a pipe are joined to the next."""
        text = "".join(self.blocks(section))
        joined = re.sub(r"\\\n *|(?<=\|)\n *", " ", text)
        return [line for line in joined.splitlines() if line and not line.startswith("#")]

    def programs(self) -> list[Program]:
        """The Python programs of the page, each with the text block that follows at once."""
        example = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
        return [
            Program(section, match[1], match[2])
            for section, text in self.sections().items()
            for match in example.finditer(text)
        ]

    def rows(self, section: str) -> list[list[str]]:
        """The cells of the tables of a section, without headings."""
        lines = [line for line in self.sections()[section].splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]
        headings = {index - 1 for index, row in enumerate(rows) if set(row[0]) <= {"-"} and row[0]}
        return [row for index, row in enumerate(rows) if index not in headings and index - 1 not in headings]
