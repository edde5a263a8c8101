import re
from pathlib import Path

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig, Listener
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.configuration.quorum_addresses import (
    controller_listener,
    controller_listeners,
    quorum_servers,
    voter_addresses,
)
from odradek.kraft.metadata_observer import Server
from odradek.metadata.configs.catalog import BROKER
from odradek.metadata.configs.definitions import ConfigSource, SetValue

STOCK = {path.stem: path for path in sorted((Path(__file__).parent / "stock").glob("*.properties"))}
NOT_ALONE = "kraft-broker-3.9"
LONG_MAX = (1 << 63) - 1


@pytest.mark.parametrize("name", sorted(STOCK.keys() - {NOT_ALONE}))
def test_stock_files_are_accepted(name: str) -> None:
    config = BrokerConfig.load(str(STOCK[name]))
    assert [(listener.name, listener.port) for listener in config.listeners()] == [("PLAINTEXT", 9092)]
    assert config.number("socket.request.max.bytes") == 104857600
    assert config.number("offsets.topic.replication.factor") == 1
    assert config.topic_settings({})["retention.ms"] == 168 * 3600 * 1000
    assert config.log_dirs[0].startswith("/tmp/")
    assert ["num.io.threads", "num.network.threads"] in config.without_effect().values()


def test_stock_file_of_a_broker_beside_controllers_joins_their_quorum() -> None:
    config = BrokerConfig.load(str(STOCK[NOT_ALONE]))
    assert config.joins_quorum
    assert quorum_servers(config) == [Server("localhost", 9093)]
    assert controller_listener(config) == ("CONTROLLER", "PLAINTEXT")


JOINING = {
    "process.roles": "broker",
    "node.id": "3",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "c1:9093,[::1]:9094",
}


def test_controllers_are_reached_by_bootstrap_servers_before_voters() -> None:
    config = BrokerConfig({**JOINING, "controller.quorum.voters": "100@c9:9093"})
    assert quorum_servers(config) == [Server("c1", 9093), Server("::1", 9094)]


@pytest.mark.parametrize("name", ["controller.quorum.bootstrap.servers", "controller.listener.names", "node.id"])
def test_broker_of_a_quorum_needs_its_id_and_its_controllers(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not set"):
        BrokerConfig({key: value for key, value in JOINING.items() if key != name})


def test_session_of_a_quorum_in_which_no_broker_could_lead_is_rejected() -> None:
    settings = {**JOINING, "broker.session.timeout.ms": "1200"}
    with pytest.raises(ConfigError, match=r"broker\.session\.timeout\.ms=1200 is refused: it must exceed"):
        BrokerConfig(settings)
    assert BrokerConfig({**settings, "controller.quorum.fetch.timeout.ms": "1000"}).joins_quorum


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("odradek.metadata.store", "sqlite"),
        ("odradek.audit.topic.enable", "true"),
    ],
)
def test_what_a_broker_of_a_quorum_lacks_is_rejected(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is refused: with process.roles=broker"):
        BrokerConfig({**JOINING, name: value})


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"security.inter.broker.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism.inter.broker.protocol=GSSAPI"),
        (
            {"listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"},
            "sasl.mechanism.controller.protocol=GSSAPI",
        ),
    ],
)
def test_mechanisms_that_brokers_cannot_log_in_with_are_rejected(settings: dict[str, str], refused: str) -> None:
    with pytest.raises(ConfigError, match=rf"{refused} is refused: .*PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        BrokerConfig({**JOINING, **settings})


def test_listener_of_the_controllers_may_have_sasl_settings_of_its_own() -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="p";'
    BrokerConfig(
        {
            **JOINING,
            "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": login,
        }
    )


def test_quorum_servers_without_a_port_are_rejected() -> None:
    config = BrokerConfig({**JOINING, "controller.quorum.bootstrap.servers": "c1"})
    with pytest.raises(ConfigError, match=r"controller\.quorum\.bootstrap\.servers: 'c1' is not HOST:PORT"):
        quorum_servers(config)


def test_settings_of_a_broker_of_a_quorum_have_no_effect_elsewhere() -> None:
    config = BrokerConfig({"broker.heartbeat.interval.ms": "1000"})
    purpose = "nodes of a KRaft cluster, with process.roles=broker or controller"
    assert config.without_effect() == {purpose: ["broker.heartbeat.interval.ms"]}
    assert BrokerConfig({**JOINING, "broker.heartbeat.interval.ms": "1000"}).without_effect() == {}


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"controller.quorum.voters": "1@a:1,2@b:1,3@c:1"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "controller.quorum.voters"),
        ({"controller.quorum.bootstrap.servers": "c1:9093"}, "controller.quorum.bootstrap.servers"),
        ({"controller.quorum.bootstrap.servers": "c1"}, "controller.quorum.bootstrap.servers"),
        ({"controller.quorum.bootstrap.servers": "localhost:1,localhost:2"}, "controller.quorum.bootstrap.servers"),
        ({"metadata.log.dir": "/b", "log.dirs": "/a,/b"}, "metadata.log.dir"),
        ({"odradek.self.fence.margin.ms": "1001"}, "odradek.self.fence.margin.ms"),
        ({"odradek.leadership.lease.ms": "300"}, "odradek.self.fence.margin.ms"),
        ({"listeners": "SSL://h:1"}, "listeners: SSL"),
        ({"ssl.client.auth": "required"}, "ssl.client.auth"),
        ({"listener.name.ssl.ssl.client.auth": "required"}, "listener.name.ssl.ssl.client.auth"),
        (
            {"listeners": "SSL://h:1", "ssl.keystore.location": "k", "listener.name.other.ssl.protocol": "TLSv1.2"},
            "listener.name.other.ssl.protocol",
        ),
        ({"connections.max.reauth.ms": "1000"}, "connections.max.reauth.ms"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "sasl.enabled.mechanisms"),
        ({"listeners": "SASL_PLAINTEXT://h:1", "sasl.jaas.config": "x"}, "sasl.jaas.config"),
        (
            {"listeners": "SASL_PLAINTEXT://h:1", "listener.name.other.plain.sasl.jaas.config": "x"},
            "listener.name.other.plain.sasl.jaas.config",
        ),
        (
            {
                "listeners": "PLAINTEXT://h:1,CONTROLLER://h:2",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
            },
            "listeners: CONTROLLER",
        ),
    ],
)
def test_other_controllers_metadata_and_protocols_are_rejected(settings: dict[str, str], refused: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{refused}.* is refused: "):
        BrokerConfig(settings)


CONTROLLING = {
    "process.roles": "controller",
    "node.id": "100",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://c1:9093",
    "controller.quorum.voters": "100@c1:9093,101@c2:9093",
}


def test_controller_has_its_own_listeners_and_voters() -> None:
    config = BrokerConfig(CONTROLLING)
    assert config.listeners() == []
    assert [each.name for each in controller_listeners(config)] == ["CONTROLLER"]
    assert voter_addresses(config) == {100: Server("c1", 9093), 101: Server("c2", 9093)}


def test_settings_of_a_controller_have_no_effect_on_brokers() -> None:
    name = "controller.quorum.election.timeout.ms"
    purpose = "controllers of a KRaft cluster, with process.roles=controller"
    assert BrokerConfig({name: "100"}).without_effect() == {purpose: [name]}
    assert BrokerConfig({**CONTROLLING, name: "100"}).without_effect() == {}


@pytest.mark.parametrize(
    ("name", "missing"), [("node.id", "node.id"), ("controller.quorum.voters", "controller.quorum.bootstrap.servers")]
)
def test_controller_needs_its_id_and_the_voters(name: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing} is not set"):
        BrokerConfig({each: value for each, value in CONTROLLING.items() if each != name})


@pytest.mark.parametrize(
    ("servers", "is_formatted", "is_combined"),
    [
        ("localhost:9093", False, False),
        ("localhost:9093", True, True),
        ("c1:9093", False, True),
        ("localhost:9093,c2:9093", False, True),
    ],
)
def test_node_of_both_roles_keeps_records_if_formatted_or_with_others(
    servers: str, is_formatted: bool, is_combined: bool
) -> None:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": servers,
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    }
    assert BrokerConfig(settings, is_formatted=is_formatted).joins_quorum is is_combined
    with_sole_voter = {**settings, "controller.quorum.voters": "1@localhost:9093"}
    if servers == "localhost:9093":
        assert not BrokerConfig(with_sole_voter, is_formatted=True).joins_quorum


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"node.id": "7"}, "controller.quorum.voters is refused: node.id=7 is not among them"),
        ({"listeners": "CONTROLLER://c1:9093,PLAINTEXT://c1:9092"}, "listeners: PLAINTEXT is refused"),
        ({"zookeeper.connect": "z:2181"}, "zookeeper.connect is refused"),
        ({"listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT"}, "sasl.mechanism.controller.protocol=GSSAPI"),
    ],
)
def test_what_a_controller_lacks_is_rejected(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        BrokerConfig({**CONTROLLING, **settings})


@pytest.mark.parametrize("voters", ["100", "100@c1", "100@c1:1,x@c1:1", "100@c1:1,100@c2:1"])
def test_voters_that_cannot_be_read_are_rejected(voters: str) -> None:
    with pytest.raises(ConfigError, match=r"controller\.quorum\.voters"):
        voter_addresses(BrokerConfig({**CONTROLLING, "controller.quorum.voters": voters}))


@pytest.mark.parametrize(
    "settings",
    [
        {"process.roles": "broker,controller", "controller.quorum.voters": "1@anywhere:9093"},
        {"process.roles": "controller,broker", "node.id": "7", "controller.quorum.voters": "7@a:9093"},
        {
            "listeners": "PLAINTEXT://kafka.example:9092,CONTROLLER://kafka.example:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "kafka.example:9093",
        },
        {"metadata.log.dir": "/a", "log.dirs": "/a,/b"},
        {"remote.log.storage.system.enable": "false", "security.inter.broker.protocol": "PLAINTEXT"},
    ],
)
def test_settings_that_name_this_node_alone_are_accepted(settings: dict[str, str]) -> None:
    BrokerConfig(settings)


def test_all_problems_are_shown_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "# a comment\nnum.partitons=3\n\nlog.dirs=/a,\\\n  /b\n"
        "remote.log.storage.system.enable=true\nnum.io.threads=no\nzookeeper.ssl.crl.enable=true\n"
    )
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.load(str(path), {"nonsense": "1"})
    lines = str(raised.value).splitlines()
    assert lines[0] == "5 settings cannot be used:"
    assert [line.strip().partition(": ")[0] for line in lines[1:]] == [
        *(f"{path}:{line}" for line in (2, 6, 7, 8)),
        "command line",
    ]
    assert lines[1].endswith(": unknown configuration num.partitons (did you mean num.partitions?)")
    assert "remote.log.storage.system.enable=true is refused: " in lines[2]
    assert lines[3].endswith(": Invalid value no for configuration num.io.threads: Not a number of type INT")
    assert lines[4].endswith(": zookeeper.ssl.crl.enable=true is refused: revoked certificates are not looked up")
    assert lines[5].endswith(": unknown configuration nonsense")


def test_secrets_are_not_shown_in_problems() -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig({"ssl.keystore.password": "hunter2", "sasl.jaas.config": "hunter2", "nonsense": "hunter2"})
    assert "hunter2" not in str(raised.value)


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
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol: SSL is not among the listeners"),
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


def test_plugins_settings_are_accepted_without_effect() -> None:
    config = BrokerConfig({"cruise.control.metrics.topic": "m", "confluent.license": "x"})
    assert list(config.without_effect().values()) == [["confluent.license", "cruise.control.metrics.topic"]]


def test_value_of_a_listeners_setting_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"max\.connections"):
        BrokerConfig({"listener.name.outside.max.connections": "many"})


def test_listeners() -> None:
    config = BrokerConfig(
        {
            "listeners": "Outside://[::1]:9092, INSIDE://0.0.0.0:9093,CONTROLLER://:9094,EMPTY://:0",
            "listener.security.protocol.map": "OUTSIDE:plaintext,INSIDE:PLAINTEXT,EMPTY:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INSIDE",
            "control.plane.listener.name": "EMPTY",
        }
    )
    assert config.listeners() == [
        Listener("OUTSIDE", "::1", 9092, "PLAINTEXT"),
        Listener("INSIDE", "0.0.0.0", 9093, "PLAINTEXT"),
        Listener("EMPTY", "", 0, "PLAINTEXT"),
    ]
    assert [(listener.name, listener.host) for listener in config.advertised_listeners()] == [
        ("OUTSIDE", "::1"), ("INSIDE", ""), ("EMPTY", ""),
    ]  # fmt: skip
    assert config.inter_broker_listener_name == "INSIDE"
    assert config.control_plane_listener_name == "EMPTY"


def test_listeners_by_default_and_as_in_old_files() -> None:
    assert BrokerConfig({}).listeners() == [Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")]
    assert BrokerConfig({}).inter_broker_listener_name == "PLAINTEXT"
    old = BrokerConfig({"host.name": "a", "port": "9", "advertised.host.name": "b", "advertised.port": "10"})
    assert old.listeners() == [Listener("PLAINTEXT", "a", 9, "PLAINTEXT")]
    assert old.advertised_listeners() == [Listener("PLAINTEXT", "b", 10, "PLAINTEXT")]
    two = BrokerConfig(
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092,SIX://[::1]:9092",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT",
            "advertised.listeners": "SIX://s:1",
        }
    )
    assert len(two.listeners()) == 2
    assert two.advertised_listeners() == [Listener("SIX", "s", 1, "PLAINTEXT")]


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ({"advertised.listeners": "PLAINTEXT://kafka1.example.org:9092"}, ""),
        ({"zookeeper.connect": "zoo1:2181,zoo2:2181/odradek"}, ""),
        ({"zookeeper.connect": "localhost:2181,127.0.0.1:2182"}, "127.0.0.1"),
        ({"zookeeper.connect": "zoo1", "process.roles": "broker,controller"}, "127.0.0.1"),
        ({"listeners": "PLAINTEXT://:9092"}, ""),
        ({"port": "9092"}, ""),
    ],
)
def test_broker_that_others_reach_listens_on_all_interfaces(settings: dict[str, str], host: str) -> None:
    config = BrokerConfig(settings)
    assert [listener.host for listener in config.listeners()] == [host]


@pytest.mark.parametrize(
    ("settings", "delay_ms"),
    [
        ({}, 0),
        ({"group.initial.rebalance.delay.ms": "3000"}, 3000),
        ({"odradek.metadata.store": "/shared.sqlite"}, 3000),
        ({"zookeeper.connect": "localhost:2181"}, 3000),
        ({"zookeeper.connect": "localhost:2181", "process.roles": "broker,controller"}, 0),
    ],
)
def test_groups_of_a_single_broker_do_not_wait_for_members(settings: dict[str, str], delay_ms: int) -> None:
    config = BrokerConfig(settings, is_single=True)
    assert config.number("group.initial.rebalance.delay.ms") == delay_ms
    (*_, default) = config.set_values("group.initial.rebalance.delay.ms")
    assert default.text == str(0 if "group.initial.rebalance.delay.ms" in settings else delay_ms)
    assert BrokerConfig({}).number("group.initial.rebalance.delay.ms") == 3000


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


def test_dynamic_settings_come_first_and_notify_their_listeners() -> None:
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


@pytest.mark.parametrize(
    ("default", "own", "name"),
    [
        ({}, {"num.io.threads": "none"}, "num.io.threads"),
        ({"log.retention.ms": "0"}, {}, "log.retention.ms"),
        ({}, {"node.id": "7"}, "node.id"),
        ({"listener.name.plaintext.ssl.keystore.location": "x"}, {}, "listener.name.plaintext.ssl.keystore.location"),
    ],
)
def test_invalid_dynamic_settings_are_ignored_and_others_are_not(
    default: dict[str, str], own: dict[str, str], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig({"node.id": "1"})
    assert config.apply_dynamic({**default, "log.roll.ms": "5"}, {**own, "num.network.threads": "9"}) == {
        "log.roll.ms",
        "num.network.threads",
    }
    assert (config.node_id, config.number("log.roll.ms"), config.number("num.network.threads")) == (1, 5, 9)
    assert name not in config.set_names() - {"node.id"}
    assert f"dynamic setting {name} of {'this broker' if own else 'all brokers'} is ignored" in caplog.text


@pytest.mark.parametrize("override", ["10.0.0.1", "10.0.0.1:many", "10.0.0.1:-1", "db.example:5"])
def test_override_that_would_limit_no_address_is_an_error(override: str) -> None:
    name = "max.connections.per.ip.overrides"
    assert BrokerConfig({name: "10.0.0.1:5, [::1]:0,::2:3"}).words(name) == ["10.0.0.1:5", "[::1]:0", "::2:3"]
    with pytest.raises(ConfigError, match=re.escape(f"{override} for configuration {name}: ADDRESS:NUMBER expected")):
        BrokerConfig({name: f"10.0.0.9:1,{override}"})


def test_dynamic_setting_that_only_the_file_may_have_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """A controller of Apache Kafka stores any: a listener would accept clients without a certificate."""
    name = "listener.name.ssl.ssl.client.auth"
    config = BrokerConfig({"listeners": "SSL://h:1", "ssl.keystore.location": "/k", name: "required"})
    own = {name: "none", "listener.name.ssl.ssl.keystore.location": "/new"}
    config.apply_dynamic({}, own)
    assert config.listener_text("SSL", "ssl.client.auth") == "required"
    assert config.listener_text("SSL", "ssl.keystore.location") == "/new"
    assert f"dynamic setting {name} of this broker is ignored" in caplog.text


def test_unknown_names_may_be_dynamic() -> None:
    config = BrokerConfig({})
    assert config.apply_dynamic({}, {"some.plugin": "x"}) == frozenset()
    assert "some.plugin" in config.set_names()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ssl.client.auth": "required"}, "no listener has TLS"),
        ({"listener.name.plaintext.ssl.client.auth": "required"}, "PLAINTEXT is not a listener with TLS"),
        (
            {"listeners": "SASL_SSL://h:1", "ssl.keystore.location": "/k", "ssl.client.auth": "required"},
            r"no effect on listener SASL_SSL, which has SASL; set listener\.name\.sasl_ssl\.ssl\.client\.auth",
        ),
    ],
)
def test_tls_setting_that_protects_no_listener_is_an_error(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        BrokerConfig(settings)


def test_tls_setting_of_one_listener_is_stronger_than_that_of_all() -> None:
    config = BrokerConfig(
        {
            "listeners": "INSIDE://h:1,OUTSIDE://h:2",
            "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL",
            "ssl.keystore.location": "/all",
            "listener.name.outside.ssl.keystore.location": "/own",
        }
    )
    assert config.listener_text("INSIDE", "ssl.keystore.location") == "/all"
    assert config.listener_text("OUTSIDE", "ssl.keystore.location") == "/own"
    assert config.listener_text("OUTSIDE", "ssl.client.auth") == "none"


def test_client_certificates_are_for_ssl_and_for_named_sasl_listeners() -> None:
    config = BrokerConfig(
        {
            "listeners": "SSL://h:1,SASL_SSL://h:2,PARTNERS://h:3",
            "listener.security.protocol.map": "SSL:SSL,SASL_SSL:SASL_SSL,PARTNERS:SASL_SSL",
            "ssl.keystore.location": "/all",
            "ssl.client.auth": "required",
            "listener.name.partners.ssl.client.auth": "requested",
        }
    )
    found = [config.listener_text(name, "ssl.client.auth") for name in ("SSL", "SASL_SSL", "PARTNERS")]
    assert found == ["required", "none", "requested"]
    assert "ssl.client.auth" in config.without_effect()["listeners with SASL: SASL_SSL"]


@pytest.mark.parametrize(
    "name",
    [
        *sorted(name for name, definition in BROKER.items() if definition.is_sensitive),
        "listener.name.internal.ssl.key.password",
        "listener.name.internal.plain.sasl.jaas.config",
        "ssl.keystore.pasword",
        "my.plugin.password",
    ],
)
def test_secret_value_of_a_setting_is_in_no_message(name: str) -> None:
    said = ""
    try:
        config = BrokerConfig.load(None, {name: "PLANTED"}, is_single=True)
        said = str(config.without_effect())
    except ConfigError as error:
        said = str(error)
    assert "PLANTED" not in said


@pytest.mark.parametrize(
    ("settings", "expected"), [({"advertised.host.name": "b"}, ("b", 9)), ({"advertised.port": "10"}, ("a", 10))]
)
def test_one_of_advertised_host_and_port_replaces_its_part(settings: dict[str, str], expected: tuple[str, int]) -> None:
    (found,) = BrokerConfig({"host.name": "a", "port": "9", **settings}).advertised_listeners()
    assert (found.host, found.port) == expected


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__odradek_audit", "__cluster_metadata", "a topic"])
def test_topic_of_telemetry_that_is_internal_or_invalid_is_an_error(topic: str) -> None:
    with pytest.raises(ConfigError, match=r"odradek\.telemetry\.topic=.* is refused"):
        BrokerConfig({"odradek.telemetry.topic": topic, "odradek.http.listener": "127.0.0.1:0"})


def test_topic_of_telemetry_without_a_receiver_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"only with odradek\.http\.listener"):
        BrokerConfig({"odradek.telemetry.topic": "pushes"})
