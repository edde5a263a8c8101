"""`odradek metadata-shell`: the cluster as a metadata log of KRaft has it, as a tree to list and to read.

The tree is that of Apache's `kafka-metadata-shell`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from odradek.broker.storage.stored_files import CorruptMetadata, Tree, tree_of_directory, tree_of_snapshot
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.terminal.output import printable
from odradek.ports.disk import SystemDisk

EXAMPLES: Final = """
# list everything in the metadata log of a node of Apache Kafka
odradek metadata-shell --directory /var/lib/kafka find
# print the brokers with their registrations
odradek metadata-shell --directory /var/lib/kafka tree /image/cluster/brokers
# print a partition out of a snapshot
odradek metadata-shell --snapshot 00000000000000000106-0000000003.checkpoint cat /image/topics/byName/orders/0
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--directory", "-d", metavar="DIR", help="a log directory of a node, or __cluster_metadata-0 in it"
    )
    source.add_argument("--snapshot", "-s", metavar="FILE", help="a snapshot, OFFSET-EPOCH.checkpoint")
    parser.add_argument(
        "command",
        choices=("cat", "find", "ls", "tree"),
        help="cat: print a leaf; find: list a node and all below it; ls: list the children; tree: print all below",
    )
    parser.add_argument("path", nargs="?", default="/", metavar="PATH", help="a node such as /image/topics; default /")
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Print what the command asks for. Raises UsageError for a path that does not fit, CommandError."""
    source = arguments.directory or arguments.snapshot
    read = tree_of_directory if arguments.directory else tree_of_snapshot
    try:
        tree = read(SystemDisk(), source)
    except OSError as error:
        raise UsageError(f"{error.filename or source}: {error.strerror or error}") from error
    except CorruptMetadata as error:
        raise CommandError(f"{source}: {error}") from error
    path = "/" + arguments.path.strip("/")
    node = _node(tree, path)
    if arguments.command == "cat":
        if not isinstance(node, str):
            raise UsageError(f"{path} has children: use ls, find or tree")
        print(printable(node))
    elif arguments.command == "find":
        for line in _paths(node, path):
            print(printable(line))
    elif isinstance(node, str):
        raise UsageError(f"{path} is a leaf: use cat")
    elif arguments.command == "ls":
        for name in node:
            print(printable(name))
    else:
        for line in _lines(node, ""):
            print(printable(line))
    return 0


def _node(tree: Tree, path: str) -> Tree | str:
    node: Tree | str = tree
    remaining = path.strip("/")
    while remaining:
        # The name of a client's quota or a resource may have a slash: the longest child that fits is meant.
        fitting = [] if isinstance(node, str) else [n for n in node if f"{remaining}/".startswith(f"{n}/")]
        if not fitting or isinstance(node, str):
            raise UsageError(f"there is no node {path}")
        name = max(fitting, key=len)
        node, remaining = node[name], remaining[len(name) + 1 :]
    return node


def _paths(node: Tree | str, path: str) -> Iterator[str]:
    yield path
    if not isinstance(node, str):
        for name, child in node.items():
            yield from _paths(child, f"{path.rstrip('/')}/{name}")


def _lines(node: Tree, indent: str) -> Iterator[str]:
    for name, child in node.items():
        if isinstance(child, str):
            yield f"{indent}{name}: {child}"
        else:
            yield f"{indent}{name}:"
            yield from _lines(child, indent + "  ")
