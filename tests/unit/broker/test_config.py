from pathlib import Path

import pytest

from odradek.broker.config import BrokerConfig, ConfigError, Listener
from odradek.metadata.config_definitions import ConfigSource, SetValue

STOCK = sorted((Path(__file__).parent / "stock").glob("*.properties"))
LONG_MAX = (1 << 63) - 1


@pytest.mark.parametrize("path", STOCK, ids=lambda path: path.stem)
def test_stock_files_are_accepted_whole(path: Path) -> None:
    config = BrokerConfig.load(str(path))
    assert [(listener.name, listener.port) for listener in config.listeners()] == [("PLAINTEXT", 9092)]
    assert config.number("socket.request.max.bytes") == 104857600
    assert config.number("offsets.topic.replication.factor") == 1
    assert config.topic_settings({})["retention.ms"] == 168 * 3600 * 1000
    assert config.log_dirs[0].startswith("/tmp/")
    unused = config.unused_names()
    assert "num.network.threads" in unused
    assert not {"listeners", "log.dirs", "num.partitions", "log.retention.hours", "controller.listener.names"} & set(
        unused
    )


def test_there_are_stock_files() -> None:
    assert len(STOCK) >= 6


def test_node_id() -> None:
    assert BrokerConfig({}).node_id == 1
    assert BrokerConfig({"broker.id": "0"}).node_id == 0
    assert BrokerConfig({"broker.id": "-1"}).node_id == 1
    assert BrokerConfig({"broker.id": "4", "node.id": "4"}).node_id == 4
    assert BrokerConfig({"node.id": "4"}).number("broker.id") == 4
    assert BrokerConfig({"broker.id": "4"}).source("node.id") is ConfigSource.STATIC_BROKER_CONFIG
    with pytest.raises(ConfigError, match="same value"):
        BrokerConfig({"broker.id": "3", "node.id": "4"})
    with pytest.raises(ConfigError, match=r"node\.id"):
        BrokerConfig({"node.id": "-3"})


def test_values_are_typed() -> None:
    config = BrokerConfig({"num.partitions": " 7 ", "log.cleaner.enable": "FALSE", "log.dirs": "/a , /b,/a"})
    assert config.number("num.partitions") == 7
    assert config.flag("log.cleaner.enable") is False
    assert config.words("log.dirs") == ["/a", "/b"]
    assert config.log_dirs == ["/a", "/b"]
    assert config.real("log.cleaner.io.buffer.load.factor") == 0.9
    assert config.text("compression.type") == "producer"
    assert config.text("broker.rack") == ""
    assert config.rack is None
    assert config.number("log.flush.interval.messages") == LONG_MAX
    assert config.optional_number("log.retention.ms") is None
    with pytest.raises(KeyError):
        config.number("no.such.name")
    with pytest.raises(TypeError):
        config.number("log.cleaner.enable")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num.partitons": "3"}, "num.partitons .did you mean num.partitions"),
        ({"nonsense": "3"}, "nonsense"),
        ({"num.partitions": "x"}, "Invalid value x for configuration num.partitions: Not a number of type INT"),
        ({"num.partitions": "0"}, "num.partitions: Value must be at least 1"),
        ({"num.partitions": "99999999999"}, "num.partitions: Not a number of type INT"),
        ({"auto.create.topics.enable": "yes"}, "auto.create.topics.enable: Expected value to be either true or false"),
        ({"compression.type": "brotli"}, "compression.type: String must be one of: uncompressed, zstd"),
        ({"log.retention.hours": "0"}, "log.retention.hours must be unlimited"),
        ({"log.retention.ms": "-2"}, "log.retention.ms must be unlimited"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater"),
        ({"listeners": "PLAINTEXT"}, "listeners: 'PLAINTEXT' is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:70000"}, "listeners"),
        ({"listeners": "PLAINTEXT://::1:1"}, "brackets"),
        ({"listeners": "OUTSIDE://h:1"}, "listener.security.protocol.map says nothing of OUTSIDE"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "different name"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "different port"),
        ({"listeners": " "}, "at least one listener"),
        ({"listeners": "CONTROLLER://h:1", "controller.listener.names": "CONTROLLER"}, "no listener is left"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "nonroutable"),
        ({"advertised.listeners": "SSL://h:9092"}, "SSL is not in listeners"),
        ({"listener.security.protocol.map": "A"}, "listener.security.protocol.map: 'A'"),
        ({"listener.security.protocol.map": "A:TLS"}, "NAME:PROTOCOL"),
        ({"inter.broker.listener.name": "INSIDE"}, "inter.broker.listener.name: INSIDE"),
        ({"control.plane.listener.name": "INSIDE"}, "control.plane.listener.name: INSIDE"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name",
        ),
        ({"listener.name.x": "1"}, "listener.name.NAME.CONFIG"),
        ({"log.dir": ""}, "log.dirs"),
        ({"log.dirs": ","}, "log.dirs: no directory"),
        ({"zookeeper.connect": ":"}, "zookeeper.connect: ':'"),
        ({"zookeeper.connect": "a:2181,b:port/odradek"}, "zookeeper.connect: 'b:port'"),
    ],
)
def test_what_no_broker_can_start_with(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        BrokerConfig(settings)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.properties: No such file"):
        BrokerConfig.load(str(tmp_path / "nothing.properties"))


def test_java_properties_syntax(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(
        b"# comment\n! another\n\nbroker.id 5\nbroker.rack : r\\u00fcck\nlog.dirs=/a,\\\n   /b\nnum.partitions=3 \n"
        b"num.partitions=4\n"
    )
    config = BrokerConfig.load(str(path), {"broker.id": "6"})
    assert config.node_id == 6
    assert config.rack == "rück"
    assert config.log_dirs == ["/a", "/b"]
    assert config.number("num.partitions") == 4
    path.write_bytes("broker.rack=rück".encode("latin-1"))
    assert BrokerConfig.load(str(path)).rack == "rück"
    path.write_bytes(b"broker.rack=\\uXYZ")
    with pytest.raises(ConfigError, match=r"server\.properties"):
        BrokerConfig.load(str(path))


def test_plugins_names_are_passed_on() -> None:
    config = BrokerConfig(
        {"listener.name.outside.ssl.keystore.type": "PEM", "sasl.something.custom": "1", "super.users": "a"}
    )
    assert config.unused_names() == [
        "listener.name.outside.ssl.keystore.type", "sasl.something.custom", "super.users",
    ]  # fmt: skip
    assert config.text("listener.name.outside.ssl.keystore.type") == "PEM"
    with pytest.raises(ConfigError, match=r"max\.connections"):
        BrokerConfig({"listener.name.outside.max.connections": "many"})


def test_listeners() -> None:
    config = BrokerConfig(
        {
            "listeners": "Outside://[::1]:9092, INSIDE://0.0.0.0:9093,CONTROLLER://:9094,EMPTY://:0",
            "listener.security.protocol.map": "OUTSIDE:ssl,INSIDE:PLAINTEXT,EMPTY:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INSIDE",
            "control.plane.listener.name": "EMPTY",
        }
    )
    assert config.listeners() == [
        Listener("OUTSIDE", "::1", 9092, "SSL"),
        Listener("INSIDE", "0.0.0.0", 9093, "PLAINTEXT"),
        Listener("EMPTY", "", 0, "PLAINTEXT"),
    ]
    assert [(listener.name, listener.host) for listener in config.advertised_listeners()] == [
        ("OUTSIDE", "::1"), ("INSIDE", ""), ("EMPTY", ""),
    ]  # fmt: skip
    assert config.inter_broker_listener_name == "INSIDE"
    assert config.control_plane_listener_name == "EMPTY"


def test_listeners_by_default_and_as_in_old_files() -> None:
    assert BrokerConfig({}).listeners() == [Listener("PLAINTEXT", "", 9092, "PLAINTEXT")]
    assert BrokerConfig({}).inter_broker_listener_name == "PLAINTEXT"
    old = BrokerConfig({"host.name": "a", "port": "9", "advertised.host.name": "b", "advertised.port": "10"})
    assert old.listeners() == [Listener("PLAINTEXT", "a", 9, "PLAINTEXT")]
    assert old.advertised_listeners() == [Listener("PLAINTEXT", "b", 10, "PLAINTEXT")]
    two = BrokerConfig(
        {"listeners": "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092", "advertised.listeners": "SSL://s:1"}
    )
    assert len(two.listeners()) == 2
    assert two.advertised_listeners() == [Listener("SSL", "s", 1, "SSL")]


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 604800000),
        ({"log.retention.hours": "1"}, 3600000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(settings: dict[str, str], retention_ms: int) -> None:
    config = BrokerConfig(settings)
    assert config.topic_settings({})["retention.ms"] == retention_ms
    assert config.topic_settings({"retention.ms": "77"})["retention.ms"] == 77


def test_topics_take_their_broker_s_values() -> None:
    config = BrokerConfig(
        {"message.max.bytes": "5", "log.cleanup.policy": "compact,delete", "log.flush.scheduler.interval.ms": "9"}
    )
    settings = config.topic_settings({"min.insync.replicas": "2"})
    assert settings["max.message.bytes"] == 5
    assert settings["cleanup.policy"] == ("compact", "delete")
    assert settings["flush.ms"] == 9
    assert settings["min.insync.replicas"] == 2
    assert settings["segment.ms"] == 604800000


def test_dynamic_settings_come_first_and_tell_who_asked() -> None:
    config = BrokerConfig({"num.io.threads": "2", "log.retention.hours": "1"})
    seen: list[frozenset[str]] = []
    config.on_change(["log.retention.ms", "num.io.threads"], seen.append)
    changed = config.apply_dynamic({"num.io.threads": "3", "log.retention.ms": "5"}, {"num.io.threads": "4"})
    assert changed == {"num.io.threads", "log.retention.ms"}
    assert seen == [changed]
    assert config.number("num.io.threads") == 4
    assert config.source("num.io.threads") is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert [value.text for value in config.set_values("num.io.threads")] == ["4", "3", "2", "8"]
    assert config.topic_settings({})["retention.ms"] == 5
    assert config.set_values("log.retention.ms") == [
        SetValue("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        SetValue("log.retention.hours", "1", ConfigSource.STATIC_BROKER_CONFIG),
        SetValue("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]
    assert config.apply_dynamic({"num.io.threads": "4"}, {}) == {"log.retention.ms"}
    assert config.source("num.io.threads") is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert config.topic_settings({})["retention.ms"] == 3600000
    with pytest.raises(ConfigError, match=r"num\.io\.threads"):
        config.apply_dynamic({}, {"num.io.threads": "none"})
    assert config.number("num.io.threads") == 4


def test_names_nobody_knows_may_be_dynamic() -> None:
    config = BrokerConfig({})
    assert config.apply_dynamic({}, {"some.plugin": "x"}) == frozenset()
    assert "some.plugin" in config.set_names()
