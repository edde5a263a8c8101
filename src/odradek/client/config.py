"""Options of the clients: Kafka's names with underscores, Kafka's defaults, units last.

A TypedDict lists each client's options for type checkers, a table holds their defaults, `resolve_...` checks values.
Kafka's dotted names (`bootstrap.servers`) are accepted in mappings, and text where a number or flag is meant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, cast

from odradek.client.errors import ConfigError
from odradek.client.option_checks import check_compression_level, checked
from odradek.client.security.tls import SECURITY_DEFAULTS, SecurityOptions, check_security

if TYPE_CHECKING:
    from odradek.client.group.assignors import Assignor

Servers = str | Iterable[str]
"""`host:port` entries, as a list or separated by commas."""


class CommonOptions(SecurityOptions, total=False):
    """Options of every client."""

    bootstrap_servers: Servers
    """Brokers to contact first, as `host:port`; the rest of the cluster is learned from them."""
    client_id: str
    """The name in the brokers' logs, metrics and quotas."""
    client_rack: str
    """Where this client runs; consumers then fetch from a replica in the same rack (KIP-392), and members of classic
    groups get partitions with a replica there as far as numbers stay even (KIP-881; not with `roundrobin`)."""
    request_timeout_ms: int
    """How long to wait for the answer to one request."""
    retry_backoff_ms: int
    """Pause before the first retry; it doubles with each failure."""
    retry_backoff_max_ms: int
    """Longest pause between two retries."""
    reconnect_backoff_ms: int
    """Pause before the first new connection attempt to a broker; it doubles with each failure."""
    reconnect_backoff_max_ms: int
    """Longest pause between two connection attempts."""
    socket_connection_setup_timeout_ms: int
    """How long a connection attempt may take."""
    socket_connection_setup_timeout_max_ms: int
    """Longest time of a connection attempt: it doubles with each failure."""
    connections_max_idle_ms: int
    """Time after which a connection without requests is closed; -1 keeps it until the broker closes it."""
    client_dns_lookup: str
    """`use_all_dns_ips` tries every address of a host; `resolve_canonical_bootstrap_servers_only` replaces the
    bootstrap servers by the names of their addresses, as Kerberos may need it (KIP-235)."""
    send_buffer_bytes: int
    """Bytes of a connection's send buffer; -1 leaves it to the system, which adapts it."""
    receive_buffer_bytes: int
    """Bytes of a connection's receive buffer; -1 leaves it to the system, which adapts it."""
    metadata_max_age_ms: int
    """Age at which metadata is fetched again without a reason."""
    metadata_recovery_strategy: str
    """`rebootstrap`: begin again with bootstrap_servers when the known brokers are of no use (KIP-899); or `none`."""
    metadata_recovery_rebootstrap_trigger_ms: int
    """Time without fresh metadata, since the first failure, after which the known brokers are given up (KIP-1102)."""
    default_api_timeout_ms: int
    """How long a call that retries may take in all."""
    metrics_sample_window_ms: int
    """Length of a window of `metrics()`: rates, averages and maxima are those of the last windows."""
    metrics_num_samples: int
    """Number of windows, the current one included."""
    enable_metrics_push: bool
    """Whether metrics are pushed to brokers that ask for them (KIP-714); needs the extra `telemetry`."""


class ProducerOptions(CommonOptions, total=False):
    """Options of `Producer` and `TransactionalProducer`."""

    acks: str | int
    """Replicas that must have a record before it counts as sent: `all` (-1), `1` or `0`."""
    linger_ms: float
    """How long a batch waits for more records."""
    batch_size: int
    """Bytes at which a batch is full."""
    buffer_memory: int
    """Bytes of records that may wait for acknowledgement; `send` waits when they are used up."""
    compression_type: str
    """`none`, `gzip`, `snappy`, `lz4` or `zstd`."""
    compression_level: int | None
    """The codec's level; None is its default."""
    enable_idempotence: bool
    """Whether retries neither duplicate nor reorder records (KIP-98)."""
    max_in_flight_requests_per_connection: int
    """Unanswered produce requests per broker; at most 5 with idempotence."""
    max_request_size: int
    """Largest request, and largest record, in bytes."""
    max_block_ms: int
    """How long `send` may wait for metadata and for buffer memory."""
    delivery_timeout_ms: int
    """How long a record may take from `send` to its acknowledgement, retries included."""
    retries: int
    """Attempts after the first; delivery_timeout_ms ends them earlier."""
    partitioner_ignore_keys: bool
    """Whether keyed records are spread like records without a key."""
    partitioner_adaptive_partitioning_enable: bool
    """Whether records without a key go more often to partitions with fewer waiting batches (KIP-794)."""
    partitioner_availability_timeout_ms: int
    """Time for which a leader accepts no batches until records without a key avoid its partitions; 0: they never do. It
    needs partitioner_adaptive_partitioning_enable."""
    transactional_id: str | None
    """Identity of a `TransactionalProducer` across restarts."""
    transaction_timeout_ms: int
    """Time after which the coordinator aborts an open transaction."""
    transaction_two_phase_commit_enable: bool
    """False. True is an error: no broker offers two-phase commits yet (KIP-939)."""


class ConsumerOptions(CommonOptions, total=False):
    """Options of `Consumer`."""

    group_id: str | None
    """The consumer group; None reads without a group."""
    group_protocol: str
    """`classic`, or `consumer`: the coordinator assigns partitions, and no rebalance stops all members (KIP-848)."""
    group_remote_assignor: str | None
    """The coordinator's assignor with group_protocol=consumer: `uniform`, `range`; None for its default."""
    group_instance_id: str | None
    """Identity of a static member, which keeps its partitions across a restart (KIP-345)."""
    auto_offset_reset: str
    """Where to begin without a committed offset: `earliest`, `latest`, `by_duration:PT1H` for the first record of the
    last hour (KIP-1106), or `none` to raise."""
    enable_auto_commit: bool
    """Whether positions are committed every auto_commit_interval_ms, and on close; needs a group."""
    auto_commit_interval_ms: int
    """Time between two automatic commits."""
    isolation_level: str
    """`read_committed` hides records of open and aborted transactions; `read_uncommitted` shows them."""
    max_poll_records: int
    """Most records of one `poll`."""
    max_poll_interval_ms: int
    """Longest time between two polls before the group gives the partitions to other members."""
    session_timeout_ms: int
    """Time without a heartbeat after which the coordinator removes this member."""
    heartbeat_interval_ms: int
    """Time between two heartbeats; must be less than session_timeout_ms."""
    partition_assignment_strategy: str | Iterable[str | Assignor]
    """Assignors in order of preference: `range`, `roundrobin`, `sticky`, `cooperative-sticky`, or an `Assignor`."""
    fetch_min_bytes: int
    """Bytes that a broker collects before it answers a fetch."""
    fetch_max_bytes: int
    """Most bytes of one fetch."""
    fetch_max_wait_ms: int
    """How long a broker waits for fetch_min_bytes."""
    max_partition_fetch_bytes: int
    """Most bytes per partition of one fetch; a larger batch is still returned."""
    check_crcs: bool
    """Whether the checksum of each batch is verified."""
    allow_auto_create_topics: bool
    """Whether asking for a topic may create it, where the broker allows that."""
    exclude_internal_topics: bool
    """Whether a pattern leaves out topics such as `__consumer_offsets`."""


class ShareConsumerOptions(CommonOptions, total=False):
    """Options of `ShareConsumer`."""

    group_id: str
    """The share group; required."""
    share_acknowledgement_mode: str
    """`implicit`: a poll or commit accepts what the last one returned; `explicit`: `acknowledge` every record."""
    share_acquire_mode: str
    """`batch_optimized` acquires complete batches; `record_limit` at most max_poll_records of a fetch (KIP-1206)."""
    max_poll_records: int
    """Most records of one `poll`, and what a fetch asks for."""
    max_poll_interval_ms: int
    """Longest time between two polls before this member leaves the group."""
    fetch_min_bytes: int
    """Bytes that a broker collects before it answers a fetch."""
    fetch_max_bytes: int
    """Most bytes of one fetch."""
    fetch_max_wait_ms: int
    """How long a broker waits for fetch_min_bytes."""
    check_crcs: bool
    """Whether the checksum of each batch is verified."""


class AdminOptions(CommonOptions, total=False):
    """Options of `Admin`."""


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
    "socket_connection_setup_timeout_max_ms": 30_000,
    "connections_max_idle_ms": 540_000,
    "client_dns_lookup": "use_all_dns_ips",
    "send_buffer_bytes": -1,
    "receive_buffer_bytes": -1,
    "metadata_max_age_ms": 300_000,
    "metadata_recovery_strategy": "rebootstrap",
    "metadata_recovery_rebootstrap_trigger_ms": 300_000,
    "default_api_timeout_ms": 60_000,
    "metrics_sample_window_ms": 30_000,
    "metrics_num_samples": 2,
    "enable_metrics_push": True,
    **SECURITY_DEFAULTS,
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
    "partitioner_adaptive_partitioning_enable": True,
    "partitioner_availability_timeout_ms": 0,
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
    "transaction_two_phase_commit_enable": False,
}
CONSUMER_DEFAULTS: Final[ConsumerOptions] = {
    **_COMMON,
    "group_id": None,
    "group_protocol": "classic",
    "group_remote_assignor": None,
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
SHARE_CONSUMER_DEFAULTS: Final[ShareConsumerOptions] = {
    **_COMMON,
    "group_id": "",
    "share_acknowledgement_mode": "implicit",
    "share_acquire_mode": "batch_optimized",
    "max_poll_records": 500,
    "max_poll_interval_ms": 300_000,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 52_428_800,
    "fetch_max_wait_ms": 500,
    "check_crcs": True,
}
ADMIN_DEFAULTS: Final[AdminOptions] = {**_COMMON}

_ARGUMENTS: Final = (
    "interceptors", "key_deserializer", "key_serializer", "listener", "partitioner", "value_deserializer",
    "value_serializer",
)  # fmt: skip
"""What constructors take besides options: a misspelt one arrives here."""
_ELSEWHERE: Final[Mapping[str, str]] = {
    "auto_commit": "enable_auto_commit",
    "broker_list": "bootstrap_servers",
    "compression_codec": "compression_type",
    "compression_gzip_level": "compression_level",
    "compression_lz4_level": "compression_level",
    "compression_zstd_level": "compression_level",
    "consumer_timeout_ms": "iterate(idle_timeout_s=...), or poll(timeout_ms=...)",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "max_batch_size": "batch_size",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "message_max_bytes": "max_request_size",
    "message_send_max_retries": "retries",
    "message_timeout_ms": "delivery_timeout_ms",
    "metric_reporters": "metrics(), or the extras otel and telemetry",
    "interceptor_classes": "interceptors, a list of objects",
    "metadata_broker_list": "bootstrap_servers",
    "partitioner_class": "partitioner, an object",
    "queue_buffering_max_kbytes": "buffer_memory (in bytes)",
    "queue_buffering_max_ms": "linger_ms",
    "request_required_acks": "acks",
    "sasl_login_callback_handler_class": "sasl_oauth_token_provider, a function or an object with `token`",
    "sasl_client_callback_handler_class": "sasl_credentials_provider, a function",
    "socket_receive_buffer_bytes": "receive_buffer_bytes",
    "socket_send_buffer_bytes": "send_buffer_bytes",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
}
"""Options of aiokafka, kafka-python, librdkafka and Java's clients that have another name here."""
_ABSENT: Final[Mapping[str, str]] = {
    "bootstrap_controllers": "controllers accept brokers only; name brokers in bootstrap_servers",
    "config_providers": "the program reads its secrets itself",
    "metadata_max_idle_ms": "a producer keeps the metadata of every topic that it has written to",
    "metrics_recording_level": "all metrics are recorded",
    "security_providers": "these are classes of Java",
    "ssl_engine_factory_class": "this is a class of Java",
}
"""Options of Java's clients without a counterpart, and why."""


def resolve_producer(options: Mapping[str, Any]) -> ProducerOptions:
    """All producer options, checked. Raises ConfigError."""
    config = cast(ProducerOptions, _resolve(options, cast(Mapping[str, Any], PRODUCER_DEFAULTS)))
    config["acks"] = checked("acks", config["acks"], None)
    check_compression_level(config["compression_type"], config["compression_level"])
    if config["transaction_two_phase_commit_enable"]:
        raise ConfigError(
            "transaction_two_phase_commit_enable: only false is possible: two-phase commits need InitProducerId 6 "
            "(KIP-939), which brokers do not offer"
        )
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
    if config["group_id"] is None and options.get("enable_auto_commit"):
        raise ConfigError("enable_auto_commit needs a group_id")
    if config["group_protocol"] == "consumer":
        given = {name.replace(".", "_") for name in options}
        if config["group_id"] is None and "group_protocol" in given:
            raise ConfigError("group_protocol=consumer needs a group_id")
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"):
            if name in given:
                raise ConfigError(f"{name} goes with group_protocol=classic only: the coordinator has its own")
    elif config["group_remote_assignor"] is not None:
        raise ConfigError("group_remote_assignor goes with group_protocol=consumer only")
    if config["heartbeat_interval_ms"] >= config["session_timeout_ms"]:
        raise ConfigError("heartbeat_interval_ms must be less than session_timeout_ms")
    config["partition_assignment_strategy"] = _assignors(config["partition_assignment_strategy"])
    return config


_OF_SHARE_GROUPS: Final[Mapping[str, str]] = {
    "auto_offset_reset": "the group's setting share.auto.offset.reset",
    "isolation_level": "the group's setting share.isolation.level",
    "session_timeout_ms": "the group's setting share.session.timeout.ms",
    "heartbeat_interval_ms": "the group's setting share.heartbeat.interval.ms",
    "enable_auto_commit": "share_acknowledgement_mode",
}
"""Options of consumers that share groups have elsewhere."""


def resolve_share_consumer(options: Mapping[str, Any]) -> ShareConsumerOptions:
    """All options of a share consumer, checked. Raises ConfigError."""
    for given in options:
        elsewhere = _OF_SHARE_GROUPS.get(given.replace(".", "_"))
        if elsewhere is not None:
            raise ConfigError(f"{given} does not apply to share groups; see {elsewhere}")
    config = cast(ShareConsumerOptions, _resolve(options, cast(Mapping[str, Any], SHARE_CONSUMER_DEFAULTS)))
    if not config["group_id"]:
        raise ConfigError("group_id is required: share consumers read in a group")
    return config


def resolve_admin(options: Mapping[str, Any]) -> AdminOptions:
    """All admin options, checked. Raises ConfigError."""
    return cast(AdminOptions, _resolve(options, cast(Mapping[str, Any], ADMIN_DEFAULTS)))


def parse_servers(servers: Servers) -> list[tuple[str, int]]:
    """(host, port) of each bootstrap server; IPv6 addresses stand in brackets. Raises ConfigError."""
    entries = servers.split(",") if isinstance(servers, str) else _listed("bootstrap_servers", servers, "host:port")
    found = []
    for given in entries:
        if not isinstance(given, str):
            raise ConfigError(f"bootstrap_servers: {given!r} is not host:port")
        entry = given.strip()
        if not entry:
            continue
        host, separator, port = entry.rpartition(":")
        if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"bootstrap_servers: {entry!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ConfigError("bootstrap_servers is empty: expected host:port entries, as a list or separated by commas")
    return found


def _listed(name: str, given: object, kind: str) -> list[Any]:
    """A list of an option's values. Raises ConfigError for what is not iterable."""
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise ConfigError(f"{name}: {given!r} is neither a text nor a list of {kind}")
    return list(given)


def _assignors(given: object) -> list[Any]:
    """Assignors in order of preference, names without spaces. Raises ConfigError."""
    from odradek.client.group.assignors import find_assignors  # a client without groups does not load it

    kind = "names of assignors"
    found = given.split(",") if isinstance(given, str) else _listed("partition_assignment_strategy", given, kind)
    found = [each.strip() if isinstance(each, str) else each for each in found]
    found = [each for each in found if each != ""]
    find_assignors(found)
    return found


def _resolve(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    config = dict(defaults)
    for given, value in options.items():
        name = given.replace(".", "_")
        if name not in defaults:
            raise ConfigError(f"unknown option {given!r}{_suggestion(name, defaults)}")
        config[name] = checked(name, value, defaults[name])
    if not isinstance(config["bootstrap_servers"], str):
        servers = config["bootstrap_servers"]
        config["bootstrap_servers"] = _listed("bootstrap_servers", servers, "host:port")  # it is read more than once
    parse_servers(config["bootstrap_servers"])
    check_security(config)
    return config


def _suggestion(name: str, known: Collection[str]) -> str:
    """What the option may have been meant to be, as the end of a message."""
    if name in _ELSEWHERE:
        return f": its name here is {_ELSEWHERE[name]}"
    if name in _ABSENT:
        return f", which only Java's clients have: {_ABSENT[name]}"
    near = get_close_matches(name, [*known, *_ARGUMENTS], n=1)
    if near:
        return f": did you mean {near[0]!r}?"
    for kind, options in (("consumers", CONSUMER_DEFAULTS), ("producers", PRODUCER_DEFAULTS)):
        if name in options:
            return f": only {kind} have it"
    return ""
