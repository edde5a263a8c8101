"""Which connections may use delegation tokens, and principals in their messages."""

from __future__ import annotations

from odradek.api.requests.session import ANONYMOUS, Session
from odradek.wire.errors import ErrorCode, KafkaError

USER = "User"


def check_token_request(session: Session) -> str:
    """The requester. Raises KafkaError where nothing has proven the identity, or a token has (KIP-48)."""
    principal = session.principal
    if principal == ANONYMOUS or principal.token_authenticated or session.is_broker:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return str(principal)


def user(kind: str, name: str) -> str:
    """A principal as text. Raises KafkaError unless it is a user."""
    if kind != USER:
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    return f"{kind}:{name}"
