"""Which frames of a connection to a SASL listener are served: the order of Kafka's `SaslServerAuthenticator`."""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import Final

from odradek.api.requests.failures import failure_response
from odradek.api.requests.responses import encode_response
from odradek.api.requests.session import Session
from odradek.api.services.login_service import LoginService
from odradek.broker.network.connection import Disconnect, InboundConnection, Pending
from odradek.broker.network.repeated_lines import RepeatedLines
from odradek.ports.clock import Clock
from odradek.wire.apis import APIS, ApiKey, request_class
from odradek.wire.errors import ErrorCode
from odradek.wire.headers import parse_request_header
from odradek.wire.primitives import DecodeError

_REAUTHENTICATION_SECONDS: Final = 1.0
"""A connection may not authenticate again within this time (Kafka's `KafkaChannel`)."""
_ANSWERED_BYTES: Final = 4096
"""Larger requests in the place of a login's next message are not decoded: the peer is unknown, and its time is ours."""


class Step(Enum):
    """The frames that are expected next."""

    START = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    TOKENS = "SaslAuthenticate"
    RAW_TOKENS = "messages of the mechanism without a request around them"
    OPEN = "any request, until the session expires"


class SaslGate:
    """The gate of one connection."""

    __slots__ = ("_began", "_clock", "_expires", "_lines", "_logins", "_session", "mechanism", "step")

    def __init__(self, session: Session, logins: LoginService, clock: Clock, lines: RepeatedLines) -> None:
        """`lines` is where peers that do not log in are reported."""
        self._session = session
        self._lines = lines
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
            return self._unexpected(key, frame, connection)
        return None

    def _unexpected(self, key: int, frame: memoryview, connection: InboundConnection) -> Pending:
        """Once a mechanism is chosen, another request is answered with ILLEGAL_SASL_STATE; before, with none.

        Raises Disconnect.
        """
        name = APIS[key].name if key in APIS else f"API key {key}"
        reason = f"{name} request during the login, {self.step.value} expected"
        if self.step is not Step.TOKENS:
            self._lines.log(
                logging.INFO,
                "closed a connection from %s to listener %s: %s request without a login; this listener has SASL, the "
                "client needs security.protocol=SASL_SSL or SASL_PLAINTEXT",
                self._session.peer_host, self._session.listener_name, name,
            )  # fmt: skip
            raise Disconnect(reason)
        if len(frame) > _ANSWERED_BYTES or key not in APIS:
            raise Disconnect(reason)
        answer = _illegal_state(frame)
        pending = Pending(connection, False)
        delay = asyncio.get_running_loop().create_task(self._logins.delay())

        def done(_: asyncio.Task[None]) -> None:
            pending.answer([answer])
            connection.end(reason)

        delay.add_done_callback(done)
        return pending

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


def _illegal_state(frame: memoryview) -> bytes | bytearray:
    """The answer to a request of any API. Raises Disconnect for one that cannot be read."""
    try:
        key, version, correlation_id, _, position = parse_request_header(frame)
        if not APIS[key].min_version <= version <= APIS[key].max_version:
            raise Disconnect(f"{APIS[key].name} request in version {version}, which is not supported")
        request, _ = request_class(key).decode(frame, position, version)
    except DecodeError as error:
        raise Disconnect(f"unreadable request: {error}") from error
    answer = failure_response(key, request, version, ErrorCode.ILLEGAL_SASL_STATE)
    return encode_response(answer, key, version, correlation_id)
