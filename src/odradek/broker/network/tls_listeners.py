"""The TLS listeners of a broker: their contexts, the principals of their clients, connections to other brokers.

A broker without such listeners loads none of the modules for TLS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.broker.configuration.config_errors import ConfigError
from odradek.controller.configs import OperationType, ResourceChanges, ResourceType
from odradek.metadata.configs.catalog import base_name
from odradek.metadata.configs.effects import DYNAMIC_TLS_SETTINGS, TLS_SETTINGS
from odradek.ports.clock import Clock
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import ssl
    from datetime import datetime

    from odradek.api.requests.session import Principal
    from odradek.broker.network.principal_rules import PrincipalRule
    from odradek.ports.network import Secure, Stream
    from odradek.ports.tls import TlsStream
    from odradek.ports.tls_contexts import TlsSettings

logger = logging.getLogger("odradek.security")

ROLE_ATTRIBUTE: Final = "odradek.ssl.role.attribute"
"""The setting that names the attribute of a certificate's subject with roles."""
CHECK_SECONDS: Final = 5.0


class ListenerSettings(Protocol):
    """The part of a broker's configuration that is read here."""

    @property
    def node_id(self) -> int:
        """The broker's id."""
        ...

    def given_listener_text(self, listener_name: str, name: str) -> str:
        """As `listener_text`, but of the file alone."""
        ...

    def listener_text(self, listener_name: str, name: str) -> str:
        """A setting of one listener, set dynamically or in the file, else that of all, else its default."""
        ...


class _Listener(NamedTuple):
    stamps: tuple[object, ...]
    settings: TlsSettings
    rules: Sequence[PrincipalRule]
    server: ssl.SSLContext | None
    """None for a listener of others to which this node connects."""
    client: ssl.SSLContext


class TlsListeners:
    """What each TLS listener accepts connections with, by its name."""

    __slots__ = ("_clock", "_config", "_connects_to", "_listeners", "_problems", "_timer", "check_seconds")

    def __init__(
        self, config: ListenerSettings, names: Iterable[str], clock: Clock, connects_to: Iterable[str] = ()
    ) -> None:
        """`connects_to` are listeners of others, which need no certificate of this node.

        Raises ConfigError, which names the listener and the setting.
        """
        self._config = config
        self._clock = clock
        self._connects_to = frozenset(connects_to)
        self._timer: asyncio.TimerHandle | None = None
        self.check_seconds = CHECK_SECONDS
        """Pause between two looks at the files."""
        self._problems: dict[str, tuple[tuple[object, ...], str]] = {}
        """Why changed files of a listener were not used last, with their stamps."""
        self._listeners = {name: self._load(name, self._stamps(name)) for name in (*names, *self._connects_to)}

    def _load(self, name: str, stamps: tuple[object, ...], text: Callable[[str], str] | None = None) -> _Listener:
        from odradek.broker.network.principal_rules import parse_rules
        from odradek.ports.tls_contexts import (
            TlsSettingError,
            client_context,
            server_context,
            tls_settings,
        )

        try:
            settings = tls_settings(text or partial(self._config.listener_text, name))
            try:
                rules = parse_rules(self._config.listener_text(name, "ssl.principal.mapping.rules"))
            except ValueError as error:
                raise TlsSettingError(f"ssl.principal.mapping.rules: {error}") from error
            server = None if name in self._connects_to else server_context(settings)
            return _Listener(stamps, settings, rules, server, client_context(settings))
        except TlsSettingError as error:
            raise ConfigError(f"listener {name}: {error}") from error

    def watch(self) -> None:
        """Read the stores again whenever their files or dynamic settings change, until `close`.

        Dynamic settings are known by now; without usable ones the file's remain.
        """
        if self._listeners:
            self._check()

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        for name, listener in self._listeners.items():
            stamps = self._stamps(name)
            if stamps != listener.stamps:
                self._listeners[name] = self._reloaded(name, listener, stamps)
        self._timer = asyncio.get_running_loop().call_later(self.check_seconds, self._check)

    def _reloaded(self, name: str, old: _Listener, stamps: tuple[object, ...]) -> _Listener:
        """The listener with the new files; with the old contents where the new ones cannot be used."""
        try:
            if name in self._connects_to:
                return self._load(name, stamps)
            fresh, expiry = self._valid(name, stamps)
        except ValueError as error:
            problem = stamps, str(error)
            if self._problems.get(name) != problem:
                self._problems[name] = problem
                logger.warning("cannot use the changed certificates: %s; connections get the previous ones", error)
            # Stamps do not show when a file can be read: rights are granted, or a descriptor is free.
            return old if _is_unread(error) else old._replace(stamps=stamps)
        logger.info("listener %s has new certificates, valid until %s", name, expiry)
        return fresh

    def _valid(
        self, name: str, stamps: tuple[object, ...], text: Callable[[str], str] | None = None
    ) -> tuple[_Listener, datetime]:
        """A listener whose certificate is valid, and until when. Raises ValueError."""
        from odradek.broker.network.distinguished_names import expiry_of
        from odradek.ports.tls_contexts import own_certificate

        fresh = self._load(name, stamps, text)
        expiry = expiry_of(own_certificate(fresh.settings))
        if expiry.timestamp() * 1000 <= self._clock.now_ms():
            raise ConfigError(f"listener {name}: ssl.keystore.location: the certificate expired at {expiry}")
        return fresh, expiry

    def _stamps(self, name: str) -> tuple[object, ...]:
        """What changes with the stores of a listener: their settings, and their files."""
        from odradek.ports.tls_contexts import TlsSettingError, file_stamps, tls_settings

        texts = {setting: self._config.listener_text(name, setting) for setting in TLS_SETTINGS}
        try:
            return (*texts.values(), *file_stamps(tls_settings(texts.__getitem__)))
        except TlsSettingError as error:
            return (*texts.values(), str(error))

    def check_update(self, resource: ResourceChanges) -> None:
        """Whether dynamic settings of this broker would make TLS listeners that work (KIP-226).

        Raises KafkaError INVALID_REQUEST, which names the listener and the setting.
        """
        if resource.type != ResourceType.BROKER or resource.name != str(self._config.node_id):
            return
        changed: dict[str, dict[str, str | None]] = {}
        if resource.replace:
            # What the request does not name is taken back.
            changed = {name.upper(): dict.fromkeys(DYNAMIC_TLS_SETTINGS) for name in self._listeners}
        for change in resource.changes:
            setting = base_name(change.name)
            if setting in DYNAMIC_TLS_SETTINGS and setting != change.name:
                listener = change.name.split(".", 3)[2].upper()
                is_set = change.operation == OperationType.SET
                changed.setdefault(listener, {})[setting] = change.value if is_set else None
        named = {name.upper(): name for name in self._listeners}
        for upper, texts in changed.items():
            name = named.get(upper)
            if name is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{upper} is no TLS listener of broker {self._config.node_id}"
                )
            text = partial(self._text_with, name, texts)
            if resource.replace and all(text(each) == self._config.listener_text(name, each) for each in texts):
                continue
            try:
                self._valid(name, (), text)
            except ValueError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid config value: {error}") from error

    def _text_with(self, name: str, texts: Mapping[str, str | None], setting: str) -> str:
        if setting not in texts:
            return self._config.listener_text(name, setting)
        text = texts[setting]
        return self._config.given_listener_text(name, setting) if text is None else text.strip()

    def server_context(self, listener_name: str) -> ssl.SSLContext | None:
        """The TLS context of connections to a listener; None for one without TLS."""
        found = self._listeners.get(listener_name)
        return None if found is None else found.server

    def principal(self, listener_name: str, stream: TlsStream) -> Principal:
        """The principal of a connection. Raises ValueError if its certificate gives none."""
        from odradek.broker.network.principal_rules import certificate_principal

        attribute = self._config.listener_text(listener_name, ROLE_ATTRIBUTE).upper()
        return certificate_principal(stream.peer_certificate, self._listeners[listener_name].rules, attribute)

    def authenticates(self, listener_name: str) -> bool:
        """Whether every client of the listener has to show a certificate."""
        found = self._listeners.get(listener_name)
        return found is not None and found.settings.client_auth == "required"

    def connector(self, listener_name: str) -> Secure | None:
        """The wrapper of connections to that listener of other brokers; None for one without TLS."""
        return partial(self._connect, listener_name) if listener_name in self._listeners else None

    async def _connect(self, listener_name: str, stream: Stream, host: str, timeout: float) -> Stream:
        from odradek.ports.tls import connect_tls

        return await connect_tls(stream, self._listeners[listener_name].client, host, timeout)


def _is_unread(error: BaseException | None) -> bool:
    """Whether a file could not be read, rather than used."""
    import ssl

    while error is not None:
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__
    return False
