"""PLAIN (RFC 4616): name and password as they are; for TLS listeners.

authorization id (empty, or the name) NUL name NUL password
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from odradek.security.errors import SaslError

MECHANISM: Final = "PLAIN"
_MAX_MESSAGE_BYTES: Final = 16_384


def plain_message(username: str, password: str) -> bytes:
    """The client's only message. Raises SaslError for a zero byte, which would separate the fields elsewhere."""
    if "\0" in username + password:
        raise SaslError("a user name or password of PLAIN cannot have a zero byte")
    return f"\0{username}\0{password}".encode()


def parse_plain(message: bytes) -> tuple[str, str]:
    """Name and password. Raises SaslError."""
    if len(message) > _MAX_MESSAGE_BYTES:
        raise SaslError("the message is too long")
    try:
        fields = str(message, "utf-8").split("\0")
    except UnicodeDecodeError:
        raise SaslError("the message is not UTF-8") from None
    if len(fields) != 3:
        raise SaslError("the message is not authorization id, name and password")
    authorization, username, password = fields
    if not username or not password:
        raise SaslError("the message has no name or no password")
    if authorization not in ("", username):
        raise SaslError("the authorization id is not the user name")
    return username, password


class PlainUsers:
    """The users that a listener's JAAS configuration names (`user_NAME="PASSWORD"`)."""

    __slots__ = ("_digests",)

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {user: sha256(password.encode()).digest() for user, password in passwords.items()}

    def authenticate(self, message: bytes) -> str:
        """The name of the user whose password the message has. Raises SaslError.

        Takes the same time for an unknown user as for a wrong password.
        """
        username, password = parse_plain(message)
        expected = self._digests.get(username)
        given = sha256(password.encode()).digest()
        if not hmac.compare_digest(given, expected or bytes(len(given))) or expected is None:
            raise SaslError("the name or the password is wrong")
        return username
