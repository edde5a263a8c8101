"""Options of the clients: Kafka's names with underscores, Kafka's defaults, units last.

A TypedDict lists each client's options for type checkers, a table holds their defaults, `resolve_...` checks both.
Kafka's dotted names (`bootstrap.servers`) are accepted in mappings, and text where a number or flag is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict, cast

from odradek.client.errors import ConfigError

Servers = str | Iterable[str]
"""`host:port` entries, as a list or separated by commas."""


class CommonOptions(TypedDict, total=False):
    bootstrap_servers: Servers
    client_id: str
    client_rack: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    default_api_timeout_ms: int
    security_protocol: str


class ProducerOptions(CommonOptions, total=False):
    acks: str | int
    linger_ms: float
    batch_size: int
    buffer_memory: int
    compression_type: str
    compression_level: int | None
    enable_idempotence: bool
    max_in_flight_requests_per_connection: int
    max_request_size: int
    max_block_ms: int
    delivery_timeout_ms: int
    retries: int
    partitioner_ignore_keys: bool
    transactional_id: str | None
    transaction_timeout_ms: int


class ConsumerOptions(CommonOptions, total=False):
    group_id: str | None
    group_instance_id: str | None
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: str
    max_poll_records: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    partition_assignment_strategy: str | Iterable[str]
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    allow_auto_create_topics: bool
    exclude_internal_topics: bool


class AdminOptions(CommonOptions, total=False):
    pass


_COMMON: Final[CommonOptions] = {
    "bootstrap_servers": "127.0.0.1:9092",
    "client_id": "odradek",
    "client_rack": "",
    "request_timeout_ms": 30_000,
    "retry_backoff_ms": 100,
    "retry_backoff_max_ms": 1_000,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 1_000,
    "socket_connection_setup_timeout_ms": 10_000,
    "connections_max_idle_ms": 540_000,
    "metadata_max_age_ms": 300_000,
    "default_api_timeout_ms": 60_000,
    "security_protocol": "PLAINTEXT",
}
PRODUCER_DEFAULTS: Final[ProducerOptions] = {
    **_COMMON,
    "acks": "all",
    "linger_ms": 5,
    "batch_size": 16_384,
    "buffer_memory": 33_554_432,
    "compression_type": "none",
    "compression_level": None,
    "enable_idempotence": True,
    "max_in_flight_requests_per_connection": 5,
    "max_request_size": 1_048_576,
    "max_block_ms": 60_000,
    "delivery_timeout_ms": 120_000,
    "retries": 2_147_483_647,
    "partitioner_ignore_keys": False,
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
}
CONSUMER_DEFAULTS: Final[ConsumerOptions] = {
    **_COMMON,
    "group_id": None,
    "group_instance_id": None,
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "isolation_level": "read_uncommitted",
    "max_poll_records": 500,
    "max_poll_interval_ms": 300_000,
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "partition_assignment_strategy": ("range", "cooperative-sticky"),
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 52_428_800,
    "fetch_max_wait_ms": 500,
    "max_partition_fetch_bytes": 1_048_576,
    "check_crcs": True,
    "allow_auto_create_topics": True,
    "exclude_internal_topics": True,
}
ADMIN_DEFAULTS: Final[AdminOptions] = {**_COMMON}

_CHOICES: Final[Mapping[str, frozenset[str]]] = {
    "auto_offset_reset": frozenset({"earliest", "latest", "none"}),
    "compression_type": frozenset({"none", "gzip", "snappy", "lz4", "zstd"}),
    "isolation_level": frozenset({"read_uncommitted", "read_committed"}),
}
_POSITIVE: Final = frozenset(
    {
        "max_in_flight_requests_per_connection",
        "max_poll_records",
        "max_poll_interval_ms",
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "delivery_timeout_ms",
        "transaction_timeout_ms",
    }
)
_TRUE: Final = {"true": True, "false": False}


def resolve_producer(options: Mapping[str, Any]) -> ProducerOptions:
    """All producer options, checked. Raises ConfigError."""
    config = cast(ProducerOptions, _resolve(options, cast(Mapping[str, Any], PRODUCER_DEFAULTS)))
    config["acks"] = _acks(config["acks"])
    if config["transactional_id"] is not None and not config["enable_idempotence"]:
        raise ConfigError("transactional_id needs enable_idempotence=True")
    if config["enable_idempotence"]:
        given = {name.replace(".", "_") for name in options}
        conflicts = []
        if config["acks"] != -1:
            conflicts.append("acks=all")
        if config["retries"] == 0:
            conflicts.append("retries > 0")
        if config["max_in_flight_requests_per_connection"] > 5:
            conflicts.append("max_in_flight_requests_per_connection <= 5")
        if conflicts and ("enable_idempotence" in given or config["transactional_id"] is not None):
            raise ConfigError(f"enable_idempotence=True needs {' and '.join(conflicts)}")
        # As in Java's client, a conflicting choice switches the default off silently.
        config["enable_idempotence"] = not conflicts
    if config["delivery_timeout_ms"] < config["linger_ms"] + config["request_timeout_ms"]:
        if any(name.replace(".", "_") == "delivery_timeout_ms" for name in options):
            raise ConfigError("delivery_timeout_ms must be at least linger_ms + request_timeout_ms")
        config["delivery_timeout_ms"] = int(config["linger_ms"] + config["request_timeout_ms"])
    return config


def resolve_consumer(options: Mapping[str, Any]) -> ConsumerOptions:
    """All consumer options, checked. Raises ConfigError."""
    config = cast(ConsumerOptions, _resolve(options, cast(Mapping[str, Any], CONSUMER_DEFAULTS)))
    if config["group_id"] is not None and not config["group_id"]:
        raise ConfigError("group_id is empty")
    if config["group_id"] is None and options.get("enable_auto_commit"):
        raise ConfigError("enable_auto_commit needs a group_id")
    if config["heartbeat_interval_ms"] >= config["session_timeout_ms"]:
        raise ConfigError("heartbeat_interval_ms must be less than session_timeout_ms")
    strategies = config["partition_assignment_strategy"]
    names = strategies.split(",") if isinstance(strategies, str) else list(strategies)
    config["partition_assignment_strategy"] = [name.strip() for name in names if name.strip()]
    return config


def resolve_admin(options: Mapping[str, Any]) -> AdminOptions:
    """All admin options, checked. Raises ConfigError."""
    return cast(AdminOptions, _resolve(options, cast(Mapping[str, Any], ADMIN_DEFAULTS)))


def parse_servers(servers: Servers) -> list[tuple[str, int]]:
    """(host, port) of each bootstrap server; IPv6 addresses stand in brackets. Raises ConfigError."""
    entries = servers.split(",") if isinstance(servers, str) else list(servers)
    found = []
    for entry in (each.strip() for each in entries):
        if not entry:
            continue
        host, separator, port = entry.rpartition(":")
        if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"bootstrap_servers: {entry!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ConfigError("bootstrap_servers is empty")
    return found


def _resolve(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    config = dict(defaults)
    for given, value in options.items():
        name = given.replace(".", "_")
        if name not in defaults:
            raise ConfigError(f"unknown option {given!r}")
        config[name] = _checked(name, value, defaults[name])
    if config["security_protocol"].upper() != "PLAINTEXT":
        raise ConfigError(f"security_protocol {config['security_protocol']!r}: only PLAINTEXT is supported yet")
    parse_servers(config["bootstrap_servers"])
    return config


def _checked(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool):
        flag = _TRUE.get(value.strip().lower()) if isinstance(value, str) else value
        if not isinstance(flag, bool):
            raise ConfigError(f"{name}: {value!r} is neither true nor false")
        return flag
    if isinstance(default, int) or name == "compression_level":
        return _number(name, value)
    if name in _CHOICES:
        text = str(value).lower()
        if text not in _CHOICES[name]:
            raise ConfigError(f"{name}: {value!r} is not one of {', '.join(sorted(_CHOICES[name]))}")
        return text
    return value


def _number(name: str, value: Any) -> Any:
    if value is None and name == "compression_level":
        return None
    try:
        number = float(value) if name == "linger_ms" else int(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}: {value!r} is not a number") from None
    if isinstance(value, bool) or (isinstance(value, float) and number != value):
        raise ConfigError(f"{name}: {value!r} is not a whole number")
    if name != "compression_level" and (number < 0 or (number == 0 and name in _POSITIVE)):
        raise ConfigError(f"{name}: {value!r} is too small")
    return number


def _acks(value: str | int) -> int:
    text = str(value).strip().lower()
    try:
        return {"all": -1, "-1": -1, "0": 0, "1": 1}[text]
    except KeyError:
        raise ConfigError(f"acks: {value!r} is not one of all, 0, 1") from None
