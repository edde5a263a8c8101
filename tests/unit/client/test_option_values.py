"""Wrong values of options and arguments: every constructor raises ConfigError with the option and accepted values."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.admin.blocking_admin import BlockingAdmin
from odradek.client.blocking_clients import BlockingProducer, BlockingTransactionalProducer
from odradek.client.config import ADMIN_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, SHARE_CONSUMER_DEFAULTS
from odradek.client.consumer.blocking_consumer import BlockingConsumer
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ConfigError
from odradek.client.group.assignors import RangeAssignor
from odradek.client.producer.partitioners import RoundRobinPartitioner
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import TransactionalProducer
from odradek.client.share.blocking_share_consumer import BlockingShareConsumer
from odradek.client.share.share_consumer import ShareConsumer

BLOCKING = (BlockingProducer, BlockingTransactionalProducer, BlockingConsumer, BlockingShareConsumer, BlockingAdmin)
CLIENTS: Mapping[Any, tuple[Mapping[str, Any], dict[str, Any]]] = {
    Producer: (PRODUCER_DEFAULTS, {}),
    TransactionalProducer: (PRODUCER_DEFAULTS, {"transactional_id": "t"}),
    Consumer: (CONSUMER_DEFAULTS, {}),
    ShareConsumer: (SHARE_CONSUMER_DEFAULTS, {"group_id": "g"}),
    Admin: (ADMIN_DEFAULTS, {}),
    BlockingAdmin: (ADMIN_DEFAULTS, {}),
    BlockingProducer: (PRODUCER_DEFAULTS, {}),
    BlockingTransactionalProducer: (PRODUCER_DEFAULTS, {"transactional_id": "t"}),
    BlockingConsumer: (CONSUMER_DEFAULTS, {}),
    BlockingShareConsumer: (SHARE_CONSUMER_DEFAULTS, {"group_id": "g"}),
}
"""Defaults of each client's options, and the options that it needs."""
OF_KINDS: Mapping[type, list[Any]] = {
    bool: ["maybe", 2, None, [True]],
    int: ["big", -(2**40), 2**63, 1.5, float("nan"), float("inf"), True, None, b"1", [1]],
    str: [5, b"text", 1.5, {"a": 1}, object()],
}
"""Wrong values by the type of the default; None stands for a text that is not set."""
OF_OPTIONS: Mapping[str, list[Any]] = {
    "acks": ["2", 2, -2, None, True, "most"],
    "auto_offset_reset": ["never", 1, None, ""],
    "bootstrap_servers": ["", "host", "host:0", "host:99999", ":1", 9092, None, [1], [], b"host:1", [None]],
    "client_dns_lookup": ["default", None, 1],
    "client_id": ["x" * 40_000, "\ud800"],
    "compression_level": ["high", 2**40, 1.5, True, [1], 1],
    "compression_type": ["rar", 1, ""],
    "group_id": ["", 1, "x" * 40_000],
    "group_instance_id": ["", 1],
    "group_protocol": ["modern", None, 1],
    "group_remote_assignor": ["", 1, "uniform"],
    "isolation_level": ["serializable", 1, None],
    "linger_ms": ["soon", -1, float("nan"), float("inf"), None, True],
    "metadata_recovery_strategy": ["bootstrap", None, 1],
    "partition_assignment_strategy": [
        "",
        [],
        "nearest",
        ["range", "nearest"],
        "range,range",
        5,
        None,
        [None],
        b"range",
    ],
    "sasl_mechanism": [1, "NTLM"],
    "sasl_credentials_provider": [5, "user", ("user", "password")],
    "sasl_oauth_token_provider": [5, "token", SimpleNamespace(token="x")],
    "security_protocol": ["TLS", 1, None, ""],
    "share_acknowledgement_mode": ["explicitly", None],
    "share_acquire_mode": ["all", None],
    "ssl_cipher_suites": [[1], {"a"}],
    "ssl_enabled_protocols": [[1], None],
    "transaction_two_phase_commit_enable": [True, "true"],
    "transactional_id": ["", 1],
}
"""Wrong values of single options, some in place of those of their type."""
REPLACED = frozenset(
    {
        "acks",
        "auto_offset_reset",
        "bootstrap_servers",
        "client_dns_lookup",
        "compression_level",
        "compression_type",
        "group_protocol",
        "isolation_level",
        "linger_ms",
        "metadata_recovery_strategy",
        "partition_assignment_strategy",
        "security_protocol",
        "share_acknowledgement_mode",
        "share_acquire_mode",
    }
)


def wrong_values(name: str, default: Any) -> list[Any]:
    of_type = [] if name in REPLACED or default is None else OF_KINDS[type(default)]
    return [*of_type, *OF_OPTIONS.get(name, ())]


def raised_by(client: Any, **options: Any) -> None:
    client(**options)
    pytest.fail(f"{options} are accepted")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.__name__)
def test_every_option_rejects_wrong_values_by_name(client: Any) -> None:
    defaults, needed = CLIENTS[client]
    for name, default in defaults.items():
        values = wrong_values(name, default)
        assert values, f"{name} has no wrong values in this test"
        for value in values:
            with pytest.raises(ConfigError, match=name) as raised:
                raised_by(client, **{**needed, name: value})
            assert raised.value.__class__ is ConfigError


@pytest.mark.parametrize(
    ("client", "options", "accepted"),
    [
        (Producer, {"compression_type": "rar"}, "none, gzip, snappy, lz4, zstd"),
        (Producer, {"compression_type": "gzip", "compression_level": 99}, r"gzip, which has levels -1 .* and 1 to 9"),
        (Producer, {"compression_type": "gzip", "compression_level": 0}, "1 to 9"),
        (Producer, {"compression_type": "lz4", "compression_level": 18}, "1 to 17"),
        (Producer, {"compression_type": "zstd", "compression_level": 23}, "-131072 to 22"),
        (Producer, {"compression_type": "snappy", "compression_level": 1}, "gzip, lz4 and zstd have"),
        (Producer, {"acks": "most"}, "all, 0, 1"),
        (Producer, {"batch_size": -1}, "a whole number from 0 to 2147483647"),
        (Producer, {"delivery_timeout_ms": 0}, "from 1 to 2147483647"),
        (Producer, {"buffer_memory": 2**63}, "from 0 to 9223372036854775807"),
        (Producer, {"interceptor_classes": "x"}, "interceptors, a list of objects"),
        (Producer, {"transaction_two_phase_commit_enable": True}, "InitProducerId 6 .*which brokers do not offer"),
        (Producer, {"metadata_max_idle_ms": 1}, "only Java's clients have: a producer keeps the metadata"),
        (Admin, {"sasl_login_callback_handler_class": "x"}, "sasl_oauth_token_provider, a function or an object"),
        (Admin, {"metadata_recovery_strategy": "bootstrap"}, "rebootstrap, none"),
        (Admin, {"connections_max_idle_ms": -2}, "from -1 to 9223372036854775807"),
        (Consumer, {"auto_offset_reset": "never"}, "earliest, latest, none"),
        (Consumer, {"partition_assignment_strategy": "nearest"}, "range, roundrobin, sticky, cooperative-sticky"),
        (Admin, {"bootstrap_servers": "host"}, "host:port"),
        (Admin, {"ssl_check_hostname": 1, "security_protocol": "SSL"}, "neither true nor false"),
        (Admin, {"security_protocol": "SSL", "ssl_protocol": "TLSv1"}, "TLS, TLSv1.2, TLSv1.3"),
        (Admin, {"security_protocol": "SSL", "ssl_truststore_type": "BKS"}, "JKS, PKCS12 or PEM"),
        (Admin, {"security_protocol": "SSL", "ssl_cafile": "/missing.pem"}, "/missing.pem"),
        (Admin, {"security_protocol": "SSL", "ssl_cafile": Path("/missing.pem")}, "/missing.pem"),
        (Admin, {"security_protocol": "SSL", "ssl_cipher_suites": ["NONE"]}, "NONE"),
        (Admin, {"security_protocol": "SASL_SSL", "sasl_mechanism": "NTLM"}, "PLAIN, SCRAM-SHA-256"),
        (
            Admin,
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": "issuer",
            },
            "sasl_oauthbearer_token_endpoint_url",
        ),
    ],
)  # fmt: skip
def test_error_names_the_accepted_values(client: Any, options: dict[str, Any], accepted: str) -> None:
    with pytest.raises(ConfigError, match=accepted):
        client(**options)


@pytest.mark.parametrize(
    "name",
    [
        "sasl_plain_password", "sasl_jaas_config", "ssl_password", "ssl_key_password", "ssl_keystore_key",
        "ssl_keystore_password", "ssl_truststore_password", "sasl_oauthbearer_client_credentials_client_secret",
    ],
)  # fmt: skip
def test_error_does_not_show_a_secret(name: str) -> None:
    for value in (b"secret-word", ["secret-word"], "secret-word\ud800"):
        with pytest.raises(ConfigError, match=name) as raised:
            Admin(security_protocol="SASL_SSL", **{name: value})  # type: ignore[arg-type]
        assert "secret-word" not in str(raised.value)


class Own:
    """An assignor of a program, with a member exchanged."""

    def __init__(self, **members: Any) -> None:
        given = {"name": "own", "cooperative": False, "assign": print, "user_data": print, "assigned": print}
        self.__dict__.update(given | members)


@pytest.mark.parametrize(
    ("assignor", "text"),
    [
        (object(), "nor an Assignor"),
        (RangeAssignor, r"RangeAssignor is a class: pass an instance, RangeAssignor\(...\)"),
        (Own(name=""), "nor an Assignor"),
        (Own(name=5), "nor an Assignor"),
        (Own(cooperative=None), "'own' lacks the flag `cooperative`, True or False"),
        (Own(assign=None), "'own' lacks the method assign$"),
        (Own(user_data=1, assigned=None), "'own' lacks the method user_data and the method assigned"),
        (Own(name="range"), "'range' is there twice"),
    ],
)
@pytest.mark.parametrize("client", [Consumer, BlockingConsumer])
def test_assignor_of_the_wrong_shape_is_rejected(client: Any, assignor: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=f"partition_assignment_strategy: .*{text}"):
        client(partition_assignment_strategy=["range", assignor])


class Half:
    def on_send(self, *given: Any) -> Any:
        return given


@pytest.mark.parametrize(
    ("clients", "argument", "value", "text"),
    [
        ((Producer, BlockingProducer), "partitioner", "murmur2", "an object with partition, got str"),
        ((Producer, BlockingProducer), "partitioner", RoundRobinPartitioner, "is a class: pass an instance"),
        ((Producer, BlockingProducer), "interceptors", Half(), "a list of interceptors, got Half"),
        ((Producer, BlockingProducer), "interceptors", [object()], "on_send or on_acknowledgement"),
        ((Producer, BlockingProducer), "interceptors", [Half], "is a class: pass an instance"),
        ((Producer, BlockingProducer), "key_serializer", 5, "expected a function"),
        ((Producer, BlockingProducer), "value_serializer", "json", "expected a function"),
        ((Producer,), "network", "tcp", "an object with connect"),
        ((Producer,), "random", 4, "an object with randrange"),
        ((Producer,), "clock", 4, "an object with now_ms"),
        ((Consumer, BlockingConsumer), "listener", print, "on_partitions_assigned or on_partitions_revoked"),
        ((Consumer, BlockingConsumer), "interceptors", [Half()], "on_consume or on_commit"),
        ((Consumer, BlockingConsumer), "key_deserializer", 5, "expected a function"),
        ((Consumer, BlockingConsumer), "value_deserializer", lambda: b"", "expected a function"),
        ((ShareConsumer, BlockingShareConsumer), "on_acknowledgement", 5, "expected a function or None"),
        (BLOCKING, "blocking", "loop", "expected a Blocking"),
    ],
)
def test_argument_of_the_wrong_kind_is_rejected(clients: tuple[Any, ...], argument: str, value: Any, text: str) -> None:
    for client in clients:
        with pytest.raises(ConfigError, match=f"{argument}: .*{text}"):
            client(**{**CLIENTS[client][1], argument: value})


@pytest.mark.parametrize("client", [Consumer, ShareConsumer, BlockingConsumer, BlockingShareConsumer])
def test_list_of_topics_in_place_of_names_is_rejected(client: Any) -> None:
    with pytest.raises(ConfigError, match="one argument each, got list"):
        client(["t"], group_id="g")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda client, needed: client.from_config(None, **needed), "expected a mapping"),
        (lambda client, needed: client.from_config({5: "x"}, **needed), "names of options"),
        (lambda client, needed: client.from_config({"client.id": "a", "client_id": "b"}, **needed), "given twice"),
        (lambda client, needed: client.from_config({"client.id": "a"}, client_id="b", **needed), "given twice"),
        (lambda client, needed: client.from_config({"client.idd": "a"}, **needed), "did you mean 'client_id'"),
    ],
)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: getattr(each, "__name__", None))
def test_mapping_that_cannot_be_meant_is_rejected(client: Any, make: Callable[..., Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make(client, CLIENTS[client][1])


def test_texts_stand_for_numbers_and_flags() -> None:
    config = Producer(linger_ms="1.5", batch_size="10", enable_idempotence="TRUE", compression_type="GZIP").config  # type: ignore[arg-type]
    given = config["linger_ms"], config["batch_size"], config["enable_idempotence"], config["compression_type"]
    assert given == (1.5, 10, True, "gzip")


def test_servers_may_be_any_iterable_and_files_paths() -> None:
    config = Admin(bootstrap_servers=(f"host:{port}" for port in (1, 2)))._config
    assert config["bootstrap_servers"] == ["host:1", "host:2"]
    with pytest.raises(ConfigError, match="ssl_cafile needs security_protocol"):
        Admin(ssl_cafile=Path("/ca.pem"))  # type: ignore[arg-type]


def test_options_that_are_not_set_may_be_none() -> None:
    Producer(transactional_id=None, compression_level=None, ssl_cafile=None, sasl_mechanism=None, client_rack=None)  # type: ignore[arg-type]


def test_gzip_levels_of_kafka_are_accepted() -> None:
    for level in (-1, 1, 9):
        assert Producer(compression_type="gzip", compression_level=level).config["compression_level"] == level
