"""Values that are refused beside other settings: other controllers, metadata elsewhere, protocols of listeners.

`odradek.metadata.configs.effects` has the settings that are refused by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from odradek.broker.configuration.authorizers import AUTHORIZERS, super_users
from odradek.broker.configuration.config_errors import Problem
from odradek.controller.names import CLUSTER_METADATA_TOPIC, name_problem
from odradek.metadata.configs.catalog import BROKER, LISTENER_PREFIX, inner_name
from odradek.metadata.configs.effects import SASL_SETTINGS, TLS_SETTINGS
from odradek.metadata.image import INTERNAL_TOPICS

_LEASE: Final = "odradek.leadership.lease.ms"
_TELEMETRY: Final = "odradek.telemetry.topic"
_MARGIN: Final = "odradek.self.fence.margin.ms"
TLS_PROTOCOLS: Final = frozenset(("SSL", "SASL_SSL"))
"""Security protocols with TLS."""
SASL_PROTOCOLS: Final = frozenset(("SASL_PLAINTEXT", "SASL_SSL"))
"""Security protocols with SASL."""
_LOCAL_HOSTS: Final = frozenset(("", "localhost", "127.0.0.1", "::1", "0.0.0.0"))

_HARMLESS_ALONE: Final = ("true", "audit")
"""Values that restrict no client where there is no authorizer."""
_ROLES: Final = ("odradek.oauthbearer.role.claim.name", "odradek.ssl.role.attribute")
_CONTROLLER_MECHANISM: Final = "sasl.mechanism.controller.protocol"
_BROKER_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LACKING_IN_QUORUM: Final = {
    "odradek.metadata.store": "metadata is in the log of the quorum",
    "control.plane.listener.name": "controllers send nothing to brokers",
}
"""Settings that restrict or protect, or name another store."""
_OTHER_CONTROLLERS: Final = (
    "this node would not join the others but lead a cluster of its own (several brokers need zookeeper.connect, or "
    "`odradek serve --brokers N`)"
)


class RoleSettings(Protocol):
    """The part of a broker's configuration that is read here."""

    @property
    def node_id(self) -> int:
        """The id of this node."""
        ...

    @property
    def is_formatted(self) -> bool:
        """Whether `storage format` has prepared the directories."""
        ...

    @property
    def log_dirs(self) -> list[str]:
        """Directories of the logs."""
        ...

    def given(self, name: str) -> str | None:
        """The text in the file or on the command line."""
        ...

    def listener_text(self, listener_name: str, name: str) -> str:
        """A setting of one listener from the file, else that of all, else its default."""
        ...

    def set_names(self) -> set[str]:
        """Names that are set."""
        ...

    def words(self, name: str) -> list[str]:
        """The members of a list."""
        ...

    def text(self, name: str) -> str:
        """A text; empty when it is not set."""
        ...

    def security_protocols(self) -> Mapping[str, str]:
        """Security protocols by the names of listeners. Raises ConfigError."""
        ...

    def all_listeners(self) -> Sequence[tuple[str, str, int, str]]:
        """Name, host, port and security protocol of all listeners that are bound or advertised."""
        ...


_SESSION: Final = "broker.session.timeout.ms"
_FETCH_TIMEOUT: Final = "controller.quorum.fetch.timeout.ms"


def refusals(config: RoleSettings) -> Iterator[Problem]:
    """Each value that this node cannot follow."""
    protocols = {name: protocol for name, _host, _port, protocol in config.all_listeners()}
    if _joins_quorum(config):
        # The broker connects to the controllers' listener, and has settings of its own for it.
        known = config.security_protocols()
        protocols |= {name.upper(): known[name.upper()] for name in config.words("controller.listener.names")}
    yield from _tls(config, {name for name, protocol in protocols.items() if protocol in TLS_PROTOCOLS})
    yield from _client_certificates(config, protocols)
    yield from _sasl(config, {name for name, protocol in protocols.items() if protocol in SASL_PROTOCOLS})
    yield from _authorizer(config)
    yield from _audit(config)
    yield from _telemetry(config)
    yield from _quorum(config)
    yield from _leases(config)
    metadata, first = config.text("metadata.log.dir"), config.log_dirs[:1]
    if metadata and [metadata] != first and not _joins_quorum(config) and not is_controller_only(config):
        reason = f"metadata lies in the first of log.dirs ({''.join(first)}), or where odradek.metadata.store says"
        yield Problem("metadata.log.dir", f"metadata.log.dir={metadata} is refused: {reason}")


def _leases(config: RoleSettings) -> Iterator[Problem]:
    """A margin that leaves too little of a lease to renew it in time."""
    try:
        lease, margin = (int(config.text(name)) for name in (_LEASE, _MARGIN))
    except ValueError:
        return  # reported for the setting itself
    if margin > lease // 2:
        yield Problem(_MARGIN, f"{_MARGIN}={margin} is refused: it is more than half of {_LEASE}={lease}")


def _tls(config: RoleSettings, listeners: set[str]) -> Iterator[Problem]:
    """TLS settings that no TLS listener reads, and TLS listeners without a certificate."""
    for name in config.set_names():
        prefix, inner = _split(name)
        if inner not in TLS_SETTINGS or not config.given(name) or config.given(name) == BROKER[inner].default:
            continue
        if prefix is not None and prefix not in listeners:
            yield Problem(name, f"{name} is refused: {prefix} is not a listener with TLS")
        elif not listeners:
            yield Problem(name, f"{name} is refused: no listener has TLS")
    controllers = {name.upper() for name in config.words("controller.listener.names")}
    for name in sorted(listeners):
        if name in controllers and config.words("process.roles") == ["broker"]:
            continue  # it only connects there
        if not any(config.listener_text(name, each) for each in ("ssl.keystore.location", "ssl.keystore.key")):
            text = "ssl.keystore.location is not set: a TLS listener needs a key and a certificate"
            yield Problem("listeners", f"listeners: {name} is refused: {text}")


def _client_certificates(config: RoleSettings, protocols: Mapping[str, str]) -> Iterator[Problem]:
    """`ssl.client.auth` where only listeners of SASL_SSL are, which read it with their own name."""
    given = (config.given("ssl.client.auth") or "none").strip().lower()
    if given == "none" or "SSL" in protocols.values():
        return
    for name, protocol in sorted(protocols.items()):
        if protocol == "SASL_SSL":
            own = f"listener.name.{name.lower()}.ssl.client.auth"
            text = f"it has no effect on listener {name}, which has SASL; set {own}"
            yield Problem("ssl.client.auth", f"ssl.client.auth={given} is refused: {text}")
            return


def _authorizer(config: RoleSettings) -> Iterator[Problem]:
    """An authorizer that is not implemented, its settings without one, and super users that are no principals."""
    name = config.text("authorizer.class.name")
    if name and name not in AUTHORIZERS:
        text = f"this version loads no authorizers; implemented are {', '.join(AUTHORIZERS)}"
        yield Problem("authorizer.class.name", f"authorizer.class.name={name} is refused: {text}")
    if not name:
        for restricting in ("super.users", "allow.everyone.if.no.acl.found", "odradek.authorizer.mode"):
            if (given := config.given(restricting)) and given.strip().lower() not in _HARMLESS_ALONE:
                text = "authorizer.class.name is not set, every client may do everything"
                yield Problem(restricting, f"{restricting} is refused: {text}")
        for setting in sorted(config.set_names()):
            if inner_name(setting) in _ROLES and config.given(setting):
                yield Problem(setting, f"{setting} is refused: without authorizer.class.name roles have no effect")
    try:
        super_users(config.text("super.users"))
    except ValueError as error:
        yield Problem("super.users", f"super.users: {error}")


def _telemetry(config: RoleSettings) -> Iterator[Problem]:
    """A topic of clients' metrics that cannot exist, that holds the cluster's own state, or that no push reaches."""
    topic = config.text(_TELEMETRY)
    if not topic:
        return
    reason = name_problem(topic)
    if topic in (*INTERNAL_TOPICS, CLUSTER_METADATA_TOPIC):
        reason = "it is an internal topic"
    elif not config.text("odradek.http.listener"):
        reason = "clients are asked for metrics only with odradek.http.listener"
    if reason is not None:
        yield Problem(_TELEMETRY, f"{_TELEMETRY}={topic} is refused: {reason}")


def _audit(config: RoleSettings) -> Iterator[Problem]:
    """Exclusions without an audit topic, and exclusions of what there is not."""
    names = [f"odradek.audit.exclude.{each}" for each in ("events", "principals", "topics")]
    if (config.given("odradek.audit.topic.enable") or "").strip().lower() != "true":
        for name in names:
            if config.given(name):
                yield Problem(name, f"{name} is refused: odradek.audit.topic.enable is not set, no event is written")
        return
    from odradek.api.audit.selection import check_events  # a broker without an audit topic starts without it

    try:
        check_events(config.words(names[0]))
    except ValueError as error:
        yield Problem(names[0], f"{names[0]}: {error}")
    try:
        super_users(config.text(names[1]))
    except ValueError as error:
        yield Problem(names[1], f"{names[1]}: {error}")


def _sasl(config: RoleSettings, listeners: set[str]) -> Iterator[Problem]:
    """SASL settings that no SASL listener reads, and those that need the name of a listener and a mechanism."""
    for name in config.set_names():
        prefix, inner = _split(name)
        base = inner_name(name)
        if base not in SASL_SETTINGS or not config.given(name) or config.given(name) == BROKER[base].default:
            continue
        if prefix is not None and prefix not in listeners:
            yield Problem(name, f"{name} is refused: {prefix} is not a listener with SASL")
        elif not listeners:
            yield Problem(name, f"{name} is refused: no listener has SASL")
        elif base == "sasl.jaas.config" and inner == base:
            example = f"listener.name.{min(listeners).lower()}.plain.sasl.jaas.config"
            yield Problem(name, f"{name} is refused: a broker reads it of a listener and a mechanism ({example})")


def _split(name: str) -> tuple[str | None, str]:
    """The listener that a name is of, None for all, and the setting."""
    if not name.startswith(LISTENER_PREFIX):
        return None, name
    listener, _, inner = name.removeprefix(LISTENER_PREFIX).partition(".")
    return listener.upper(), inner


def _joins_quorum(config: RoleSettings) -> bool:
    return config.words("process.roles") == ["broker"] or is_combined(config)


def metadata_directory(config: RoleSettings) -> str:
    """The directory of KRaft's metadata log: `metadata.log.dir`, or the first of `log.dirs`."""
    return config.text("metadata.log.dir") or config.log_dirs[0]


def is_combined(config: RoleSettings) -> bool:
    """Whether this process is a broker and a controller of a KRaft cluster.

    A node of both roles that is the only voter of the configuration keeps its metadata in SQLite, and so does one
    without voters and other controllers in the configuration, unless its directories were formatted (`storage format`).
    """
    if sorted(config.words("process.roles")) != ["broker", "controller"]:
        return False
    voters = config.words("controller.quorum.voters")
    if voters:
        return len(voters) > 1
    return config.is_formatted or bool(_other_servers(config))


def has_static_voters(config: RoleSettings) -> bool:
    """Whether the voters are in the configuration, and not in the metadata log (KIP-853)."""
    return bool(config.words("controller.quorum.voters"))


def _other_servers(config: RoleSettings) -> list[str]:
    """Those of `controller.quorum.bootstrap.servers` that are not the one controller of this process."""
    hosts = {host for _name, host, _port, _protocol in config.all_listeners()} | _LOCAL_HOSTS
    servers = config.words("controller.quorum.bootstrap.servers")
    foreign = [server for server in servers if ":" not in server or server.rpartition(":")[0].strip("[]") not in hosts]
    return foreign or servers[1:]


def _joined_quorum(config: RoleSettings) -> Iterator[Problem]:
    """What a broker of a KRaft cluster needs, and what of such a cluster this version lacks."""
    needed = {
        "node.id": config.given("node.id") or config.given("broker.id"),
        "controller.listener.names": config.words("controller.listener.names"),
        "controller.quorum.bootstrap.servers": config.words("controller.quorum.bootstrap.servers")
        or config.words("controller.quorum.voters"),
    }
    for name, found in needed.items():
        if not found:
            yield Problem(name, f"{name} is not set: a broker with process.roles=broker needs it")
    for name in _LACKING_IN_QUORUM:
        if config.given(name):
            yield Problem(name, f"{name} is refused: with process.roles=broker {_LACKING_IN_QUORUM[name]}")
    if (config.given("odradek.audit.topic.enable") or "").strip().lower() == "true":
        name = "odradek.audit.topic.enable"
        yield Problem(name, f"{name} is refused: with process.roles=broker this version writes no audit topic")
    protocols = config.security_protocols()
    between = config.text("inter.broker.listener.name").upper() or config.text("security.inter.broker.protocol")
    listeners = [(between, "sasl.mechanism.inter.broker.protocol")]
    listeners += [(name.upper(), _CONTROLLER_MECHANISM) for name in config.words("controller.listener.names")[:1]]
    for listener, setting in listeners:
        mechanism = config.text(setting)
        if protocols.get(listener) in SASL_PROTOCOLS and mechanism.upper() not in _BROKER_MECHANISMS:
            text = f"brokers log in to listener {listener} with {', '.join(_BROKER_MECHANISMS)}"
            yield Problem(setting, f"{setting}={mechanism} is refused: with process.roles=broker {text}")


def is_controller_only(config: RoleSettings) -> bool:
    """Whether this process is a controller of a KRaft cluster and no broker."""
    return config.words("process.roles") == ["controller"]


def _controller(config: RoleSettings) -> Iterator[Problem]:
    """What a controller of a KRaft cluster needs, and what this version lacks there."""
    voters = {each.partition("@")[0].strip() for each in config.words("controller.quorum.voters")}
    if not (config.given("node.id") or config.given("broker.id")):
        yield Problem("node.id", "node.id is not set: a node with process.roles=controller needs it")
    names = {name.upper() for name in config.words("controller.listener.names")}
    if not names:
        name = "controller.listener.names"
        yield Problem(name, f"{name} is not set: a node with process.roles=controller needs it")
    listeners = [name for name, _host, _port, _protocol in config.all_listeners()]
    if names.isdisjoint(listeners):
        text = f"none of controller.listener.names ({', '.join(sorted(names))}) is among them"
        yield Problem("listeners", f"listeners: {text}: a controller needs an address")
    for name in listeners:
        if names and name not in names and is_controller_only(config):
            text = f"listeners: {name} is refused: a controller has the listeners of controller.listener.names only"
            yield Problem("listeners", text)
    if not voters and not config.words("controller.quorum.bootstrap.servers"):
        name = "controller.quorum.bootstrap.servers"
        yield Problem(name, f"{name} is not set, nor controller.quorum.voters: a controller needs one of them")
    if voters and str(config.node_id) not in voters:
        text = f"node.id={config.node_id} is not among them; this version has no controllers that only observe"
        yield Problem("controller.quorum.voters", f"controller.quorum.voters is refused: {text}")
    for name in ("odradek.metadata.store", "zookeeper.connect"):
        if config.given(name):
            yield Problem(name, f"{name} is refused: with process.roles=controller metadata is in the quorum's log")
    protocols = config.security_protocols()
    for listener in config.words("controller.listener.names")[:1]:
        mechanism = config.text(_CONTROLLER_MECHANISM)
        if protocols.get(listener.upper()) in SASL_PROTOCOLS and mechanism.upper() not in _BROKER_MECHANISMS:
            text = f"controllers log in to listener {listener} with {', '.join(_BROKER_MECHANISMS)}"
            yield Problem(_CONTROLLER_MECHANISM, f"{_CONTROLLER_MECHANISM}={mechanism} is refused: {text}")


def _quorum_lease(config: RoleSettings) -> Iterator[Problem]:
    """A session that is over before a broker could lead in it: see `broker.kraft.heartbeat_lease.lease_ms`."""
    try:
        session, margin, fetch = (int(config.text(name)) for name in (_SESSION, _MARGIN, _FETCH_TIMEOUT))
    except ValueError:
        return  # reported for the setting itself
    if 2 * (session - margin) <= fetch:
        text = f"it must exceed {_MARGIN} ({margin}) and half of {_FETCH_TIMEOUT} ({fetch}) together"
        yield Problem(_SESSION, f"{_SESSION}={session} is refused: {text}")


def _quorum(config: RoleSettings) -> Iterator[Problem]:
    if is_combined(config) or is_controller_only(config):
        yield from _controller(config)
    if _joins_quorum(config):
        yield from _joined_quorum(config)
        yield from _quorum_lease(config)
    if _joins_quorum(config) or is_controller_only(config):
        return
    voters = config.words("controller.quorum.voters")
    others = [voter for voter in voters if voter.partition("@")[0].strip() != str(config.node_id)]
    for name, found in (
        ("controller.quorum.voters", others or voters[1:]),
        ("controller.quorum.bootstrap.servers", _other_servers(config)),
    ):
        if found:
            yield Problem(name, f"{name}={','.join(config.words(name))} is refused: {_OTHER_CONTROLLERS}")
