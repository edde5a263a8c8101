"""`odradek COMMAND …`: finds the command's module and runs it.

Exit status 0 means success, 1 that the cluster rejected the request or that it failed, 2 a mistake on the command line
or in a configuration file. A failure is one line on standard error.
"""

from __future__ import annotations

import argparse
import importlib
import keyword
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from odradek.cli.errors import CommandError, UsageError
from odradek.cli.options import Parser
from odradek.cli.suggestions import suggestion

__all__ = ["COMMANDS", "Command", "CommandError", "UsageError", "load", "main"]

COMMANDS = {
    "serve": "run a broker",
    "topics": "list, create, describe, alter and delete topics",
    "produce": "send records read from standard input",
    "consume": "print the records of topics",
    "groups": "list, describe and delete consumer groups, reset their offsets",
    "configs": "describe and alter configurations of topics, brokers and groups",
    "demo": "run producer, broker, Spark query and consumer group on real flights and verify every total",
    "pipeline": "run a Spark pipeline with its checkpoints and a line of progress for every batch",
    "dlq": "list dead letters and send them back to their topics",
    "offsets": "print the first or last offsets of topics, or those of a time",
    "delete-records": "delete the oldest records of partitions",
    "elect": "elect leaders of partitions: the preferred ones, or any where no replica in sync is left",
    "reassign": "move partitions to other brokers: generate a plan, execute, verify, cancel, list",
    "log-dirs": "show sizes and lag in log directories, move replicas between them",
    "transactions": "list, describe and abort transactions, find hanging ones",
    "features": "show and change the levels of the cluster's features",
    "perf-test": "measure producers, consumers and end-to-end latency",
    "cluster": "show the cluster's id, brokers and state; balance it; restart its brokers one by one",
    "plan": "estimate the disks and brokers that a workload needs",
    "dump-log": "print the contents of log files in the form of Apache's tool",
    "import": "take over the data folders of a stopped Apache Kafka",
    "verify": "check the files of a stopped broker and report what can be recovered",
    "profile": "keep named connections: servers, TLS and SASL fields",
    "completion": "print a shell completion script",
}
"""Command -> what it does. `odradek.cli.COMMAND` has `configure(parser)` and `run(arguments) -> exit status`."""


class Command(Protocol):
    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


def load(name: str) -> Command:
    # A command may be called as a word of Python's is; its module cannot.
    module_name = name.replace("-", "_") + "_" * keyword.iskeyword(name)
    module: Command = importlib.import_module(f"odradek.cli.{module_name}")
    return module


def overview() -> str:
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
    from odradek.cli.output import DOCUMENTS, show_document

    if output in DOCUMENTS:
        message = str(error).removeprefix(f"{error.code}: ")
        show_document({"error": {"code": error.code, "message": message}}, output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return dispatch(words)
        finally:
            # Here and not at exit: a reader that has gone (`odradek --help | true`) is noticed when output is flushed.
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has gone, which is not an error. Exit must find nothing left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


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
        from odradek.cli import kcat

        return execute("odradek", kcat_parser(), kcat, kcat.separated(words))
    name = words[0]
    if name not in COMMANDS:
        hint = suggestion(name, COMMANDS) or "`odradek --help` lists the commands"
        print(f"odradek: unknown command {name!r}; {hint}", file=sys.stderr)
        return 2
    command = load(name)
    return execute(f"odradek {name}", parser_of(name, command), command, words[1:])


def parser_of(name: str, command: Command) -> Parser:
    """The parser of a command's options."""
    parser = Parser(prog=f"odradek {name}", description=COMMANDS[name], allow_abbrev=False)
    command.configure(parser)
    return parser


def kcat_parser() -> Parser:
    """The parser of kcat's options."""
    from odradek.cli import kcat

    parser = Parser(prog="odradek", description="kcat's options for consume, produce and metadata", allow_abbrev=False)
    kcat.configure(parser)
    return parser


def execute(program: str, parser: Parser, command: Command, words: Sequence[str]) -> int:
    """Parse the words and run the command; failures become one line and the exit status."""
    chosen = argparse.Namespace()
    try:
        parser.parse(joined(words), chosen)
        return command.run(chosen)
    except UsageError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    except CommandError as error:
        print(f"{program}: {error}", file=sys.stderr)
        show_error_document(error, getattr(chosen, "output", None))
        return 1


if __name__ == "__main__":
    sys.exit(main())
