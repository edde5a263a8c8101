"""Examples at the end of a command's `--help`."""

from __future__ import annotations

import argparse


def add_examples(parser: argparse.ArgumentParser, examples: str) -> None:
    """Show example command lines, one a line, below the options; a line that begins with `#` explains the next one."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    parser.epilog = f"examples:\n{lines}"
