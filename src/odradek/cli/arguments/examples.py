"""Examples at the end of a command's `--help`, which docs/CLI_REFERENCE.md shows as well; tests parse all of them."""

from __future__ import annotations

import argparse
from typing import Final

_HEADING: Final = "examples:\n"


def add_examples(parser: argparse.ArgumentParser, examples: str) -> None:
    """Show example command lines, one a line, below the options; a line that begins with `#` explains the next one."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    before = f"{parser.epilog.rstrip()}\n\n" if parser.epilog else ""
    parser.epilog = f"{before}{_HEADING}{lines}"


def examples_of(parser: argparse.ArgumentParser) -> list[str]:
    """The lines that `add_examples` has added, with their explanations."""
    _, _, lines = (parser.epilog or "").partition(_HEADING)
    return [line.removeprefix("  ") for line in lines.splitlines()]
