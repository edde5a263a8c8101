"""Which frames of a connection to a SASL listener are served: the order of Kafka's `SaslServerAuthenticator`."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final

from odradek.api.requests.session import Session
from odradek.api.services.login_service import LoginService
from odradek.broker.network.connection import Disconnect, InboundConnection, Pending
from odradek.ports.clock import Clock
from odradek.wire.apis import APIS, ApiKey

_REAUTHENTICATION_SECONDS: Final = 1.0
"""A connection may not authenticate again within this time (Kafka's `KafkaChannel`)."""


class Step(Enum):
    """The frames that are expected next."""

    START = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    TOKENS = "SaslAuthenticate"
    RAW_TOKENS = "messages of the mechanism without a request around them"
    OPEN = "any request, until the session expires"


class SaslGate:
    """The gate of one connection."""

    __slots__ = ("_began", "_clock", "_expires", "_logins", "_session", "mechanism", "step")

    def __init__(self, session: Session, logins: LoginService, clock: Clock) -> None:
        self._session = session
        self._logins = logins
        self._clock = clock
        self._expires = 0.0
        self._began = -_REAUTHENTICATION_SECONDS
        self.step = Step.START
        self.mechanism = ""
        """The mechanism by which the peer has authenticated; empty before."""

    @property
    def is_reauthenticating(self) -> bool:
        """Whether the peer was authenticated before."""
        return bool(self.mechanism)

    @property
    def admits_handshake(self) -> bool:
        """Whether the peer may choose a mechanism now."""
        return self.step in (Step.START, Step.HANDSHAKE)

    def expect_tokens(self, version: int) -> None:
        """A mechanism is chosen, by SaslHandshake in this version."""
        self.step = Step.TOKENS if version > 0 else Step.RAW_TOKENS

    def open(self, mechanism: str, lifetime_ms: int) -> None:
        """The peer is authenticated. It is served that long, or as long as it likes if `lifetime_ms` is 0."""
        self.mechanism = mechanism
        self.step = Step.OPEN
        if lifetime_ms:
            self._expires = self._clock.monotonic() + lifetime_ms / 1000
        else:
            self._session.remove_gate()

    def __call__(self, frame: memoryview, connection: InboundConnection) -> Pending | None:
        """None to serve the frame; the answer to a message without a request. Raises Disconnect."""
        if self.step is Step.RAW_TOKENS:
            return self._raw(bytes(frame), connection)
        key = int.from_bytes(frame[:2], "big", signed=True)
        if self.step is Step.OPEN:
            self._check_session(key)
        elif not self._is_expected(key, int.from_bytes(frame[2:4], "big", signed=True)):
            raise Disconnect(f"request with API key {key} during the authentication, {self.step.value} expected")
        return None

    def _is_expected(self, key: int, version: int) -> bool:
        if key == ApiKey.API_VERSIONS and self.step is Step.START:
            # A client whose version is too new asks again with an older one.
            if 0 <= version <= APIS[key].max_version:
                self.step = Step.HANDSHAKE
            return True
        if key == ApiKey.SASL_HANDSHAKE:
            return self.admits_handshake
        return key == ApiKey.SASL_AUTHENTICATE and self.step is Step.TOKENS

    def _check_session(self, key: int) -> None:
        now = self._clock.monotonic()
        if key == ApiKey.SASL_HANDSHAKE and now - self._began >= _REAUTHENTICATION_SECONDS:
            self._began = now
            self.step = Step.HANDSHAKE
        elif now >= self._expires:
            raise Disconnect("the session expired, and the client has not authenticated again")

    def _raw(self, message: bytes, connection: InboundConnection) -> Pending:
        """The answer is a frame with the mechanism's message; a failed login has none (Kafka 0.10)."""
        pending = Pending(connection, False)
        task = asyncio.get_running_loop().create_task(self._logins.step(self._session, message))

        def done(finished: asyncio.Task[object]) -> None:
            if finished.cancelled() or finished.exception() is not None:
                connection.close("the login could not be served")
                return
            answer = task.result()
            if answer.ends:
                ending = asyncio.get_running_loop().create_task(self._logins.delay())
                ending.add_done_callback(lambda _: connection.close(answer.ends))
                return
            pending.answer([len(answer.data).to_bytes(4, "big") + answer.data])

        task.add_done_callback(done)
        return pending
