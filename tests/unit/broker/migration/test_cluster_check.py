"""What `odradek migrate check` finds in a cluster of Apache Kafka."""

from __future__ import annotations

import pytest

from odradek.broker.migration.cluster_check import Finding, findings

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "c1:9093",
    "listeners": "PLAINTEXT://:9092",
    "log.dirs": "/kafka",
}
LEVELS = {"metadata.version": 30, "group.version": 1, "transaction.version": 2, "eligible.leader.replicas.version": 1}


def obstacles(**settings: str | None) -> list[str]:
    found = findings(LEVELS, {1: {**BROKER, **{name.replace("_", "."): value for name, value in settings.items()}}}, {})
    return [each.text for each in found if each.severity == "obstacle"]


def test_stock_broker_of_a_kraft_cluster_has_no_obstacle() -> None:
    assert findings(LEVELS, {1: BROKER, 2: BROKER}, {"t": {"retention.ms": "5"}}) == []


def test_feature_that_odradek_lacks_names_the_command_that_takes_it_back() -> None:
    found = findings({**LEVELS, "share.version": 1}, {1: BROKER}, {})
    text = "share.version is finalized at level 1: `odradek features disable --feature share.version` takes it back"
    assert found == [Finding("obstacle", "cluster", text)]


def test_broker_that_is_a_controller_too_is_an_obstacle() -> None:
    (text,) = obstacles(process_roles="broker,controller")
    assert "move the controllers to processes of their own" in text


def test_broker_without_roles_is_not_of_a_kraft_cluster() -> None:
    (text,) = obstacles(process_roles=None)
    assert "odradek import" in text


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("alter_config_policy_class_name", "com.example.Policy", "this version loads no policy classes"),
        ("remote_log_storage_system_enable", "true", "no tiered storage"),
    ],
)
def test_setting_that_odradek_cannot_follow_is_an_obstacle(name: str, value: str | None, expected: str) -> None:
    (text,) = obstacles(**{name: value})
    assert expected in text


def test_hidden_secret_of_delegation_tokens_is_no_obstacle() -> None:
    assert obstacles(delegation_token_secret_key=None) == []


def test_hidden_passwords_are_no_obstacle() -> None:
    found = obstacles(
        listeners="SSL://:9092",
        inter_broker_listener_name="SSL",
        ssl_keystore_location="/keys",
        ssl_keystore_password=None,
    )
    assert found == []


def test_setting_of_a_topic_that_brokers_ignore_is_a_note() -> None:
    (found,) = findings(LEVELS, {1: BROKER}, {"old": {"segment.bytes": "100000", "retention.ms": "5"}})
    assert (found.severity, found.subject) == ("note", "topic old")
    assert found.text.startswith("ignored: Invalid value 100000 for configuration segment.bytes")


def test_topic_in_tiered_storage_is_an_obstacle() -> None:
    (found,) = findings(LEVELS, {1: BROKER}, {"old": {"remote.storage.enable": "true"}})
    assert (found.severity, found.subject) == ("obstacle", "topic old")


def test_settings_without_effect_are_notes_after_the_obstacles() -> None:
    settings = {**BROKER, "num.io.threads": "8"}
    found = findings({"share.version": 1}, {1: settings}, {})
    assert [each.severity for each in found] == ["obstacle", "note"]
    assert "num.io.threads" in found[1].text
