"""Nodes of ACLs: Kafka's paths and JSON, and names that are no parts of paths."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metadata.acl_nodes import AclNode
from odradek.metadata.nodes import CorruptNode
from odradek.ports.store import checked
from odradek.wire.acls import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    pattern_of,
)

BINDINGS = st.builds(
    AclBinding,
    st.sampled_from([each for each in ResourceType if each > ResourceType.ANY]),
    st.text(min_size=1, max_size=8),
    st.text(max_size=8).map(lambda name: f"User:{name}"),
    st.sampled_from([each for each in AclOperation if each > AclOperation.ANY]),
    st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY]),
    st.sampled_from(["*", "10.0.0.1", "2001:db8::/32"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)


def test_node_of_kafka_is_read() -> None:
    data = (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"DescribeConfigs",'
        b'"host":"*"},{"principal":"User:bob","permissionType":"Deny","operation":"All","host":"10.0.0.1"}]}'
    )
    pattern, bindings = AclNode.decode("/kafka-acl/TransactionalId/my tx", data)
    assert pattern == ResourcePattern(ResourceType.TRANSACTIONAL_ID, "my tx")
    assert {(each.principal, each.operation, each.permission, each.host) for each in bindings} == {
        ("User:alice", AclOperation.DESCRIBE_CONFIGS, AclPermissionType.ALLOW, "*"),
        ("User:bob", AclOperation.ALL, AclPermissionType.DENY, "10.0.0.1"),
    }


def test_patterns_lie_where_kafka_keeps_them() -> None:
    assert AclNode.path(ResourcePattern(ResourceType.TOPIC, "*")) == "/kafka-acl/Topic/*"
    prefixed = ResourcePattern(ResourceType.GROUP, "web-", PatternType.PREFIXED)
    assert AclNode.path(prefixed) == "/kafka-acl-extended/prefixed/Group/web-"


def test_name_with_a_slash_is_one_part_of_the_path() -> None:
    path = AclNode.path(ResourcePattern(ResourceType.GROUP, "a/b"))
    assert path == "/kafka-acl/Group/a%2Fb"


@given(BINDINGS)
def test_node_gives_back_what_was_written(binding: AclBinding) -> None:
    pattern = pattern_of(binding)
    path = checked(AclNode.path(pattern))
    assert AclNode.is_path(path)
    assert AclNode.decode(path, AclNode.encode(pattern, [binding])) == (pattern, frozenset((binding,)))


@given(BINDINGS, BINDINGS)
def test_different_patterns_have_different_paths(one: AclBinding, other: AclBinding) -> None:
    same = pattern_of(one) == pattern_of(other)
    assert (AclNode.path(pattern_of(one)) == AclNode.path(pattern_of(other))) is same


@pytest.mark.parametrize("content", [b"", b"{}", b'{"acls":[{"principal":"User:a"}]}', b"[]", b"\xff"])
def test_unreadable_node_is_an_error(content: bytes) -> None:
    with pytest.raises(CorruptNode):
        AclNode.decode("/kafka-acl/Topic/t", content)


def test_node_of_an_unknown_operation_is_an_error() -> None:
    acl = {"principal": "User:a", "permissionType": "Deny", "operation": "Fly", "host": "*"}
    with pytest.raises(CorruptNode):
        AclNode.decode("/kafka-acl/Topic/t", json.dumps({"version": 1, "acls": [acl]}).encode())
