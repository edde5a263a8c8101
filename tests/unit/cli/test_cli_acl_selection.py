"""Options of `odradek acls`: which ACLs they mean."""

from __future__ import annotations

import argparse

import pytest

from odradek.cli.arguments.acl_selection import bindings_of, filters_of, operation, resource
from odradek.cli.arguments.errors import UsageError
from odradek.cli.catalog import load, parser_of
from odradek.cli.main import main
from odradek.wire.acls import AclBinding, AclFilter, AclOperation, AclPermissionType, PatternType, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def parsed(words: str) -> argparse.Namespace:
    return parser_of("acls", load("acls")).parse(words.split())


def added(words: str) -> list[AclBinding]:
    return bindings_of(parsed(f"add {words}"))


def test_operation_is_all_unless_it_is_named() -> None:
    (found,) = added("--allow-principal User:alice --topic t")
    assert found == AclBinding(TOPIC, "t", "User:alice", AclOperation.ALL)


def test_every_principal_host_resource_and_operation_is_combined() -> None:
    found = added(
        "--allow-principal User:a --allow-principal User:b --allow-host 10.0.0.1 --deny-principal User:c "
        "--topic t --group g --operation Read --operation DescribeConfigs --resource-pattern-type prefixed"
    )
    assert len(found) == 3 * 2 * 2
    assert {each.pattern_type for each in found} == {PatternType.PREFIXED}
    denied = [each for each in found if each.permission is AclPermissionType.DENY]
    assert {(each.principal, each.host) for each in denied} == {("User:c", "*")}


def test_producer_gets_what_kafka_acls_gives() -> None:
    found = added("--allow-principal User:a --producer --idempotent --topic t --transactional-id x")
    assert {(each.resource_type.name, each.operation.name) for each in found} == {
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
    }


def test_consumer_gets_what_kafka_acls_gives() -> None:
    found = added("--allow-principal User:a --consumer --topic t --group g")
    assert {(each.resource_type, each.operation) for each in found} == {
        (TOPIC, AclOperation.READ),
        (TOPIC, AclOperation.DESCRIBE),
        (GROUP, AclOperation.READ),
    }


def test_filter_without_resources_matches_all() -> None:
    assert filters_of(parsed("list")) == [AclFilter()]


def test_filter_matches_the_named_pattern_only() -> None:
    (found,) = filters_of(parsed("list --topic t"))
    assert found == AclFilter(TOPIC, "t", pattern_type=PatternType.LITERAL)


def test_operation_and_resource_are_read_in_several_spellings() -> None:
    assert operation("DescribeConfigs") == operation("describe_configs") == AclOperation.DESCRIBE_CONFIGS
    assert resource("topic:a:b") == (TOPIC, "a:b")
    assert resource("cluster") == (ResourceType.CLUSTER, "kafka-cluster")
    assert resource("transactional-id:x") == (ResourceType.TRANSACTIONAL_ID, "x")


@pytest.mark.parametrize(
    "words",
    [
        "--topic t",
        "--allow-principal User:a",
        "--allow-principal alice --topic t",
        "--allow-principal User:a --topic t --operation reed",
        "--allow-principal User:a --producer",
        "--allow-principal User:a --consumer --topic t",
        "--deny-principal User:a --producer --topic t",
        "--allow-principal User:a --producer --topic t --operation read",
        "--allow-principal User:a --topic t --idempotent",
        "--deny-principal User:a --topic t --allow-host 10.0.0.1",
        "--allow-principal User:a --topic t --resource-pattern-type match",
    ],
)
def test_incomplete_or_contradicting_options_are_rejected(words: str) -> None:
    with pytest.raises(UsageError):
        added(words)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("remove --topic orders --principal User:alice --yes", "--principal goes with list only"),
        ("add --topic orders --allow-principal User:alice --principal User:bob", "--principal goes with list only"),
        ("remove --topic orders --operation read --yes", "--operation needs --allow-principal or --deny-principal"),
        ("remove --topic orders --producer --yes", "--producer needs --allow-principal or --deny-principal"),
        ("remove --topic orders --deny-host 10.0.0.1", "--deny-host needs --allow-principal or --deny-principal"),
        ("list --topic orders --operation read", "--operation goes with add or remove only"),
        ("list --host 10.0.0.1", "--host goes with explain only"),
    ],
)
def test_option_that_would_select_nothing_is_rejected(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of them removed all ACLs of the topic."""
    assert main(["acls", *line.split(), "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert message in capsys.readouterr().err
