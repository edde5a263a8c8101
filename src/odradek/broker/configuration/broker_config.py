"""The broker's own configuration: a stock `server.properties`, what the command line adds, what is set while it runs.

Each setting of Kafka is implemented, harmless or refused (`odradek.metadata.configs.effects`); `without_effect` groups
the given ones that are harmless. An unknown name, an invalid value or a refused setting is a `ConfigError`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.configuration.config_errors import ConfigError, Problem, config_error
from odradek.broker.configuration.properties import parse_properties
from odradek.broker.configuration.refusals import is_combined, is_controller_only, refusals
from odradek.log.directories.ownership import has_first_records
from odradek.metadata.configs.catalog import (
    BROKER,
    LISTENER_PREFIX,
    broker_definition,
    broker_synonyms,
    check_broker_value,
    topic_settings,
    validate_dynamic_broker_configs,
)
from odradek.metadata.configs.definitions import ConfigSource, InvalidConfig, SetValue, Value, plain_text, split_list
from odradek.metadata.configs.effect_rules import effect_of, ensure_not_refused, grouped, refusal, suggestion
from odradek.metadata.configs.effects import CONTROLLER_SETTINGS, QUORUM_SETTINGS
from odradek.ports.disk import Disk, SystemDisk

if TYPE_CHECKING:
    from odradek.ports.config_providers import Resolved

logger = logging.getLogger(__name__)


class Listener(NamedTuple):
    """An address to bind (host "" is every interface) or to advertise to clients."""

    name: str
    host: str
    port: int
    security_protocol: str


ALL_INTERFACES = "PLAINTEXT://:9092"
"""Kafka's default of `listeners`."""
LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]"))
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_NODE_ID = 1
_SERVER = re.compile(r"[^:\s]+(:\d{1,5})?|\[[^\s\]]+\](:\d{1,5})?")
"""HOST:PORT of a ZooKeeper server, whose port has a default."""

Changed = Callable[[frozenset[str]], None]


class BrokerConfig:
    """Typed values by Kafka's names. The stronger source wins: dynamic here, dynamic for all, file, default."""

    __slots__ = (
        "_changed",
        "_defaults",
        "_dynamic",
        "_dynamic_default",
        "_given",
        "_typed",
        "is_formatted",
        "revision",
    )

    def __init__(
        self,
        settings: Mapping[str, str],
        origins: Mapping[str, str] | None = None,
        *,
        is_single: bool = False,
        is_formatted: bool = False,
    ) -> None:
        """Settings as in a properties file; `origins` are the places that errors name (FILE:LINE), by setting.

        `is_single`: the cluster has this broker only, unless a metadata store is named. `is_formatted`: `storage
        format` has prepared the directories. Raises ConfigError with all problems that were found.
        """
        self.is_formatted = is_formatted
        self._defaults = _defaults_beside(settings, is_single=is_single)
        self._given = _with_both_ids(dict(settings))
        self._dynamic: Mapping[str, str] = {}
        self._dynamic_default: Mapping[str, str] = {}
        self._typed: dict[str, Value] = {}
        self.revision = 0
        """How often dynamic settings were applied: until it changes, all values stay the same."""
        self._changed: list[tuple[frozenset[str], Changed]] = []
        problems = [problem for name, text in settings.items() for problem in _problems(name, text)]
        problems += self._problems_together({problem.name for problem in problems})
        if problems:
            raise config_error(problems, origins or {})

    @classmethod
    def load(
        cls,
        path: str | None = None,
        overrides: Mapping[str, str] | None = None,
        *,
        disk: Disk | None = None,
        is_single: bool = False,
        is_formatted: bool | None = None,
    ) -> BrokerConfig:
        """Read a properties file (UTF-8 or ISO 8859-1) and put the overrides over it. Raises ConfigError.

        `is_formatted` as of the constructor; None looks at the directories.
        """
        disk = disk or SystemDisk()
        settings: dict[str, str] = {}
        origins: dict[str, str] = {}
        secrets: tuple[str, ...] = ()
        if path is not None:
            read = disk.read_file
            try:
                data = read(path)
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}") from error
            for name, found in parse_properties(data, path).items():
                settings[name] = found.text
                origins[name] = f"{path}:{found.line}"
            if "config.providers" in settings:
                settings, secrets = _resolved(settings, read, path)
        for name, text in (overrides or {}).items():
            settings[name] = text
            origins[name] = "command line"
        if is_formatted is None:
            is_formatted = has_first_records(disk, _metadata_directory(settings))
        try:
            return cls(settings, origins, is_single=is_single, is_formatted=is_formatted)
        except ConfigError as error:
            if any(each in str(error) for each in secrets):
                raise ConfigError(_without(secrets, str(error))) from None
            raise

    # --- typed values ---

    def value(self, name: str) -> Value:
        """The typed value; KeyError for a name that is not defined: a programming error."""
        try:
            return self._typed[name]
        except KeyError:
            value = self._typed[name] = self._resolve(name)
            return value

    def number(self, name: str) -> int:
        """INT, SHORT or LONG. TypeError for another type or a value that is not set: a programming error."""
        value = self.value(name)
        if type(value) is not int:
            raise TypeError(f"{name} is {value!r}, not a number")
        return value

    def optional_number(self, name: str) -> int | None:
        """The value of a numeric configuration; None if it is not set."""
        return None if self.value(name) is None else self.number(name)

    def real(self, name: str) -> float:
        """The value of a floating-point configuration."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}, not a number")
        return float(value)

    def text(self, name: str) -> str:
        """STRING, CLASS or PASSWORD; an unset one is the empty string."""
        value = self.value(name)
        return "" if value is None else value if isinstance(value, str) else plain_text(value) or ""

    def flag(self, name: str) -> bool:
        """The value of a boolean configuration."""
        value = self.value(name)
        if not isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}, not true or false")
        return value

    def words(self, name: str) -> list[str]:
        """LIST; an unset one is empty."""
        value = self.value(name)
        return list(value) if isinstance(value, tuple) else list(split_list(plain_text(value) or ""))

    # --- where values come from ---

    def given(self, name: str) -> str | None:
        """The text in the file or on the command line."""
        return self._given.get(name)

    def listener_text(self, listener_name: str, name: str) -> str:
        """A setting of one listener (`listener.name.NAME.…`), else that of all, else its default.

        Key and trust stores of one listener may be set dynamically, which counts first.
        """
        wanted = f"{LISTENER_PREFIX}{listener_name.lower()}.{name}"
        for each, text in self._dynamic.items():
            if each.lower() == wanted:
                return text.strip()
        return self.given_listener_text(listener_name, name)

    def given_listener_text(self, listener_name: str, name: str) -> str:
        """As `listener_text`, but of the file alone.

        Listeners of SASL_SSL read `ssl.client.auth` with their own name only, as in Kafka (KIP-684): the login proves
        who a client is.
        """
        wanted = f"{LISTENER_PREFIX}{listener_name.lower()}.{name}"
        for each, text in self._given.items():
            if each.lower() == wanted:
                return text.strip()
        default = BROKER[name].default or ""
        if name == "ssl.client.auth" and self._has_sasl(listener_name):
            return default
        return self._given.get(name, default).strip()

    def _has_sasl(self, listener_name: str) -> bool:
        named = (each for each in self.all_listeners() if each.name.lower() == listener_name.lower())
        return any(each.security_protocol == "SASL_SSL" for each in named)

    def mechanism_text(self, listener_name: str, mechanism: str, name: str) -> str:
        """A setting of one listener and SASL mechanism from the file, else as `listener_text`."""
        wanted = f"{LISTENER_PREFIX}{listener_name}.{mechanism}.{name}".lower()
        for each, text in self._given.items():
            if each.lower() == wanted:
                return text.strip()
        return self.listener_text(listener_name, name)

    def source(self, name: str) -> ConfigSource:
        """Where the value of a configuration comes from."""
        for _, _, source in self.set_values(name):
            return source
        return ConfigSource.DEFAULT_CONFIG

    def set_values(self, name: str) -> list[SetValue]:
        """Every place that sets this or a name that stands for it, the strongest first (Kafka's synonyms)."""
        names = broker_synonyms(name)
        found = [
            SetValue(synonym, layer[synonym], source)
            for layer, source in (
                (self._dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
                (self._dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
                (self._given, ConfigSource.STATIC_BROKER_CONFIG),
            )
            for synonym in names
            if synonym in layer
        ]
        for synonym in names:
            definition = broker_definition(synonym)
            if definition is not None and definition.default is not None and synonym in BROKER:
                default = self._defaults.get(synonym, definition.default)
                found.append(SetValue(synonym, default, ConfigSource.DEFAULT_CONFIG))
        return found

    def set_names(self) -> set[str]:
        """Names that the file, the command line or a dynamic setting gives."""
        return {*self._given, *self._dynamic, *self._dynamic_default}

    def without_effect(self) -> dict[str, list[str]]:
        """Given names that have no effect here, grouped by what they do in Apache Kafka or by where they have none."""
        found = grouped(self._given)
        if not self.joins_quorum and not is_controller_only(self) and (unused := QUORUM_SETTINGS & self._given.keys()):
            found["nodes of a KRaft cluster, with process.roles=broker or controller"] = sorted(unused)
        controls = is_controller_only(self) or is_combined(self)
        if not controls and (unused := CONTROLLER_SETTINGS & self._given.keys()):
            found["controllers of a KRaft cluster, with process.roles=controller"] = sorted(unused)
        if self.given("ssl.client.auth") not in (None, "none"):
            names = {each.name for each in self.all_listeners() if self._has_sasl(each.name)}
            if names := {each for each in names if self.listener_text(each, "ssl.client.auth") == "none"}:
                found[f"listeners with SASL: {', '.join(sorted(names))}"] = ["ssl.client.auth"]
        return found

    # --- dynamic settings ---

    def apply_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> frozenset[str]:
        """Take the cluster-wide and this broker's dynamic settings; answer the names whose value changed.

        Invalid ones are logged and ignored, as in Kafka (`DynamicBrokerConfig`): an earlier version, a controller of
        Apache Kafka or an administrator of ZooKeeper may have stored them.
        """
        default, own = _valid(default, per_broker=False), _valid(own, per_broker=True)
        before = {
            name: self.value(name)
            for name in {*self._dynamic, *self._dynamic_default, *default, *own}
            if name in BROKER
        }
        self._dynamic_default, self._dynamic = default, own
        self._typed.clear()
        self.revision += 1
        changed = frozenset(name for name, value in before.items() if self.value(name) != value)
        for names, callback in list(self._changed):
            if names & changed:
                callback(names & changed)
        return changed

    def on_change(self, names: Iterable[str], callback: Changed) -> None:
        """Call back with those of the names whose value a dynamic setting changed."""
        self._changed.append((frozenset(names), callback))

    # --- what follows from several settings ---

    @property
    def node_id(self) -> int:
        """`node.id`, or `broker.id` as it was called before KRaft; 1 where neither is given."""
        return self.number("node.id") if "node.id" in self._given else DEFAULT_NODE_ID

    @property
    def joins_quorum(self) -> bool:
        """Whether this process is a broker of a KRaft cluster, and perhaps one of its controllers."""
        return self.words("process.roles") == ["broker"] or is_combined(self)

    @property
    def rack(self) -> str | None:
        """`broker.rack`; None if it is not set."""
        return self.text("broker.rack") or None

    @property
    def log_dirs(self) -> list[str]:
        """Directories of the logs: `log.dirs`, or `log.dir` without it."""
        return [each for each in self.words("log.dirs") or self.words("log.dir") if each]

    def topic_settings(self, overrides: Mapping[str, str]) -> dict[str, Value]:
        """Every setting of a topic by its topic-level name, typed."""
        return topic_settings(overrides, self.value)

    def listeners(self) -> list[Listener]:
        """Addresses to bind, without those of a KRaft controller. Raises ConfigError."""
        controllers = self._controller_listener_names()
        kept = [listener for listener in self._bound_listeners() if listener.name not in controllers]
        if not kept and not is_controller_only(self):
            raise ConfigError("listeners: no listener is left for clients")
        return kept

    def all_listeners(self) -> list[Listener]:
        """Listeners of clients and of KRaft's controller, bound and advertised. Raises ConfigError."""
        advertised = self._given.get("advertised.listeners")
        found = self._bound_listeners()
        if advertised:
            found += self._parse_listeners("advertised.listeners", advertised, distinct_ports=False)
        return found

    def _bound_listeners(self) -> list[Listener]:
        text = self._given.get("listeners")
        if text is None and ("host.name" in self._given or "port" in self._given):
            text = f"PLAINTEXT://{self.text('host.name')}:{self.number('port')}"
        return self._parse_listeners("listeners", text if text is not None else self.text("listeners"))

    def advertised_listeners(self) -> list[Listener]:
        """The addresses that clients receive. The server fills in a host of "" and port 0. Raises ConfigError."""
        text = self._given.get("advertised.listeners")
        controllers = self._controller_listener_names()
        if text:
            found = self._parse_listeners("advertised.listeners", text, distinct_ports=False)
            for listener in found:
                if listener.host == "0.0.0.0":
                    raise ConfigError(
                        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. "
                        "Use a routable IP address."
                    )
            found = [listener for listener in found if listener.name not in controllers]
            unbound = {listener.name for listener in found} - {listener.name for listener in self.listeners()}
            if unbound:
                raise ConfigError(f"advertised.listeners: {', '.join(sorted(unbound))} is not in listeners")
            return found
        found = self.listeners()
        if "advertised.host.name" in self._given or "advertised.port" in self._given:
            host = self.text("advertised.host.name") or self.text("host.name")
            port = self.optional_number("advertised.port") or self.number("port")
            return [listener._replace(host=host, port=port) for listener in found[:1]]
        return [listener._replace(host="") if listener.host in ("0.0.0.0", "::") else listener for listener in found]

    @property
    def inter_broker_listener_name(self) -> str:
        """The listener for connections between brokers."""
        named = self.text("inter.broker.listener.name")
        if named:
            return named.upper()
        protocol = self.text("security.inter.broker.protocol")
        names = [listener.name for listener in self.listeners()]
        return protocol if protocol in names else names[0]

    @property
    def control_plane_listener_name(self) -> str | None:
        """The listener for the controller's connections; None if it has none of its own."""
        return self.text("control.plane.listener.name").upper() or None

    def security_protocols(self) -> dict[str, str]:
        """Listener name -> security protocol. Raises ConfigError."""
        protocols: dict[str, str] = {}
        for part in split_list(self.text("listener.security.protocol.map")):
            name, colon, protocol = part.rpartition(":")
            if not colon or not name or protocol.upper() not in SECURITY_PROTOCOLS:
                raise ConfigError(f"listener.security.protocol.map: {part!r} is not NAME:PROTOCOL")
            protocols[name.strip().upper()] = protocol.strip().upper()
        # KIP-1142: KRaft's controller listeners are plain unless mapped; Kafka's own default map knows none of them.
        for name in self._controller_listener_names():
            protocols.setdefault(name, "PLAINTEXT")
        return protocols

    # --- inner ---

    def _resolve(self, name: str) -> Value:
        definition = broker_definition(name)
        if definition is None:
            raise KeyError(f"no broker configuration is named {name}")
        for layer in (self._dynamic, self._dynamic_default, self._given):
            text = layer.get(name)
            if text is not None:
                return definition.parse(text)
        return definition.parse(self._defaults.get(name, definition.default))

    def _problems_together(self, unreadable: set[str]) -> list[Problem]:
        """Problems of several settings at once; those in `unreadable` have problems of their own."""
        checks: tuple[tuple[str, Callable[[], object]], ...] = (
            ("node.id", self._check_ids),
            ("listener.security.protocol.map", self.security_protocols),
            ("listeners", self.listeners),
            ("advertised.listeners", self.advertised_listeners),
            ("inter.broker.listener.name", self._check_named_listeners),
            ("log.dirs", self._check_log_dirs),
            ("zookeeper.connect", self._check_zookeeper),
        )
        problems: dict[str, Problem] = {}
        for name, check in checks:
            try:
                check()
            except ConfigError as error:
                # Later checks may fail by the same cause.
                problems.setdefault(str(error), Problem(name, str(error)))
            except InvalidConfig:
                assert unreadable, "a value was checked before"
        try:
            return [*problems.values(), *refusals(self)]
        except (ConfigError, InvalidConfig):
            assert problems or unreadable, "the same values were read before"
            return list(problems.values())

    def _check_ids(self) -> None:
        old, new = self._given.get("broker.id"), self._given.get("node.id")
        if old is not None and new is not None and old.strip() != new.strip():
            raise ConfigError("You must set `node.id` to the same value as `broker.id`.")

    def _check_named_listeners(self) -> None:
        names = {listener.name for listener in (*self.advertised_listeners(), *self.listeners())}
        for name in ("inter.broker.listener.name", "control.plane.listener.name"):
            wanted = self.text(name).upper()
            if wanted and wanted not in names:
                raise ConfigError(f"{name}: {wanted} is not among the listeners")
        protocol = self.text("security.inter.broker.protocol")
        if "security.inter.broker.protocol" in self._given and protocol != "PLAINTEXT" and protocol not in names:
            raise ConfigError(f"security.inter.broker.protocol: {protocol} is not among the listeners")
        if self.text("inter.broker.listener.name") and "security.inter.broker.protocol" in self._given:
            raise ConfigError(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
            )

    def _check_log_dirs(self) -> None:
        if not self.log_dirs:
            raise ConfigError("log.dirs: no directory is named")

    def _check_zookeeper(self) -> None:
        servers = self.text("zookeeper.connect").partition("/")[0]
        for server in servers.split(",") if servers else ():
            if not _SERVER.fullmatch(server.strip()):
                raise ConfigError(f"zookeeper.connect: {server!r} is not HOST:PORT")

    def _controller_listener_names(self) -> set[str]:
        return {name.upper() for name in self.words("controller.listener.names")}

    def _parse_listeners(self, name: str, text: str, *, distinct_ports: bool = True) -> list[Listener]:
        protocols = self.security_protocols()
        found: list[Listener] = []
        for part in split_list(text):
            listener = _parse_listener(name, part, protocols)
            if any(listener.name == other.name for other in found):
                raise ConfigError(f"{name}: each listener must have a different name: {text}")
            if distinct_ports and listener.port and any(listener.port == other.port for other in found):
                same = next(other for other in found if other.port == listener.port)
                # Kafka allows one port twice for an IPv4 and an IPv6 address.
                if (":" in same.host) == (":" in listener.host):
                    raise ConfigError(f"{name}: each listener must have a different port: {text}")
            found.append(listener)
        if not found:
            raise ConfigError(f"{name}: at least one listener is needed")
        return found


def _metadata_directory(settings: Mapping[str, str]) -> str:
    """`metadata.log.dir`, or the first directory, of settings that are not checked yet."""
    named = (settings.get(name) for name in ("metadata.log.dir", "log.dirs", "log.dir"))
    text = next((each for each in named if each and each.strip()), BROKER["log.dir"].default or "")
    return text.partition(",")[0].strip()


def _resolved(settings: Mapping[str, str], read: Callable[[str], bytes], path: str) -> Resolved:
    from odradek.ports.config_providers import ProviderError, resolve_references

    try:
        return resolve_references(settings, read)
    except ProviderError as error:
        raise ConfigError(f"{path}: {error}") from error


def _without(secrets: Iterable[str], text: str) -> str:
    """A message in which values of config.providers are not shown."""
    for each in sorted(secrets, key=len, reverse=True):
        text = text.replace(each, "***")
    return text


def is_secret(name: str) -> bool:
    """Whether the value of a setting may be a password or a key."""
    definition = broker_definition(name)
    return definition is not None and definition.is_sensitive


def _problems(name: str, text: str) -> list[Problem]:
    """Problems of one setting by itself."""
    if name.startswith(LISTENER_PREFIX) and not name.removeprefix(LISTENER_PREFIX).partition(".")[2]:
        return [Problem(name, f"{name}: listener.name.NAME.CONFIG expected")]
    if effect_of(name) is None:
        near = suggestion(name)
        return [Problem(name, f"unknown configuration {name}{f' (did you mean {near}?)' if near else ''}")]
    found = _value_problems(name, text)
    if not found and (refused := refusal(name, text)) is not None:
        found = [Problem(name, refused)]
    return found


def _value_problems(name: str, text: str) -> list[Problem]:
    definition = broker_definition(name)
    try:
        if definition is not None:
            check_broker_value(definition, text)
    except InvalidConfig as error:
        return [Problem(name, str(error))]
    return []


def _valid(settings: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """The dynamic settings without those that may not be set while a broker runs, or not to this value."""
    found = {}
    for name, text in settings.items():
        try:
            ensure_not_refused({name: text})
            validate_dynamic_broker_configs({name: text}, per_broker=per_broker)
        except InvalidConfig as error:
            whose = "this broker" if per_broker else "all brokers"
            logger.warning("dynamic setting %s of %s is ignored: %s", name, whose, error)
        else:
            found[name] = text
    return found


def _parse_listener(name: str, text: str, protocols: Mapping[str, str]) -> Listener:
    listener_name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isdecimal() or int(port) > 65535 or "/" in host:
        raise ConfigError(f"{name}: {text!r} is not NAME://HOST:PORT")
    bracketed = host.startswith("[") and host.endswith("]")
    if ":" in host and not bracketed:
        raise ConfigError(f"{name}: {text!r} needs brackets around its IPv6 address")
    listener_name = listener_name.upper()
    protocol = protocols.get(listener_name)
    if protocol is None:
        raise ConfigError(f"{name}: listener.security.protocol.map says nothing of {listener_name}")
    return Listener(listener_name, host[1:-1] if bracketed else host, int(port), protocol)


def _defaults_beside(settings: Mapping[str, str], *, is_single: bool) -> dict[str, str]:
    """Defaults that follow from what is set.

    A broker listens on the loopback address unless its file says that other machines reach it: by an advertised
    address, or by a ZooKeeper on another machine. Then the default is Kafka's, all interfaces. Groups of a single
    broker do not wait for more members: these cannot be waiting for their own brokers to start.
    """
    defaults: dict[str, str] = {}
    advertised = settings.get("advertised.listeners") or settings.get("advertised.host.name")
    servers = "" if "process.roles" in settings else settings.get("zookeeper.connect", "").partition("/")[0]
    hosts = {server.rpartition(":")[0].strip() or server.strip() for server in servers.split(",")}
    if advertised or hosts - {"", *LOOPBACK_NAMES}:
        defaults["listeners"] = ALL_INTERFACES
    if is_single and not servers and not settings.get("odradek.metadata.store"):
        defaults["group.initial.rebalance.delay.ms"] = "0"
    return defaults


def _with_both_ids(settings: dict[str, str]) -> dict[str, str]:
    """`broker.id` and `node.id` are two names of one setting (Kafka's populateSynonyms)."""
    old, new = settings.get("broker.id"), settings.get("node.id")
    if new is not None:
        settings.setdefault("broker.id", new)
    elif old is not None and old.strip() != "-1":
        settings["node.id"] = old
    return settings
