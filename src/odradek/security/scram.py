"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): credentials, and both sides of an exchange.

    client                                         broker
    n,,n=user,r=client-nonce                  ->
                                              <-   r=client-nonce + server-nonce,s=salt,i=iterations
    c=biws,r=both nonces,p=proof              ->
                                              <-   v=signature of the broker

Channel binding is not offered, as in Kafka. Names and passwords are UTF-8 without SASLprep. `tokenauth=true` in the
first message means that the name is the id of a delegation token (KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from odradek.security.errors import SaslError

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""Limits of credentials in a broker (Kafka's `ScramMechanism`)."""
MAX_CLIENT_ITERATIONS: Final = 1_000_000
"""A client computes no more for a broker that it does not know yet."""
_TOKEN_EXTENSION: Final = "tokenauth"  # noqa: S105 - the name of an extension
_MAX_MESSAGE_BYTES: Final = 16_384
_MIN_SALT_BYTES: Final = 8
_CHOICE_BYTES: Final = 8
"""Bytes of a hash by which an example is chosen; the salt follows."""


class Mechanism(IntEnum):
    """SCRAM mechanisms, by Kafka's numbers (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def config_name(self) -> str:
        """The name of the mechanism in SASL and in the store."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the hash function in hashlib."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()


MECHANISMS: Final = {mechanism.config_name: mechanism for mechanism in Mechanism}
"""By the name of SASL."""


class ScramCredential(NamedTuple):
    """The part of a password that a broker keeps (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Without the keys: it may be printed in a traceback."""
        return f"ScramCredential(iterations={self.iterations})"

    def text(self) -> str:
        """As Kafka stores it."""
        parts = (("salt", self.salt), ("stored_key", self.stored_key), ("server_key", self.server_key))
        encoded = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts]
        return ",".join((*encoded, f"iterations={self.iterations}"))

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Raises ValueError unless `text` made it."""
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        try:
            salt, stored, server = (
                base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored, server, int(fields["iterations"]))
        except (KeyError, binascii.Error) as error:
            raise ValueError("not a SCRAM credential") from error


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2 of a password. Takes milliseconds: not for an event loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential that the broker keeps, derived from the salted password (RFC 5802, section 3)."""
    name = mechanism.hash_name
    client_key = hmac.digest(salted, b"Client Key", name)
    server_key = hmac.digest(salted, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


class PretendedCredentials:
    """What unknown users are answered with: the same salt each time, and keys that no password fits.

    A login of an unknown user costs one HMAC here; that of a known one makes it too, so that both take the same time.
    """

    __slots__ = ("_keys", "_secret")

    def __init__(self, secret: bytes) -> None:
        """`secret` is the same on all brokers, so that the answer does not depend on the broker."""
        self._secret = hmac.digest(secret, b"odradek credentials of unknown users", "sha512")
        self._keys: dict[Mechanism, tuple[bytes, bytes]] = {}
        for mechanism in Mechanism:
            size = hashlib.new(mechanism.hash_name).digest_size
            made = (hmac.digest(self._secret, mechanism.name.encode() + end, "sha512")[:size] for end in (b"1", b"2"))
            self._keys[mechanism] = (next(made), next(made))

    def credential(self, mechanism: Mechanism, user: str, examples: Sequence[ScramCredential]) -> ScramCredential:
        """The credential of a name. It has the iterations and the length of salt of one of the examples."""
        made = hmac.digest(self._secret, user.encode(), "sha512")
        like = examples[int.from_bytes(made[:_CHOICE_BYTES], "big") % len(examples)]
        while len(made) < _CHOICE_BYTES + len(like.salt):
            made += hmac.digest(self._secret, made, "sha512")
        salt = made[_CHOICE_BYTES : _CHOICE_BYTES + len(like.salt)]
        return ScramCredential(salt, *self._keys[mechanism], like.iterations)


class ClientFirst(NamedTuple):
    """The first message of a client, parsed."""

    username: str
    is_token: bool
    """The name is the id of a delegation token."""
    nonce: str
    header: bytes
    """The GS2 header, which the last message repeats."""
    bare: bytes
    """The message without the header: a part of what both sides sign."""


def parse_client_first(message: bytes) -> ClientFirst:
    """Raises SaslError."""
    text = _text(message)
    flag, comma, rest = text.partition(",")
    if flag.startswith("p="):
        raise SaslError("the client demands channel binding, which is not offered")
    if flag not in ("n", "y") or not comma:
        raise SaslError("the first message has no GS2 header")
    authorization, comma, bare = rest.partition(",")
    if not comma or (authorization and not authorization.startswith("a=")):
        raise SaslError("the first message has no GS2 header")
    attributes = bare.split(",")
    if len(attributes) < 2 or not attributes[0].startswith("n=") or not attributes[1].startswith("r="):
        raise SaslError("the first message has no user name and nonce")
    username, nonce = _unescaped(attributes[0][2:]), attributes[1][2:]
    if not username or not nonce or not _is_printable(nonce):
        raise SaslError("the first message has no user name and nonce")
    if authorization and _unescaped(authorization[2:]) not in ("", username):
        raise SaslError("the authorization id is not the user name")
    extensions = _extensions(attributes[2:])
    is_token = extensions.get(_TOKEN_EXTENSION, "").lower() == "true"
    header = text[: len(text) - len(bare)].encode()
    return ClientFirst(username, is_token, nonce, header, bare.encode())


def _extensions(attributes: list[str]) -> dict[str, str]:
    found = {}
    for attribute in attributes:
        name, equals, value = attribute.partition("=")
        if not equals or not name.isalpha() or name == "m" or name in found:
            raise SaslError("the first message has an extension that is not known")
        found[name] = value
    return found


class ScramServer:
    """The broker's side after the first message: `challenge`, then `finish`."""

    __slots__ = ("_credential", "_first", "_mechanism", "_nonce", "_server_first")

    def __init__(self, mechanism: Mechanism, first: ClientFirst, credential: ScramCredential, nonce: str) -> None:
        """`nonce` is fresh and printable, without commas."""
        self._mechanism = mechanism
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + nonce
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}".encode()

    @property
    def challenge(self) -> bytes:
        """The answer to the first message."""
        return self._server_first

    def finish(self, message: bytes) -> bytes:
        """The answer to the last message, which proves the password. Raises SaslError."""
        text = _text(message)
        without_proof, separator, proof_text = text.rpartition(",p=")
        attributes = without_proof.split(",")
        if not separator or len(attributes) < 2 or not attributes[0].startswith("c="):
            raise SaslError("the last message is not channel binding, nonce and proof")
        if _decoded(attributes[0][2:]) != self._first.header:
            raise SaslError("the channel binding is not that of the first message")
        if not hmac.compare_digest(attributes[1].encode(), f"r={self._nonce}".encode()):
            raise SaslError("the nonce is not the one of this exchange")
        proof = _decoded(proof_text)
        name, credential = self._mechanism.hash_name, self._credential
        signed = b",".join((self._first.bare, self._server_first, without_proof.encode()))
        signature = hmac.digest(credential.stored_key, signed, name)
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key):
            raise SaslError("the proof does not fit the credential")
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, name))


class SaltedPassword(Protocol):
    """Computes PBKDF2 for a mechanism, a password, a salt and a number of iterations."""

    def __call__(self, mechanism: Mechanism, password: str, salt: bytes, iterations: int, /) -> bytes:
        """The salted password."""
        ...


class ScramClient:
    """The client's side: `first`, then `prove` and `finish` with the broker's answers, or SaslError."""

    __slots__ = ("_bare", "_expected", "_max_iterations", "_mechanism", "_nonce", "_password")

    def __init__(
        self,
        mechanism: Mechanism,
        username: str,
        password: str,
        nonce: str,
        *,
        is_token: bool = False,
        max_iterations: int = MAX_CLIENT_ITERATIONS,
    ) -> None:
        """`nonce` is fresh and printable, without commas."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._max_iterations = max_iterations
        extension = f",{_TOKEN_EXTENSION}=true" if is_token else ""
        self._bare = f"n={_escaped(username)},r={nonce}{extension}".encode()
        self._expected: bytes | None = None

    @property
    def first(self) -> bytes:
        """The first message."""
        return b"n,," + self._bare

    def prove(self, challenge: bytes, salted: SaltedPassword = salted_password) -> bytes:
        """The proof for the broker's challenge. Computes PBKDF2: not for an event loop."""
        attributes = _text(challenge).split(",")
        if attributes[0].startswith("e="):
            raise SaslError("the broker rejects the user name")
        if len(attributes) < 3 or [each[:2] for each in attributes[:3]] != ["r=", "s=", "i="]:
            raise SaslError("the broker's challenge is not nonce, salt and iterations")
        nonce, salt, count = attributes[0][2:], _decoded(attributes[1][2:]), attributes[2][2:]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError("the broker's nonce does not continue this client's")
        if not count.isdecimal() or not count.isascii() or len(count) > 9:
            raise SaslError("the broker's number of iterations is not a number")
        iterations = int(count)
        if not MIN_ITERATIONS <= iterations <= self._max_iterations:
            raise SaslError(
                f"the broker asks for {iterations} iterations, this client allows "
                f"{MIN_ITERATIONS} to {self._max_iterations}"
            )
        if len(salt) < _MIN_SALT_BYTES:
            raise SaslError("the broker's salt is too short")
        name = self._mechanism.hash_name
        secret = salted(self._mechanism, self._password, salt, iterations)
        client_key = hmac.digest(secret, b"Client Key", name)
        without_proof = f"c=biws,r={nonce}".encode()
        signed = b",".join((self._bare, challenge, without_proof))
        signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
        self._expected = hmac.digest(hmac.digest(secret, b"Server Key", name), signed, name)
        return without_proof + b",p=" + base64.b64encode(_xor(client_key, signature))

    def finish(self, message: bytes) -> None:
        """Verify the broker's signature: it knows the password, too. Raises SaslError."""
        attribute = _text(message).partition(",")[0]
        if attribute.startswith("e="):
            raise SaslError(f"the broker rejects the password: {attribute[2:]}")
        if self._expected is None or not attribute.startswith("v="):
            raise SaslError("the broker's last message has no signature")
        if not hmac.compare_digest(_decoded(attribute[2:]), self._expected):
            raise SaslError("the broker does not know the password: its signature is wrong")


def _text(message: bytes) -> str:
    if len(message) > _MAX_MESSAGE_BYTES:
        raise SaslError("the message is too long")
    try:
        text = str(message, "utf-8")
    except UnicodeDecodeError:
        raise SaslError("the message is not UTF-8") from None
    if "\0" in text:
        raise SaslError("the message has a zero byte")
    return text


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslError("the message has an attribute that is not base64") from None


def _is_printable(nonce: str) -> bool:
    return all("!" <= character <= "~" for character in nonce)


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    parts = name.split("=")
    if any(each[:2] not in ("2C", "3D") for each in parts[1:]):
        raise SaslError("the name has a '=' that is not =2C or =3D")
    return parts[0] + "".join(("," if each[:2] == "2C" else "=") + each[2:] for each in parts[1:])


def _xor(one: bytes, other: bytes) -> bytes:
    if len(one) != len(other):
        raise SaslError("the proof has another length than the mechanism's hash")
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
