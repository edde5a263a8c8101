"""`odradek COMMAND …`: finds the command's module and runs it.

Exit status 0 means success, 1 that the cluster rejected the request or that it failed, 2 a mistake on the command line
or in a configuration file. A failure is one line on standard error.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.options import Parser
from odradek.cli.arguments.suggestions import suggestion
from odradek.cli.catalog import COMMANDS, Command, load, parser_of
from odradek.cli.terminal.streams import complain, drop_unread, output_without_reader_dropped

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of writing that are the disk's, not the program's."""


def overview() -> str:
    """The text of `odradek --help`: every command with a line about it."""
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:<{width}}  {about}" for name, about in COMMANDS.items())
    return (
        f"usage: odradek COMMAND [OPTIONS]\n\ncommands:\n{lines}\n\n"
        "`odradek COMMAND --help` lists the options of a command and shows examples.\n"
        "`odradek -C|-P|-L|-G …` takes the options of kcat (`odradek -L --help`)."
    )


def joined(words: Sequence[str]) -> list[str]:
    """`--offset -10:end` as `--offset=-10:end`: argparse would take the value for an option."""
    result: list[str] = []
    for word in words:
        negative = word[:1] == "-" and word[1:2].isdecimal()
        if negative and result and result[-1].startswith("--") and "=" not in result[-1]:
            result[-1] += f"={word}"
        else:
            result.append(word)
    return result


def show_error_document(error: CommandError, output: str | None) -> None:
    """Print the error as a document where the output is one, so that a program reads it like a result."""
    from odradek.cli.terminal.output import DOCUMENTS, show_document

    if output in DOCUMENTS:
        message = str(error).removeprefix(f"{error.code}: ")
        show_document({"error": {"code": error.code, "message": message}}, output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As standard error does: help and names have characters that an old locale lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return dispatch(words)
        finally:
            # Here and not at exit: a reader that has gone (`odradek --help | true`) is noticed when output is flushed.
            flush_output()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has gone, which is not an error.
        drop_unread()
        return 0
    except OSError as error:
        if error.errno not in FULL or error.filename is not None:
            raise
        drop_unread()
        complain(f"odradek: cannot write the output: {error.strerror}")
        return 1


def flush_output() -> None:
    """Write what standard output buffers, if it has a reader: the status is that of the command. Raises OSError."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop_unread()


def open_closed_streams() -> None:
    """Connect standard streams that the caller has closed (`>&-`) to the null device; Python has None for them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as the process


def dispatch(words: list[str]) -> int:
    """Run the command that the first word names; the exit status."""
    if words[:1] == ["help"] and len(words) == 2:
        words = [words[1], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else 2
    if words[0] in ("--version", "version"):
        from odradek.version import __version__

        print(f"odradek {__version__}")
        return 0
    if words[0].startswith("-"):
        from odradek.cli.kcat import options as kcat

        return execute("odradek", kcat_parser(), kcat, kcat.separated(words))
    name = words[0]
    if name not in COMMANDS:
        hint = suggestion(name, COMMANDS) or "`odradek --help` lists the commands"
        complain(f"odradek: unknown command {name!r}; {hint}")
        return 2
    command = load(name)
    return execute(f"odradek {name}", parser_of(name, command), command, words[1:])


def kcat_parser() -> Parser:
    """The parser of kcat's options."""
    from odradek.cli.kcat import options as kcat

    parser = Parser(prog="odradek", description="kcat's options for consume, produce and metadata", allow_abbrev=False)
    kcat.configure(parser)
    return parser


def execute(program: str, parser: Parser, command: Command, words: Sequence[str]) -> int:
    """Parse the words and run the command; failures become one line and the exit status.

    A command completes its work when its standard output has no reader, and its status is that of the work, unless its
    module has ENDS_WITH_ITS_READER because it prints for long.
    """
    chosen = argparse.Namespace()
    try:
        parser.parse(joined(words), chosen)
        if getattr(command, "ENDS_WITH_ITS_READER", False):
            return command.run(chosen)
        with output_without_reader_dropped():
            return command.run(chosen)
    except UsageError as error:
        complain(f"{program}: {error}")
        return 2
    except CommandError as error:
        complain(f"{program}: {error}")
        with output_without_reader_dropped():
            show_error_document(error, getattr(chosen, "output", None))
        return 1


if __name__ == "__main__":
    sys.exit(main())
