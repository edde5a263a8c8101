"""The broker's own configuration: a stock `server.properties`, what the command line adds, what is set while it runs.

Every name of Kafka's is accepted, whether we act on it or not; `unused_names` says which of the given ones have no
effect here. A name that Kafka never had, or a value it would refuse, is a `ConfigError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek.metadata.config_definitions import ConfigSource, InvalidConfig, SetValue, Value, plain_text, split_list
from odradek.metadata.configs import (
    BROKER,
    LISTENER_PREFIX,
    broker_definition,
    broker_synonyms,
    check_broker_value,
    is_passed_on,
    topic_settings,
)
from odradek.metadata.effective import EFFECTIVE_BROKER_CONFIGS
from odradek.ports.disk import Disk, SystemDisk


class ConfigError(ValueError):
    """A configuration that no broker can start with; the text names the setting."""


class Listener(NamedTuple):
    """An address to bind (host "" is every interface) or to tell clients."""

    name: str
    host: str
    port: int
    security_protocol: str


SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_NODE_ID = 1
_SERVER = re.compile(r"[^:\s]+(:\d{1,5})?|\[[^\s\]]+\](:\d{1,5})?")
"""HOST:PORT of a ZooKeeper server, whose port has a default."""

Changed = Callable[[frozenset[str]], None]


class BrokerConfig:
    """Typed values by Kafka's names. The stronger source wins: dynamic here, dynamic for all, file, default."""

    __slots__ = ("_changed", "_dynamic", "_dynamic_default", "_given", "_typed")

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Settings as in a properties file. Raises ConfigError."""
        self._given = _with_both_ids(dict(settings))
        self._dynamic: Mapping[str, str] = {}
        self._dynamic_default: Mapping[str, str] = {}
        self._typed: dict[str, Value] = {}
        self._changed: list[tuple[frozenset[str], Changed]] = []
        for name, text in self._given.items():
            self._check(name, text)
        self._check_together()

    @classmethod
    def load(
        cls, path: str | None = None, overrides: Mapping[str, str] | None = None, *, disk: Disk | None = None
    ) -> BrokerConfig:
        """Read a properties file (UTF-8 or ISO 8859-1) and put the overrides over it. Raises ConfigError."""
        settings: dict[str, str] = {}
        if path is not None:
            try:
                data = (disk or SystemDisk()).read_file(path)
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}") from error
            settings = parse_properties(data, path)
        settings.update(overrides or {})
        return cls(settings)

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
        return None if self.value(name) is None else self.number(name)

    def real(self, name: str) -> float:
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}, not a number")
        return float(value)

    def text(self, name: str) -> str:
        """STRING, CLASS or PASSWORD; an unset one is the empty string."""
        value = self.value(name)
        return "" if value is None else value if isinstance(value, str) else plain_text(value) or ""

    def flag(self, name: str) -> bool:
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

    def source(self, name: str) -> ConfigSource:
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
                found.append(SetValue(synonym, definition.default, ConfigSource.DEFAULT_CONFIG))
        return found

    def set_names(self) -> set[str]:
        """Names that the file, the command line or a dynamic setting gives."""
        return {*self._given, *self._dynamic, *self._dynamic_default}

    def unused_names(self) -> list[str]:
        """Given names that have no effect here, sorted."""
        return sorted(name for name in self._given if name not in EFFECTIVE_BROKER_CONFIGS)

    # --- dynamic settings ---

    def apply_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> frozenset[str]:
        """Take the cluster-wide and this broker's dynamic settings; answer the names whose value changed.

        Values were validated when they were set; one that cannot be read any more raises ConfigError, nothing changes.
        """
        for name, text in (*default.items(), *own.items()):
            self._check(name, text, strict=False)
        before = {
            name: self.value(name)
            for name in {*self._dynamic, *self._dynamic_default, *default, *own}
            if name in BROKER
        }
        self._dynamic_default, self._dynamic = default, own
        self._typed.clear()
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
    def rack(self) -> str | None:
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
        text = self._given.get("listeners")
        if text is None and ("host.name" in self._given or "port" in self._given):
            text = f"PLAINTEXT://{self.text('host.name')}:{self.number('port')}"
        found = self._parse_listeners("listeners", text if text is not None else self.text("listeners"))
        kept = [listener for listener in found if listener.name not in controllers]
        if not kept:
            raise ConfigError("listeners: no listener is left for clients")
        return kept

    def advertised_listeners(self) -> list[Listener]:
        """What clients are told. A host of "" and port 0 are for the one who binds to fill in. Raises ConfigError."""
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
        named = self.text("inter.broker.listener.name")
        if named:
            return named.upper()
        protocol = self.text("security.inter.broker.protocol")
        names = [listener.name for listener in self.listeners()]
        return protocol if protocol in names else names[0]

    @property
    def control_plane_listener_name(self) -> str | None:
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
        return definition.parse(definition.default)

    def _check(self, name: str, text: str, *, strict: bool = True) -> None:
        definition = broker_definition(name)
        if definition is None:
            if strict and not is_passed_on(name):
                raise ConfigError(f"unknown configuration {name}{_suggestion(name)}")
            return
        try:
            check_broker_value(definition, text)
        except InvalidConfig as error:
            raise ConfigError(str(error)) from error

    def _check_together(self) -> None:
        for name in self._given:
            if name.startswith(LISTENER_PREFIX) and not name.removeprefix(LISTENER_PREFIX).partition(".")[2]:
                raise ConfigError(f"{name}: listener.name.NAME.CONFIG expected")
        advertised = {listener.name for listener in self.advertised_listeners()}
        bound = {listener.name for listener in self.listeners()}
        for name in ("inter.broker.listener.name", "control.plane.listener.name"):
            wanted = self.text(name).upper()
            if wanted and wanted not in bound | advertised:
                raise ConfigError(f"{name}: {wanted} is not among the listeners")
        if self.text("inter.broker.listener.name") and "security.inter.broker.protocol" in self._given:
            raise ConfigError(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
            )
        if not self.log_dirs:
            raise ConfigError("log.dirs: no directory is named")
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


def parse_properties(data: bytes, path: str) -> dict[str, str]:
    """Java's properties syntax. Raises ConfigError for bytes or escapes that cannot be read."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    import javaproperties  # its import takes longer than all the rest of a start without a file

    try:
        return dict(javaproperties.loads(text))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"{path}: {error}") from error


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


def _with_both_ids(settings: dict[str, str]) -> dict[str, str]:
    """`broker.id` and `node.id` are two names of one thing (Kafka's populateSynonyms). Raises ConfigError."""
    old, new = settings.get("broker.id"), settings.get("node.id")
    if old is not None and new is not None and old.strip() != new.strip():
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
    if new is not None:
        settings["broker.id"] = new
    elif old is not None and old.strip() != "-1":
        settings["node.id"] = old
    return settings


def _suggestion(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, BROKER, 1, 0.85)
    return f" (did you mean {near[0]}?)" if near else ""
