"""`odradek COMMAND …`: finds the command's module and runs it.

Exit status 0 for success, 1 when the cluster refused or something failed, 2 for a mistake on the command line or in a
configuration file; failures are one line on standard error.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from odradek.cli.errors import CommandError, UsageError
from odradek.cli.options import Parser

__all__ = ["COMMANDS", "Command", "CommandError", "UsageError", "load", "main"]

COMMANDS = {
    "serve": "run a broker",
    "topics": "list, create, describe, alter and delete topics",
    "produce": "send records read from standard input",
    "consume": "print the records of topics",
    "groups": "list, describe and delete consumer groups, reset their offsets",
    "configs": "describe and alter configurations of topics, brokers and groups",
    "demo": "the main job on real flights: producer, broker, Spark query, consumer group, every total verified",
    "pipeline": "run a Spark pipeline: Java found, no jars, checkpoints kept, a line of progress for every batch",
    "dlq": "list dead letters and send them again to where they came from",
    "offsets": "print the first, last or any offsets of topics by time",
    "delete-records": "delete the oldest records of partitions",
    "cluster": "tell the cluster's id, brokers, state; balance it, restart it broker by broker",
    "plan": "tell how many disks and brokers a workload takes",
    "dump-log": "print what is in the files of a log, in the form of Apache's tool",
    "verify": "check the files of a stopped broker and say what can be saved",
    "completion": "print a shell completion script",
}
"""Command -> what it does. `odradek.cli.COMMAND` has `configure(parser)` and `run(arguments) -> exit status`."""


class Command(Protocol):
    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


def load(name: str) -> Command:
    module: Command = importlib.import_module(f"odradek.cli.{name.replace('-', '_')}")
    return module


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:<{width}}  {about}" for name, about in COMMANDS.items())
    return (
        f"usage: odradek COMMAND [OPTIONS]\n\ncommands:\n{lines}\n\n`odradek COMMAND --help` tells a command's options."
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


def tell_programs(error: CommandError, output: str | None) -> None:
    """Who asked for a document gets one, also when all failed."""
    from odradek.cli.output import DOCUMENTS, show_document

    if output in DOCUMENTS:
        message = str(error).removeprefix(f"{error.code}: ")
        show_document({"error": {"code": error.code, "message": message}}, output)


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else 2
    if words[0] in ("--version", "version"):
        from odradek.version import __version__

        print(f"odradek {__version__}")
        return 0
    name = words[0]
    if name not in COMMANDS:
        print(f"odradek: unknown command {name!r}; `odradek --help` lists the commands", file=sys.stderr)
        return 2
    command = load(name)
    parser = Parser(prog=f"odradek {name}", description=COMMANDS[name], allow_abbrev=False)
    command.configure(parser)
    chosen = argparse.Namespace()
    try:
        parser.parse_args(joined(words[1:]), chosen)
        return command.run(chosen)
    except UsageError as error:
        print(f"odradek {name}: {error}", file=sys.stderr)
        return 2
    except CommandError as error:
        print(f"odradek {name}: {error}", file=sys.stderr)
        tell_programs(error, getattr(chosen, "output", None))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: that is its right. Nothing is left for exit to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
