"""Which frames a connection to a SASL listener may send, and how others are answered."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from odradek.api.requests.session import Session
from odradek.api.services.login_service import Choice, LoginAnswer
from odradek.broker.network.connection import Disconnect
from odradek.broker.network.repeated_lines import RepeatedLines
from odradek.broker.security.gate import SaslGate, Step
from odradek.ports.clock import SystemClock
from odradek.wire.apis import APIS, ApiKey, request_class, response_class
from odradek.wire.headers import encode_request_header, parse_response_header


class NoLogins:
    """Logins that are never asked, but for the delay."""

    def choose(self, session: Session, mechanism: str, version: int) -> Choice:
        raise AssertionError

    async def step(self, session: Session, message: bytes) -> LoginAnswer:
        raise AssertionError

    async def delay(self) -> None:
        """No delay."""


class Connection:
    """Remembers why it was ended."""

    def __init__(self) -> None:
        self.ended = ""

    def end(self, reason: str) -> None:
        self.ended = reason


def frame_of(key: int, version: int) -> bytes:
    out = bytearray()
    encode_request_header(out, key, version, 7, "peer")
    request_class(key)().encode(out, version)
    return bytes(out)


def gate_that_expects_tokens() -> SaslGate:
    clock = SystemClock()
    gate = SaslGate(Session("SASL", "peer"), NoLogins(), clock, RepeatedLines(logging.getLogger("test"), clock))
    gate.expect_tokens(1)
    return gate


OTHERS = [
    (key, version)
    for key, spec in APIS.items()
    if key != ApiKey.SASL_AUTHENTICATE
    for version in sorted({spec.min_version, spec.max_version})
]


@pytest.mark.parametrize(("key", "version"), OTHERS)
def test_any_other_request_than_a_token_is_answered_in_its_own_form(key: int, version: int) -> None:
    async def scenario() -> bytes:
        connection: Any = Connection()
        pending = gate_that_expects_tokens()(memoryview(frame_of(key, version)), connection)
        assert pending is not None
        while not connection.ended:
            await asyncio.sleep(0)
        parts: Any = pending.parts
        return b"".join(parts)

    data = memoryview(asyncio.run(scenario()))[4:]
    correlation_id, position = parse_response_header(data, key, version)
    assert correlation_id == 7
    response_class(key).decode(data, position, version)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0\1", b"\x7f\xff\0\0\0\0\0\7\0\0", frame_of(3, 12)[:4] + b"\xff" * 9, frame_of(3, 12) + bytes(5000)],
)
def test_frame_that_is_no_short_request_closes_the_connection(frame: bytes) -> None:
    async def scenario() -> None:
        connection: Any = Connection()
        with pytest.raises(Disconnect):
            gate_that_expects_tokens()(memoryview(frame), connection)

    asyncio.run(scenario())


def test_first_request_that_needs_a_login_is_not_answered() -> None:
    gate = gate_that_expects_tokens()
    gate.step = Step.START
    connection: Any = Connection()
    with pytest.raises(Disconnect, match="Metadata request during the login"):
        gate(memoryview(frame_of(3, 12)), connection)
