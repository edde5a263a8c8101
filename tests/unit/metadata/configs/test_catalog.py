import subprocess
import sys

import pytest

from odradek.metadata.configs.catalog import (
    BROKER,
    GROUP,
    GROUP_SYNONYMS,
    TOPIC,
    TOPIC_SYNONYMS,
    validate_dynamic_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)
from odradek.metadata.configs.definitions import InvalidConfig, Value
from odradek.metadata.configs.documentation import DOCUMENTATION


def default(name: str) -> Value:
    return BROKER[name].parse_default()


def test_defaults_are_valid() -> None:
    for definition in (*BROKER.values(), *TOPIC.values(), *GROUP.values()):
        value = definition.parse_default()
        assert (value is None) == (definition.default is None), definition.name


def test_kafka_4_3_is_complete() -> None:
    listed = [d for d in BROKER.values() if d.listed and not d.name.startswith("odradek.")]
    assert len(listed) == 340
    assert sum(d.listed for d in TOPIC.values() if not d.name.startswith("odradek.")) == 33
    assert len(GROUP) == 17


def test_synonyms_exist() -> None:
    assert {s.name for synonyms in TOPIC_SYNONYMS.values() for s in synonyms} <= BROKER.keys()
    assert TOPIC_SYNONYMS.keys() <= TOPIC.keys()
    assert set(GROUP_SYNONYMS.values()) <= BROKER.keys()


def test_the_defaults_of_topics_are_those_of_brokers() -> None:
    for name, synonyms in TOPIC_SYNONYMS.items():
        values = [v * s.factor if s.factor > 1 else v for s in synonyms if (v := default(s.name)) is not None]  # type: ignore[operator]
        if values:
            assert values[0] == TOPIC[name].parse_default(), name


# Each message was taken from a broker of Apache Kafka 4.3.0.
@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ({"retention.ms": "-5"}, "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
        ({"retention.ms": ""}, "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        ({"nope": "1"}, "Unknown topic config name: nope"),
        ({"message.format.version": "3.0"}, "Unknown topic config name: message.format.version"),
        (
            {"cleanup.policy": "foo"},
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            {"compression.type": "br"},
            (
                "Invalid value br for configuration compression.type: "
                "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"
            ),
        ),
        (
            {"unclean.leader.election.enable": "maybe"},
            (
                "Invalid value maybe for configuration unclean.leader.election.enable: "
                "Expected value to be either true or false"
            ),
        ),
        (
            {"min.cleanable.dirty.ratio": "2"},
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            {"min.cleanable.dirty.ratio": "abc"},
            "Invalid value abc for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        ({"segment.bytes": "10"}, "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576"),
        (
            {"segment.bytes": "99999999999"},
            "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            {"compression.gzip.level": "0"},
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            {"compression.zstd.level": "99"},
            "Invalid value 99 for configuration compression.zstd.level: Value must be no more than 22",
        ),
        (
            {"leader.replication.throttled.replicas": "foo"},
            (
                "Invalid value [foo] for configuration leader.replication.throttled.replicas: "
                "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
                "format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            ),
        ),
        (
            {"max.message.bytes": "1.5"},
            "Invalid value 1.5 for configuration max.message.bytes: Not a number of type INT",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            (
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            ),
        ),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
    ],
)
def test_topic_configs_are_rejected_as_kafka_does(configs: dict[str, str | None], message: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        validate_topic_configs(configs, default)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": ""},
        {"cleanup.policy": "delete,delete"},
        {"cleanup.policy": "compact, delete"},
        {"retention.ms": " 77 "},
        {"preallocate": "TRUE"},
        {"internal.segment.bytes": "1000"},
        {"leader.replication.throttled.replicas": "*"},
        {"follower.replication.throttled.replicas": "0:1,1:2"},
        {"local.retention.bytes": "50", "retention.bytes": "10"},
        {"compression.gzip.level": "-1"},
    ],
)
def test_topic_configs_are_accepted_as_kafka_does(configs: dict[str, str | None]) -> None:
    assert validate_topic_configs(configs, default) == configs


def test_an_override_that_is_no_longer_known_may_stay() -> None:
    old = {"message.format.version": "3.0"}
    assert validate_topic_configs({**old, "retention.ms": "1"}, default, existing=old)


@pytest.mark.parametrize(
    ("configs", "per_broker", "message"),
    [
        ({"log.dirs": "/x"}, True, "Cannot update these configs dynamically: [log.dirs]"),
        ({"log.retention.hours": "90"}, True, "Cannot update these configs dynamically: [log.retention.hours]"),
        ({"num.io.threads": "0"}, True, "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
        ({"num.io.threads": "x"}, False, "Invalid value x for configuration num.io.threads: Not a number of type INT"),
        (
            {"log.retention.ms": "0"},
            True,
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            {"ssl.keystore.type": "x"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: [ssl.keystore.type]",
        ),
    ],
)
def test_dynamic_broker_configs_are_rejected(configs: dict[str, str], per_broker: bool, message: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        validate_dynamic_broker_configs(configs, per_broker=per_broker)
    assert str(raised.value) == message


def test_dynamic_broker_configs_are_accepted() -> None:
    validate_dynamic_broker_configs({"num.io.threads": "3", "some.plugin": "x"}, per_broker=False)
    validate_dynamic_broker_configs({"listener.name.a.ssl.keystore.location": "x"}, per_broker=True)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"nope": "1"}, "Unknown group config name: nope"),
        (
            {"consumer.session.timeout.ms": "1"},
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"consumer.session.timeout.ms": "9999999"},
            "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        ({"share.auto.offset.reset": "soon"}, "share.auto.offset.reset"),
        ({"share.auto.offset.reset": "by_duration:P"}, "share.auto.offset.reset"),
    ],
)
def test_group_configs_are_rejected(configs: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        validate_group_configs(configs, default)
    assert message in str(raised.value)


def test_group_configs_are_accepted() -> None:
    validate_group_configs(
        {"consumer.session.timeout.ms": "50000", "share.auto.offset.reset": "by_duration:PT1H"}, default
    )
    tight = {"group.consumer.max.heartbeat.interval.ms": 60000}
    with pytest.raises(InvalidConfig, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        validate_group_configs({"consumer.heartbeat.interval.ms": "50000"}, lambda name: tight.get(name, default(name)))


def test_the_definitions_do_not_slow_the_start() -> None:
    """They load nothing that a broker's start would not load anyway."""
    code = (
        "import asyncio, json, re, sys; before = set(sys.modules);"
        "import odradek.metadata.configs.catalog, odradek.broker.configuration.broker_config;"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "javaproperties" not in loaded
    assert "difflib" not in loaded


def test_all_that_is_described_is_documented() -> None:
    described = {d.name for definitions in (BROKER, TOPIC, GROUP) for d in definitions.values() if d.listed}
    assert not described - DOCUMENTATION.keys()
    assert DOCUMENTATION.keys() <= BROKER.keys() | TOPIC.keys() | GROUP.keys()
