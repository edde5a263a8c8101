"""GSSAPI's exchange around a context of the test."""

from __future__ import annotations

import pytest

from odradek.security.errors import SaslError
from odradek.security.gssapi_exchange import GssapiClient, GssapiServer


class Context:
    """Complete after a number of steps; wrapped messages have a mark."""

    def __init__(self, steps: int, last: bytes = b"") -> None:
        self._steps = steps
        self._last = last

    @property
    def is_complete(self) -> bool:
        return self._steps <= 0

    def step(self, token: bytes | None) -> bytes:
        self._steps -= 1
        return self._last if self.is_complete else b"token"

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped:" + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"wrapped:"):
            raise SaslError("not wrapped")
        return message.removeprefix(b"wrapped:")


@pytest.mark.parametrize(("last", "messages"), [(b"", 2), (b"mutual", 3)])
def test_both_sides_complete_an_exchange(last: bytes, messages: int) -> None:
    server, client = GssapiServer(Context(1, last)), GssapiClient(Context(2 if last else 1, b""))
    message: bytes | None = client.first()
    count = 0
    while message is not None:
        count += 1
        assert not server.is_complete
        message = client.next(server.step(message))
    assert server.is_complete
    assert count == messages


def test_name_that_the_client_writes_last_is_ignored() -> None:
    server = GssapiServer(Context(1))
    server.step(b"token")
    assert server.step(b"wrapped:\x01\0\0\0somebody else") == b""
    assert server.is_complete


@pytest.mark.parametrize("layer", [b"", b"\x01\0", b"\x02\0\0\0", b"\x04\xff\xff\xff", b"\0\0\0\0"])
def test_security_layer_that_was_not_offered_is_rejected(layer: bytes) -> None:
    server = GssapiServer(Context(1))
    server.step(b"token")
    with pytest.raises(SaslError):
        server.step(b"wrapped:" + layer)
    assert not server.is_complete


@pytest.mark.parametrize("answers", [[b"wrapped:\x01\0\0\0"], [b"", b"\x01\0\0\0"]])
def test_messages_out_of_order_are_rejected(answers: list[bytes]) -> None:
    server = GssapiServer(Context(1, b"mutual"))
    server.step(b"token")
    *before, last = answers
    for message in before:
        server.step(message)
    with pytest.raises(SaslError):
        server.step(last)
    assert not server.is_complete


def test_message_after_the_last_one_is_rejected() -> None:
    server = GssapiServer(Context(1))
    server.step(b"token")
    server.step(b"wrapped:\x01\0\0\0")
    with pytest.raises(SaslError, match="complete"):
        server.step(b"")


def test_context_that_never_completes_is_given_up() -> None:
    server = GssapiServer(Context(1000))
    for _ in range(10):
        server.step(b"token")
    with pytest.raises(SaslError, match="not complete"):
        server.step(b"token")


@pytest.mark.parametrize("offer", [b"wrapped:\x06\0\0\0", b"wrapped:\x01", b"\x01\0\0\0"])
def test_client_rejects_a_broker_that_demands_a_layer(offer: bytes) -> None:
    client = GssapiClient(Context(1))
    client.first()
    with pytest.raises(SaslError):
        client.next(offer)
