"""OAUTHBEARER (RFC 7628, KIP-255): a bearer token in the first message.

n,,^Aauth=Bearer TOKEN^Akey=value^A^A     ->
                                          <-   empty, or {"status":"invalid_token"}
^A after an error                         ->
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.security.errors import SaslError

MECHANISM: Final = "OAUTHBEARER"
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""The broker's answer to a token that it rejects; the client acknowledges it, and the login fails."""
MAX_TOKEN_BYTES: Final = 16_384
_SEPARATOR: Final = "\x01"
_HEADER: Final = re.compile(r"[ny],(?:a=([^,\x01]*))?,\Z")
_KEY: Final = re.compile(r"[A-Za-z]+\Z")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]*\Z")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*\Z")


class BearerMessage(NamedTuple):
    """The first message of a client, parsed."""

    token: str
    authorization_id: str
    """Empty, or the name that the token must be of."""
    extensions: Mapping[str, str]
    """SASL extensions (KIP-342)."""

    def __repr__(self) -> str:
        """Without the token, which proves the identity."""
        return f"BearerMessage(authorization_id={self.authorization_id!r})"


def parse_bearer(message: bytes) -> BearerMessage:
    """Raises SaslError."""
    if len(message) > 2 * MAX_TOKEN_BYTES:
        raise SaslError("the message is too long")
    try:
        text = str(message, "utf-8")
    except UnicodeDecodeError:
        raise SaslError("the message is not UTF-8") from None
    parts = text.split(_SEPARATOR)
    header = _HEADER.match(parts[0])
    if header is None or len(parts) < 4 or parts[-2:] != ["", ""]:
        raise SaslError("the message is not a GS2 header and key-value pairs")
    pairs: dict[str, str] = {}
    for part in parts[1:-2]:
        key, equals, value = part.partition("=")
        if not equals or not _KEY.match(key) or not _VALUE.match(value) or key in pairs:
            raise SaslError("the message has a pair that is not KEY=VALUE")
        pairs[key] = value
    scheme, _, token = pairs.pop("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not _TOKEN.match(token) or len(token) > MAX_TOKEN_BYTES:
        raise SaslError("the message has no bearer token")
    authorization = (header[1] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(token, authorization, pairs)


def bearer_message(token: str, extensions: Mapping[str, str] | None = None) -> bytes:
    """The client's first message. Raises SaslError for a token or an extension that would be parsed otherwise."""
    if not _TOKEN.match(token):
        raise SaslError("the token has characters that no bearer token has")
    pairs = [f"auth=Bearer {token}"]
    for key, value in (extensions or {}).items():
        if key == "auth" or not _KEY.match(key) or not _VALUE.match(value):
            raise SaslError(f"the extension {key!r} is not KEY=VALUE")
        pairs.append(f"{key}={value}")
    return ("n,," + "".join(_SEPARATOR + each for each in pairs) + _SEPARATOR * 2).encode()
