"""Key and trust stores of Java, made by the JDK's keytool: a key for localhost, signed by `ca.pem`."""

from __future__ import annotations

import socket
import ssl
import sys
from pathlib import Path

import pytest

from odradek.ports.java_stores import StoreError, WrongPassword, read_store
from odradek.ports.tls_contexts import TlsSettingError, client_context, own_certificate, server_context
from tests.unit.ports.test_tls_contexts import settings

STORES = Path(__file__).with_name("java_stores")
AUTHORITY = ssl.PEM_cert_to_DER_cert((STORES / "ca.pem").read_text())
PASSWORD = "store-secret"
KEY_PASSWORD = {"jks": "key-secret", "pkcs12": ""}


def stores(kind: str) -> dict[str, str]:
    """Settings of a side that has its key and its authorities in stores of that kind."""
    return {
        "keystore_location": str(STORES / f"key.{kind}"),
        "keystore_password": PASSWORD,
        "key_password": KEY_PASSWORD[kind],
        "truststore_location": str(STORES / f"trust.{kind}"),
        "truststore_password": PASSWORD,
    }


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_stores_of_java_serve_mutual_tls(kind: str) -> None:
    found = settings(**stores(kind), client_auth="required")
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    server = server_context(found).wrap_socket(left, server_side=True, do_handshake_on_connect=False)
    client = client_context(found).wrap_socket(right, server_hostname="localhost", do_handshake_on_connect=False)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert server.getpeercert(binary_form=True) == own_certificate(found)
    client.close()
    server.close()


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_chain_begins_with_the_keys_certificate(kind: str) -> None:
    contents = read_store((STORES / f"key.{kind}").read_bytes(), PASSWORD, KEY_PASSWORD[kind], with_key=True)
    assert contents.chain[1:] == (AUTHORITY,)
    assert contents.chain[0] != AUTHORITY


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_trust_store_has_the_authority(kind: str) -> None:
    contents = read_store((STORES / f"trust.{kind}").read_bytes(), PASSWORD, with_key=False)
    assert contents == (None, (), (AUTHORITY,))


def test_jks_trust_store_needs_no_password() -> None:
    """As in Java: without a password its integrity is not checked."""
    assert read_store((STORES / "trust.jks").read_bytes(), "", with_key=False).trusted == (AUTHORITY,)


@pytest.mark.parametrize(
    ("store", "passwords"),
    [
        ("key.jks", ("wrong", "key-secret")),
        ("key.jks", (PASSWORD, "wrong")),
        ("key.jks", (PASSWORD, "")),
        ("trust.jks", ("wrong", "")),
        ("key.pkcs12", ("wrong", "")),
        ("key.pkcs12", ("", "")),
        ("trust.pkcs12", ("wrong", "")),
    ],
)
def test_wrong_password_is_an_error(store: str, passwords: tuple[str, str]) -> None:
    with pytest.raises(WrongPassword) as raised:
        read_store((STORES / store).read_bytes(), *passwords, with_key=True)
    assert "wrong" not in str(raised.value).replace("password is wrong", "").replace("private key is wrong", "")


def test_changed_jks_store_is_an_error() -> None:
    data = bytearray((STORES / "trust.jks").read_bytes())
    data[-30] ^= 1
    with pytest.raises(WrongPassword):
        read_store(bytes(data), PASSWORD, with_key=False)


@pytest.mark.parametrize("size", range(4, 440, 23))
def test_torn_jks_store_is_an_error(size: int) -> None:
    with pytest.raises(StoreError):
        read_store((STORES / "trust.jks").read_bytes()[:size], "", with_key=False)


def test_jks_key_is_not_opened_for_trust() -> None:
    contents = read_store((STORES / "key.jks").read_bytes(), PASSWORD, "wrong", with_key=False)
    assert contents.key is None
    assert AUTHORITY in contents.trusted


def test_pkcs12_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(TlsSettingError, match=r"\[keystores\]\'; or convert it: openssl pkcs12 -in .*key.pkcs12"):
        server_context(settings(**stores("pkcs12")))


def test_contents_do_not_show_the_key() -> None:
    contents = read_store((STORES / "key.jks").read_bytes(), PASSWORD, "key-secret", with_key=True)
    assert contents.key is not None
    assert repr(contents) == "StoreContents(2 certificates, 2 trusted)"
    assert PASSWORD not in repr(settings(**stores("jks")))
