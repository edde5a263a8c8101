"""Key and trust stores of Java: JKS, which is read here, and PKCS12, which the extra `odradek[keystores]` reads.

A JKS file (Java's own format, `keytool`'s default up to Java 8) is: magic, version, number of entries, then each entry
with its tag, alias and time; at the end a SHA-1 of the password and all of it. Numbers are big-endian. Private keys are
encrypted with a stream of SHA-1 blocks. Source: the JDK's `sun.security.provider.JavaKeyStore` and `KeyProtector`.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final, NamedTuple

from odradek.ports.installation import install_hint

_JKS: Final = b"\xfe\xed\xfe\xed"
_JCEKS: Final = b"\xce\xce\xce\xce"
_SEQUENCE: Final = 0x30
_OCTET_STRING: Final = 0x04
_PRIVATE_KEY, _TRUSTED = 1, 2
_WHITENER: Final = b"Mighty Aphrodite"
_SHA1_BYTES: Final = 20
_JKS_ENCRYPTION: Final = bytes.fromhex("060a2b060104012a02110101")
"""The algorithm of private keys in JKS, 1.3.6.1.4.1.42.2.17.1.1 in DER."""


class StoreError(ValueError):
    """A store that cannot be read; the text says why, and names neither the file nor a password."""


class WrongPassword(StoreError):
    """The password does not open the store, or the store is damaged."""


class StoreContents(NamedTuple):
    """What TLS needs of a store, in DER."""

    key: bytes | None
    """The first private key, as PKCS #8."""
    chain: tuple[bytes, ...]
    """The certificate of that key, and those that sign it."""
    trusted: tuple[bytes, ...]
    """Certificates to trust: as in Java also those of the private keys themselves."""

    def __repr__(self) -> str:
        return f"StoreContents({len(self.chain)} certificates, {len(self.trusted)} trusted)"


def store_kind(data: bytes) -> str | None:
    """`JKS`, `JCEKS` or `PKCS12`, by the first bytes; None for other files, of which PEM is one."""
    if data.startswith(_JKS):
        return "JKS"
    if data.startswith(_JCEKS):
        return "JCEKS"
    return "PKCS12" if data[:1] == bytes((_SEQUENCE,)) else None


def read_store(data: bytes, password: str, key_password: str = "", *, with_key: bool) -> StoreContents:
    """The contents of a JKS or PKCS12 store.

    Without a password the integrity of a JKS store is not checked, as in Java. `key_password` is that of the store
    where it is empty; `with_key` asks for the private key. Raises StoreError.
    """
    kind = store_kind(data)
    if kind == "JKS":
        try:
            return _read_jks(data, password, key_password or password, with_key)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise StoreError("the JKS store is damaged") from error
    if kind == "PKCS12":
        return _read_pkcs12(data, password)
    raise StoreError(f"{kind or 'this format'} is not supported, JKS, PKCS12 and PEM are")


# --- JKS ---


class _Reader:
    """The fields of a JKS file in their order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise IndexError(end)
        found = self._data[self.position : end]
        self.position = end
        return found

    def number(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def text(self) -> str:
        return self.take(struct.unpack(">H", self.take(2))[0]).decode("utf-8", "surrogatepass")

    def block(self) -> bytes:
        return self.take(self.number())


def _read_jks(data: bytes, password: str, key_password: str, with_key: bool) -> StoreContents:
    reader = _Reader(data)
    reader.take(4)
    version = reader.number()
    if version not in (1, 2):
        raise StoreError(f"version {version} of JKS is not known")
    sealed: bytes | None = None
    chain: tuple[bytes, ...] = ()
    trusted: list[bytes] = []
    for _ in range(reader.number()):
        tag = reader.number()
        reader.text()  # alias
        reader.take(8)  # time of creation
        if tag == _PRIVATE_KEY:
            key = reader.block()
            certificates = tuple(_certificate(reader, version) for _ in range(reader.number()))
            if sealed is None:
                sealed, chain = key, certificates
            trusted += certificates[:1]
        elif tag == _TRUSTED:
            trusted.append(_certificate(reader, version))
        else:
            raise StoreError("the JKS store is damaged")
    _check_integrity(data, reader.position, password)
    opened = _opened_key(sealed, key_password) if sealed is not None and with_key else None
    return StoreContents(opened, chain, tuple(trusted))


def _certificate(reader: _Reader, version: int) -> bytes:
    kind = reader.text() if version > 1 else "X.509"
    if kind != "X.509":
        raise StoreError(f"certificates of the kind {kind} are not known")
    return reader.block()


def _java_text(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _check_integrity(data: bytes, end: int, password: str) -> None:
    if not password:
        return
    digest = hashlib.sha1(_java_text(password) + _WHITENER + data[:end], usedforsecurity=False).digest()
    if not hmac.compare_digest(digest, data[end : end + _SHA1_BYTES]):
        raise WrongPassword("the password is wrong, or the store is damaged")


def _opened_key(sealed: bytes, password: str) -> bytes:
    """PKCS #8 of an entry. The last 20 bytes are the SHA-1 of password and key, the first 20 begin the key stream."""
    _, inner, _ = _der(sealed, _SEQUENCE)
    _, algorithm, after = _der(inner, _SEQUENCE)
    if not algorithm.startswith(_JKS_ENCRYPTION):
        raise StoreError("the private key is encrypted in a way that is not known")
    _, protected, _ = _der(after, _OCTET_STRING)
    if len(protected) <= 2 * _SHA1_BYTES:
        raise StoreError("the JKS store is damaged")
    secret = _java_text(password)
    block = protected[:_SHA1_BYTES]
    encrypted, check = protected[_SHA1_BYTES:-_SHA1_BYTES], protected[-_SHA1_BYTES:]
    stream = bytearray()
    while len(stream) < len(encrypted):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), check):
        raise WrongPassword("the password of the private key is wrong")
    return key


def _der(data: bytes, expected: int) -> tuple[int, bytes, bytes]:
    """Tag, contents and rest of the DER element at the beginning."""
    if data[0] != expected:
        raise StoreError("the private key is not encoded as expected")
    size, start = data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if start + size > len(data):
        raise IndexError(size)
    return data[0], data[start : start + size], data[start + size :]


# --- PKCS12 ---


def _read_pkcs12(data: bytes, password: str) -> StoreContents:
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError as error:
        raise StoreError(f"PKCS12 needs {error.name}: {install_hint('keystores')}") from error
    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError as error:
        raise WrongPassword("the password is wrong, or the store is damaged") from error
    key = None
    if store.key is not None:
        key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    others = [each.certificate for each in store.additional_certs]
    if store.cert is None:
        return StoreContents(key, (), tuple(each.public_bytes(Encoding.DER) for each in others))
    own = store.cert.certificate
    chain, last = [own], own
    while last.issuer != last.subject:
        signer = next((each for each in others if each.subject == last.issuer and each not in chain), None)
        if signer is None:
            break
        chain.append(signer)
        last = signer
    return StoreContents(
        key,
        tuple(each.public_bytes(Encoding.DER) for each in chain),
        tuple(each.public_bytes(Encoding.DER) for each in (*others, own)),
    )
