"""DIGEST-MD5 (RFC 2831), the client's side, without security layers: ZooKeeper has no other mechanism with passwords.

    client                                    server
    empty                                  ->
                                           <- realm, nonce, qop, algorithm
    user, nonces, proof                    ->
                                           <- rspauth: the server's proof

The mechanism is obsolete (RFC 6331): a reader of an exchange can guess the password. TLS has to protect it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

from odradek.security.errors import SaslError

MECHANISM: Final = "DIGEST-MD5"
_QOP: Final = "auth"
_COUNT: Final = "00000001"
"""A nonce of the server is used once."""
_MAX_CHALLENGE: Final = 2048
_DIRECTIVE: Final = re.compile(r'[\s,]*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))[\s,]*', re.DOTALL)


class DigestMd5Client:
    """One exchange: `first`, then `next` with each answer of the server."""

    __slots__ = ("_expected", "_host", "_nonce", "_password", "_service", "_user")

    def __init__(self, user: str, password: str, service: str, host: str, nonce: str) -> None:
        """`nonce` is a new random text; `service` and `host` are the server's names in the exchange."""
        self._user = user
        self._password = password
        self._service = service
        self._host = host
        self._nonce = nonce
        self._expected = ""

    def first(self) -> bytes:
        """The first message, which asks for a challenge."""
        return b""

    def next(self, answer: bytes) -> bytes | None:
        """The message after an answer of the server; None when the exchange is complete. Raises SaslError."""
        directives = _directives(answer)
        if self._expected:
            if not hmac.compare_digest(directives.get("rspauth", "").encode(), self._expected.encode()):
                raise SaslError("the server does not prove that it knows the password")
            return None
        return self._response(directives)

    def _response(self, challenge: Mapping[str, str]) -> bytes:
        nonce, realm = challenge.get("nonce", ""), challenge.get("realm", self._host)
        if not nonce:
            raise SaslError("the server's challenge has no nonce")
        if challenge.get("algorithm", "") != "md5-sess":
            raise SaslError("the server's challenge asks for another algorithm than md5-sess")
        if _QOP not in re.split(r"[\s,]+", challenge.get("qop", _QOP)):
            raise SaslError("the server demands a security layer, which this client does not have")
        uri = f"{self._service}/{self._host}"
        secret = _md5(b":".join(_encoded(part) for part in (self._user, realm, self._password)))
        session = _md5(secret + f":{nonce}:{self._nonce}".encode()).hex()
        between = f"{nonce}:{_COUNT}:{self._nonce}:{_QOP}"

        def proof(method: str) -> str:
            return _md5(f"{session}:{between}:{_md5(f'{method}:{uri}'.encode()).hex()}".encode()).hex()

        self._expected = proof("")
        return ",".join(
            (
                "charset=utf-8",
                f"username={_quoted(self._user)}",
                f"realm={_quoted(realm)}",
                f"nonce={_quoted(nonce)}",
                f"nc={_COUNT}",
                f"cnonce={_quoted(self._nonce)}",
                f"digest-uri={_quoted(uri)}",
                f"response={proof('AUTHENTICATE')}",
                f"qop={_QOP}",
            )
        ).encode()


def _directives(message: bytes) -> dict[str, str]:
    if not message:
        raise SaslError("the server answers without a challenge: it has no logins by SASL")
    if len(message) > _MAX_CHALLENGE:
        raise SaslError(f"the server's challenge has more than {_MAX_CHALLENGE} bytes")
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise SaslError("the server's challenge is not UTF-8") from error
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None or match[1].lower() in found:
            raise SaslError("the server's challenge is malformed")
        found[match[1].lower()] = match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2], flags=re.DOTALL)
        position = match.end()
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _encoded(text: str) -> bytes:
    """As RFC 2831, 2.1.2.1: in ISO 8859-1 where that has all characters, although the exchange is in UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> bytes:
    # The mechanism prescribes MD5; interpreters in FIPS mode would reject it otherwise.
    return hashlib.md5(data, usedforsecurity=False).digest()
