"""GSSAPI (RFC 4752): both sides of an exchange around a security context of Kerberos.

    client                                    broker
    tokens of the context                 <-> tokens of the context
    empty, when the context is complete    ->
                                           <- wrapped: security layers (none) and size 0
    wrapped: layer 1 (none), name          ->
                                           <- empty

As in Kafka, there is no security layer: TLS encrypts. The name that the client writes last grants nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

from odradek.security.errors import SaslError

MECHANISM: Final = "GSSAPI"
_NO_LAYER: Final = 1
_HEADER_BYTES: Final = 4
_MAX_STEPS: Final = 10
"""A context of Kerberos is complete after two steps at most."""


class SecurityContext(Protocol):
    """A context of GSSAPI. Calls may block, and raise SaslError."""

    @property
    def is_complete(self) -> bool:
        """Whether both sides know each other."""
        ...

    def step(self, token: bytes | None) -> bytes:
        """The next token for the peer, which may be empty; None begins."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """A message with a proof of its origin."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """A message of the peer."""
        ...


class Step(Enum):
    """The message that is expected next."""

    CONTEXT = "a token of the context"
    ACKNOWLEDGEMENT = "an empty message"
    LAYER = "the choice of a security layer"
    NOTHING = "none"


class GssapiServer:
    """The broker's side. `is_complete` says that the peer is the context's initiator."""

    __slots__ = ("_context", "_count", "_next")

    def __init__(self, context: SecurityContext) -> None:
        self._context = context
        self._next = Step.CONTEXT
        self._count = 0

    @property
    def is_complete(self) -> bool:
        """Whether the peer has proven itself."""
        return self._next is Step.NOTHING

    def step(self, message: bytes) -> bytes:
        """The answer to the client's next message. May block. Raises SaslError."""
        if self._next is Step.CONTEXT:
            return self._token(message)
        if self._next is Step.ACKNOWLEDGEMENT:
            if message:
                raise SaslError("an empty message was expected after the context's last token")
            return self._offer()
        if self._next is Step.LAYER:
            chosen = self._context.unwrap(message)
            if len(chosen) < _HEADER_BYTES or chosen[0] != _NO_LAYER:
                raise SaslError("the client chooses a security layer, which was not offered")
            self._next = Step.NOTHING
            return b""
        raise SaslError("the exchange is complete")

    def _token(self, message: bytes) -> bytes:
        self._count += 1
        if self._count > _MAX_STEPS:
            raise SaslError("the context is not complete after its last step")
        token = self._context.step(message)
        if not self._context.is_complete:
            return token
        if not token:
            return self._offer()
        self._next = Step.ACKNOWLEDGEMENT
        return token

    def _offer(self) -> bytes:
        self._next = Step.LAYER
        return self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)))


class GssapiClient:
    """The client's side: `first`, then `next` with each answer of the broker. Both may block."""

    __slots__ = ("_context", "_is_done")

    def __init__(self, context: SecurityContext) -> None:
        self._context = context
        self._is_done = False

    def first(self) -> bytes:
        """The first message. Raises SaslError."""
        return self._context.step(None)

    def next(self, answer: bytes) -> bytes | None:
        """The message after an answer of the broker; None when the exchange is complete. Raises SaslError."""
        if self._is_done:
            if answer:
                raise SaslError("the broker answered the last message with another one")
            return None
        if not self._context.is_complete:
            return self._context.step(answer)
        offered = self._context.unwrap(answer)
        if len(offered) != _HEADER_BYTES or not offered[0] & _NO_LAYER:
            raise SaslError("the broker demands a security layer, which this client does not have")
        self._is_done = True
        return self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)))
