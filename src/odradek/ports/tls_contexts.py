"""TLS settings (`ssl.*`) of listeners and clients, and the contexts of OpenSSL that follow from them.

Key and trust stores are files in PEM, JKS or PKCS12, recognized by their first bytes, or the PEM text itself in the
configuration (KIP-651).
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from odradek.ports.java_stores import StoreContents, StoreError, WrongPassword, read_store, store_kind

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PROTOCOLS: Final = ("TLS", "TLSv1.2", "TLSv1.3")
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_TLS_1_3_SUITES: Final = frozenset(("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"))
_SERVER_SUITES: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""TLS 1.2 without a setting: forward secrecy and authenticated encryption; Python's default also has CBC suites."""
_SUITE: Final = re.compile(r"TLS_(?:(ECDHE|DHE)_)?(RSA|ECDSA)_WITH_(.+?)_(SHA\d*)")
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_CONVERT: Final = {
    "PKCS12": "openssl pkcs12 -in STORE -out STORE.pem -nodes",
    "JKS": "keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12, then "
    "openssl pkcs12 -in STORE.p12 -out STORE.pem -nodes",
}


class TlsSettingError(ValueError):
    """Settings that make no context; the text names the setting, without its listener."""


class TlsSettings(NamedTuple):
    """The `ssl.*` settings of one listener, or of a client, by Kafka's names."""

    keystore_location: str
    keystore_key: str
    keystore_chain: str
    key_password: str
    truststore_location: str
    truststore_certificates: str
    client_auth: str
    enabled_protocols: tuple[str, ...]
    protocol: str
    cipher_suites: tuple[str, ...]
    identification: str
    keystore_password: str = ""
    """Of JKS and PKCS12, as the next one; the private key has the same, unless `key_password` is set."""
    truststore_password: str = ""
    key_file: str = ""
    """The file of the private key where the key store has certificates only; no setting of Kafka."""

    def __repr__(self) -> str:
        return f"TlsSettings({self.keystore_location!r}, {self.truststore_location!r})"  # no keys, no passwords


def tls_settings(text: Callable[[str], str]) -> TlsSettings:
    """The settings, of which `text` gives each by Kafka's name; an empty text is unset. Raises TlsSettingError."""
    for kind in ("ssl.keystore.type", "ssl.truststore.type"):
        if text(kind).upper() not in ("JKS", "PKCS12", "PEM"):
            raise TlsSettingError(f"{kind}={text(kind)}: JKS, PKCS12 or PEM is expected")
    found = TlsSettings(
        text("ssl.keystore.location"),
        text("ssl.keystore.key"),
        text("ssl.keystore.certificate.chain"),
        text("ssl.key.password"),
        text("ssl.truststore.location"),
        text("ssl.truststore.certificates"),
        text("ssl.client.auth").lower(),
        _words(text("ssl.enabled.protocols")),
        text("ssl.protocol"),
        _words(text("ssl.cipher.suites")),
        text("ssl.endpoint.identification.algorithm").lower(),
        text("ssl.keystore.password"),
        text("ssl.truststore.password"),
    )
    if found.client_auth not in _CLIENT_AUTH:
        raise TlsSettingError(f"ssl.client.auth={found.client_auth}: none, requested or required is expected")
    if found.identification not in ("", "https"):
        raise TlsSettingError(
            f"ssl.endpoint.identification.algorithm={found.identification}: https or nothing is expected"
        )
    unknown = [each for each in found.enabled_protocols if each not in _VERSIONS]
    if unknown or not found.enabled_protocols:
        raise TlsSettingError(f"ssl.enabled.protocols={','.join(unknown)}: TLSv1.2 and TLSv1.3 are possible")
    if found.protocol not in _PROTOCOLS:
        raise TlsSettingError(f"ssl.protocol={found.protocol}: {', '.join(_PROTOCOLS)} are possible")
    if found.keystore_location and (found.keystore_key or found.keystore_chain):
        raise TlsSettingError("ssl.keystore.location and ssl.keystore.key cannot be set together")
    if bool(found.keystore_key) != bool(found.keystore_chain):
        raise TlsSettingError("ssl.keystore.key and ssl.keystore.certificate.chain must be set together")
    if found.truststore_location and found.truststore_certificates:
        raise TlsSettingError("ssl.truststore.location and ssl.truststore.certificates cannot be set together")
    return found


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The side that accepts connections. Raises TlsSettingError."""
    if not settings.keystore_location and not settings.keystore_key:
        raise TlsSettingError("ssl.keystore.location is not set: a TLS listener needs a key and a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if not settings.cipher_suites:
        context.set_ciphers(_SERVER_SUITES)
    _limit(context, settings)
    _load_key(context, settings)
    if settings.client_auth != "none":
        if not settings.truststore_location and not settings.truststore_certificates:
            raise TlsSettingError(f"ssl.client.auth={settings.client_auth} needs ssl.truststore.location")
        _load_trust(context, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    # OpenSSL sends two tickets, for clients that open several connections at a time; each costs 4 % of a handshake.
    context.num_tickets = 1
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The side that connects, with the same key; it trusts the system's authorities where no trust store is set."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, settings)
    if settings.keystore_location or settings.keystore_key:
        _load_key(context, settings)
    if settings.truststore_location or settings.truststore_certificates:
        _load_trust(context, settings)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = settings.identification == "https"
    return context


def file_stamps(settings: TlsSettings) -> tuple[tuple[int, int, int] | None, ...]:
    """What changes with the files of the stores: inode, size and time of each; None for one that is missing."""
    found: list[tuple[int, int, int] | None] = []
    for path in (settings.keystore_location, settings.truststore_location):
        try:
            status = os.stat(path) if path else None
        except OSError:
            status = None
        found.append(None if status is None else (status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def own_certificate(settings: TlsSettings) -> bytes:
    """The first certificate of the key store in DER. Raises TlsSettingError."""
    location, name = settings.keystore_location, "ssl.keystore.location"
    data = _read(location, name) if location else settings.keystore_chain.encode()
    if location and (store := _java_store(location, data, name, settings.keystore_password)) is not None:
        return store.chain[0]
    text = data.decode("latin-1")
    for kind, body in _BLOCK.findall(text):
        if kind == "CERTIFICATE":
            return ssl.PEM_cert_to_DER_cert(_block(kind, body))
    raise TlsSettingError("ssl.keystore.location: the key store has no certificate")


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Protocol versions and cipher suites."""
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    versions = {_VERSIONS[each] for each in settings.enabled_protocols}
    if settings.protocol == "TLSv1.2":
        versions.discard(ssl.TLSVersion.TLSv1_3)
    if settings.cipher_suites:
        versions &= _set_suites(context, settings.cipher_suites)
    if not versions:
        raise TlsSettingError("ssl.enabled.protocols, ssl.protocol and ssl.cipher.suites leave no TLS version")
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _set_suites(context: ssl.SSLContext, suites: Sequence[str]) -> set[ssl.TLSVersion]:
    """Allow these suites only; the versions that have one of them.

    Python chooses among the suites of TLS 1.2. Those of TLS 1.3 are all three, or the version is left out.
    """
    newest = _TLS_1_3_SUITES.intersection(suites)
    if newest and newest != _TLS_1_3_SUITES:
        missing = ", ".join(sorted(_TLS_1_3_SUITES - newest))
        raise TlsSettingError(
            f"ssl.cipher.suites: the suites of TLS 1.3 cannot be chosen one by one; add {missing}, or name none of them"
        )
    versions = {ssl.TLSVersion.TLSv1_3} if newest else set()
    older = [each for each in suites if each not in _TLS_1_3_SUITES]
    for name in older:
        try:
            context.set_ciphers(openssl_suite(name))
        except ssl.SSLError as error:
            raise TlsSettingError(f"ssl.cipher.suites: {name} is not known to {ssl.OPENSSL_VERSION}") from error
    if older:
        context.set_ciphers(":".join(map(openssl_suite, older)))
        versions.add(ssl.TLSVersion.TLSv1_2)
    return versions


def openssl_suite(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2; a name that is not Java's as it is."""
    found = _SUITE.fullmatch(name)
    if found is None:
        return name
    exchange, signature, cipher, digest = found.groups()
    cipher = re.sub(r"^AES_(\d+)", r"AES\1", cipher).removesuffix("_CBC").replace("_", "-")
    parts = [exchange, signature] if exchange else []
    return "-".join((*parts, cipher) if "POLY1305" in cipher else (*parts, cipher, digest))


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    name = "ssl.keystore.location" if settings.keystore_location else "ssl.keystore.key"
    # OpenSSL asks at the terminal for a password that it is not given.
    password = settings.key_password
    try:
        if (text := _java_key(settings, name)) is not None:
            with _as_file(text) as path:
                context.load_cert_chain(path)
        elif settings.keystore_location:
            context.load_cert_chain(settings.keystore_location, settings.key_file or None, lambda: password)
        else:
            with _as_file(f"{rewrapped(settings.keystore_key)}\n{rewrapped(settings.keystore_chain)}") as path:
                context.load_cert_chain(path, password=lambda: password)
    except ssl.SSLError as error:
        raise TlsSettingError(f"{name}: {_why_no_key(error, settings)}") from error
    except OSError as error:
        raise TlsSettingError(f"{name}: {settings.keystore_location}: {error.strerror}") from error


def _java_key(settings: TlsSettings, name: str) -> str | None:
    """Key and certificates of a JKS or PKCS12 store in PEM; None where the settings name no such store."""
    location = settings.keystore_location
    if location:
        data, passwords = _read(location, name), (settings.keystore_password, settings.key_password)
        store = _java_store(location, data, name, *passwords, with_key=True)
        if store is not None:
            if store.key is None or not store.chain:
                raise TlsSettingError(f"{name}: {location}: the store has no private key with its certificate")
            return "\n".join((_pem("PRIVATE KEY", store.key), *(_pem("CERTIFICATE", each) for each in store.chain)))
    if settings.keystore_password:
        raise TlsSettingError(
            "ssl.keystore.password is for JKS and PKCS12; ssl.key.password decrypts the private key of a PEM key store"
        )
    return None


def _why_no_key(error: ssl.SSLError, settings: TlsSettings) -> str:
    location = settings.keystore_location
    place = location or "the text"
    reason = error.reason or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"{place}: the private key does not belong to the first certificate"
    text = _read(location, "ssl.keystore.location") if location else settings.keystore_key.encode()
    if settings.key_file:
        place, text = settings.key_file, _read(settings.key_file, "ssl_keyfile") + text
    if b"PRIVATE KEY-----" not in text:
        return f"{place}: no private key in PEM"
    if b"BEGIN CERTIFICATE-----" not in text and location:
        return f"{place}: no certificate in PEM; key and certificates stand in one file"
    if "DECRYPT" in reason or "PASSWORD" in reason or b"ENCRYPTED" in text:
        return f"{place}: the private key cannot be decrypted with ssl.key.password"
    return f"{place}: no private key with its certificates in PEM ({reason or 'unreadable'})"


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    # Java takes every certificate of a trust store for an anchor, not only those that sign themselves.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN if hasattr(ssl, "VERIFY_X509_PARTIAL_CHAIN") else 0x80000
    location = settings.truststore_location
    name = "ssl.truststore.location" if location else "ssl.truststore.certificates"
    try:
        if (certificates := _java_certificates(settings, name)) is not None:
            context.load_verify_locations(cadata="\n".join(_pem("CERTIFICATE", each) for each in certificates))
        elif location:
            context.load_verify_locations(cafile=location)
        else:
            context.load_verify_locations(cadata=rewrapped(settings.truststore_certificates))
    except ssl.SSLError as error:
        reason = error.reason or "unreadable"
        raise TlsSettingError(f"{name}: {location or 'the text'}: no certificates in PEM ({reason})") from error
    except OSError as error:
        raise TlsSettingError(f"{name}: {location}: {error.strerror}") from error


def _java_certificates(settings: TlsSettings, name: str) -> Sequence[bytes] | None:
    """The certificates of a JKS or PKCS12 store to trust; None where the settings name no such store."""
    location = settings.truststore_location
    if location:
        store = _java_store(location, _read(location, name), name, settings.truststore_password)
        if store is not None:
            if not store.trusted:
                raise TlsSettingError(f"{name}: {location}: the store has no certificate to trust")
            return store.trusted
    if settings.truststore_password:
        raise TlsSettingError("ssl.truststore.password is for JKS and PKCS12; a PEM trust store has no password")
    return None


def _java_store(
    location: str, data: bytes, name: str, password: str, key_password: str = "", *, with_key: bool = False
) -> StoreContents | None:
    """The contents of a JKS or PKCS12 store; None for other files."""
    kind = store_kind(data)
    if kind is None:
        return None
    try:
        return read_store(data, password, key_password, with_key=with_key)
    except StoreError as error:
        how = ""
        if not isinstance(error, WrongPassword):
            how = f"; or convert it: {_CONVERT['PKCS12' if kind == 'PKCS12' else 'JKS'].replace('STORE', location)}"
        raise TlsSettingError(f"{name}: {location}: {error}{how}") from error


def _pem(kind: str, data: bytes) -> str:
    return _block(kind, base64.b64encode(data).decode())


def _read(path: str, name: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise TlsSettingError(f"{name}: {path}: {error.strerror}") from error


def rewrapped(text: str) -> str:
    """PEM text with its line ends, which a properties file often has as spaces."""
    if "\n" in text.strip():
        return text
    return "\n".join(_block(kind, body) for kind, body in _BLOCK.findall(text))


def _block(kind: str, body: str) -> str:
    packed = "".join(body.split())
    lines = "\n".join(packed[at : at + 64] for at in range(0, len(packed), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path under which OpenSSL can read a secret; in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile

    descriptor, path = tempfile.mkstemp()  # of mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)
