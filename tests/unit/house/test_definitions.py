"""A concept has one name and one definition."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.unit.house.sources import Source, package_sources

HOMES = {
    "TopicPartition": ["records/topic_partition.py"],
    "PartitionKey": ["records/topic_partition.py"],
    "TopicIdPartition": ["records/topic_partition.py"],
    "RequestedPartition": ["wire/produce.py"],
    "Connection": ["client/network/connection.py"],
    "InboundConnection": ["broker/network/connection.py"],
    "Place": [],
    "Outcome": [],
}
"""The modules that may define the name. Names without a module said too little: each had several meanings."""


def defined(source: Source) -> Iterator[str]:
    """The names of a module's classes and assignments."""
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


@pytest.mark.parametrize("name", HOMES)
def test_concept_is_defined_in_one_module(name: str) -> None:
    assert [source.name for source in package_sources() if name in defined(source)] == HOMES[name]


def test_module_gives_the_tuple_of_a_partition_no_name_of_its_own() -> None:
    """`Key = tuple[str, int]` beside PartitionKey would be a second definition of it."""
    shapes = ("tuple[str, int]", "tuple[bytes, int]")
    found = [
        f"{source.name}:{node.lineno}"
        for source in package_sources()
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        if ast.unparse(node.value) in shapes
    ]
    assert len(found) == 2, found
    assert {each.split(":")[0] for each in found} == {"records/topic_partition.py"}
