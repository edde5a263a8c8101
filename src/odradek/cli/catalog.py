"""The commands: their names, their modules, their parsers."""

from __future__ import annotations

import argparse
import importlib
import keyword
from typing import Protocol

from odradek.cli.arguments.options import Parser

COMMANDS = {
    "serve": "run a broker",
    "topics": "list, create, describe, alter and delete topics",
    "produce": "send records read from standard input",
    "consume": "print the records of topics",
    "groups": "list, describe and delete consumer groups, reset their offsets",
    "configs": "describe and alter configurations of topics, brokers and groups",
    "acls": "list, add, remove and explain ACLs: who may do what",
    "roles": "list roles, add and remove their members",
    "demo": "run producer, broker, Spark query and consumer group on real flights and verify every total",
    "pipeline": "run a Spark pipeline with its checkpoints and a line of progress for every batch",
    "connect": "run connectors between topics and databases, files, HTTP services and other clusters",
    "tables": "write topics into Delta and Iceberg tables continuously, every record once",
    "dlq": "list dead letters and send them back to their topics",
    "offsets": "print the first or last offsets of topics, or those of a time",
    "delete-records": "delete the oldest records of partitions",
    "elect": "elect leaders of partitions: the preferred ones, or any where no replica in sync is left",
    "reassign": "move partitions to other brokers: generate a plan, execute, verify, cancel, list",
    "log-dirs": "show sizes and lag in log directories, move replicas between them",
    "transactions": "list, describe and abort transactions, find hanging ones",
    "users": "create, alter, delete and list SCRAM users, also of a broker that does not run",
    "tokens": "describe, create, renew and expire delegation tokens",
    "features": "show and change the levels of the cluster's features",
    "perf-test": "measure producers, consumers and end-to-end latency",
    "cluster": "show the cluster's id, brokers, state and health; balance it; restart its brokers one by one",
    "console": "look into topics, records and groups in a browser",
    "top": "show brokers, topics and groups by rate and lag, live",
    "proxy": "record what clients and a cluster say to each other, and send the requests again",
    "debug": "collect versions, configuration, metadata, metrics and logs in an archive, without secrets",
    "plan": "estimate the disks and brokers that a workload needs",
    "dump-log": "print the contents of log files in the form of Apache's tool",
    "metadata-shell": "show the cluster that a metadata log or a snapshot of KRaft describes",
    "storage": "format the directories of a KRaft node, show how they are formatted, print a cluster id",
    "metadata-quorum": "show the quorum of controllers that keeps the cluster's metadata: its state, its replicas",
    "migrate": "check what stands in the way of moving a running Apache Kafka, broker by broker",
    "import": "take over the data folders of a stopped Apache Kafka",
    "verify": "check the files of a stopped broker and report what can be recovered",
    "profile": "keep named connections: servers, TLS and SASL fields",
    "completion": "print a shell completion script",
}
"""Command -> what it does. `odradek.cli.commands.COMMAND` has `configure` and `run`, which returns the exit status."""


class Command(Protocol):
    """A module of `odradek.cli.commands`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Execute the command; the exit code. Raises UsageError."""
        ...


def load(name: str) -> Command:
    """Import the module of a command."""
    # A command may be called as a word of Python's is; its module cannot.
    module_name = name.replace("-", "_") + "_" * keyword.iskeyword(name)
    module: Command = importlib.import_module(f"odradek.cli.commands.{module_name}")
    return module


def parser_of(name: str, command: Command) -> Parser:
    """The parser of a command's options."""
    parser = Parser(prog=f"odradek {name}", description=COMMANDS[name], allow_abbrev=False)
    command.configure(parser)
    return parser
