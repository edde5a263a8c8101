"""TLS settings: what makes a context, and what is an error that names the setting."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest

from odradek.ports.tls_contexts import (
    TlsSettingError,
    TlsSettings,
    client_context,
    openssl_suite,
    server_context,
    tls_settings,
)
from tests.certificates import Authority

DEFAULTS = {
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "none",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.protocol": "TLSv1.3",
    "ssl.endpoint.identification.algorithm": "https",
}
ALL_OF_1_3 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"


def settings(**given: str) -> TlsSettings:
    texts = DEFAULTS | {f"ssl.{name.replace('_', '.')}": value for name, value in given.items()}
    return tls_settings(lambda name: texts.get(name, ""))


def versions(context: ssl.SSLContext) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    return context.minimum_version, context.maximum_version


def test_versions_are_tls_1_2_and_1_3_unless_limited(tmp_path: Path) -> None:
    newest, older = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2
    store = Authority(tmp_path).issue("/CN=a").both
    assert versions(server_context(settings(keystore_location=store))) == (older, newest)
    assert versions(server_context(settings(keystore_location=store, protocol="TLSv1.2"))) == (older, older)
    limited = settings(keystore_location=store, enabled_protocols="TLSv1.3")
    assert versions(server_context(limited)) == (newest, newest)
    suites = settings(keystore_location=store, cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    context = server_context(suites)
    assert versions(context) == (older, older)
    names = {each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"}
    assert names == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
    assert versions(server_context(settings(keystore_location=store, cipher_suites=ALL_OF_1_3))) == (newest, newest)


def test_contexts_allow_neither_renegotiation_nor_compression(tmp_path: Path) -> None:
    store = Authority(tmp_path).issue("/CN=a").both
    for context in (server_context(settings(keystore_location=store)), client_context(settings())):
        for option in (ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_COMPRESSION):
            assert context.options & option


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Key stores by what is wrong with them."""
    folder = tmp_path_factory.mktemp("stores")
    authority = Authority(folder)
    own, other, locked = authority.issue("/CN=a"), authority.issue("/CN=b"), authority.issue("/CN=c", password="secret")
    (folder / "KEY12").write_bytes(b"\x30\x82\x01\x00")
    (folder / "JAVA").write_bytes(b"\xfe\xed\xfe\xed")
    (folder / "JCEKS").write_bytes(b"\xce\xce\xce\xce")
    (folder / "MIXED").write_text(Path(own.key).read_text() + Path(other.certificate).read_text())
    found = {"STORE": own.both, "CERTIFICATE": own.certificate, "LOCKED": locked.both}
    return found | {name: str(folder / name) for name in ("KEY12", "JAVA", "JCEKS", "MIXED")}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "ssl.keystore.location is not set"),
        ({"keystore_location": "/missing"}, "ssl.keystore.location: /missing: No such file"),
        ({"keystore_type": "BKS"}, "ssl.keystore.type=BKS: JKS, PKCS12 or PEM"),
        ({"client_auth": "maybe"}, "ssl.client.auth=maybe"),
        ({"keystore_location": "STORE", "client_auth": "required"}, "required needs ssl.truststore.location"),
        ({"keystore_location": "STORE", "client_auth": "requested"}, "requested needs ssl.truststore.location"),
        ({"enabled_protocols": "TLSv1.1,TLSv1.2"}, "ssl.enabled.protocols=TLSv1.1"),
        ({"protocol": "SSLv3"}, "ssl.protocol=SSLv3"),
        ({"keystore_key": "x"}, "ssl.keystore.certificate.chain must be set together"),
        ({"keystore_location": "STORE", "keystore_key": "x", "keystore_certificate_chain": "x"}, "cannot be set tog"),
        ({"keystore_location": "STORE", "cipher_suites": "TLS_AES_128_GCM_SHA256"}, "cannot be chosen one by one"),
        ({"keystore_location": "STORE", "cipher_suites": "TLS_NO_SUCH"}, "TLS_NO_SUCH is not known"),
        ({"keystore_location": "CERTIFICATE"}, "no private key"),
        ({"keystore_location": "MIXED"}, "the private key does not belong to the first certificate"),
        ({"keystore_location": "LOCKED"}, "ssl.key.password"),
        ({"keystore_location": "LOCKED", "key_password": "wrong"}, "ssl.key.password"),
        ({"keystore_location": "KEY12"}, "KEY12: the password is wrong, or the store is damaged$"),
        ({"keystore_location": "JAVA"}, "JAVA: the JKS store is damaged; or convert it: keytool"),
        ({"keystore_location": "JCEKS"}, "JCEKS: JCEKS is not supported, .*; or convert it: keytool"),
        ({"keystore_location": "STORE", "keystore_password": "x"}, "ssl.keystore.password is for JKS and PKCS12"),
        (
            {
                "keystore_location": "STORE",
                "client_auth": "required",
                "truststore_location": "STORE",
                "truststore_password": "x",
            },
            "has no password$",
        ),
        ({"endpoint_identification_algorithm": "ldaps"}, "ssl.endpoint.identification.algorithm=ldaps"),
    ],
)
def test_unusable_settings_name_what_is_wrong(given: dict[str, str], text: str, files: dict[str, str]) -> None:
    with pytest.raises(TlsSettingError, match=text):
        server_context(settings(**{name: files.get(value, value) for name, value in given.items()}))


@pytest.mark.parametrize("joined", ["\n", " "])
def test_key_and_certificates_may_stand_in_the_configuration(joined: str, tmp_path: Path) -> None:
    """Properties files often have PEM text on one line, with spaces for the line ends."""
    authority = Authority(tmp_path)
    own = authority.issue("/CN=a", password="secret")
    key, chain, trusted = (
        Path(file).read_text().strip().replace("\n", joined) for file in (own.key, own.certificate, authority.file)
    )
    found = settings(
        keystore_key=key,
        keystore_certificate_chain=chain,
        key_password="secret",
        truststore_certificates=trusted,
        client_auth="required",
    )
    assert server_context(found).cert_store_stats()["x509"] == 1
    assert client_context(found).cert_store_stats()["x509"] == 1


def test_client_verifies_host_names_unless_that_is_disabled() -> None:
    assert client_context(settings()).check_hostname
    unchecked = client_context(settings(endpoint_identification_algorithm=""))
    assert not unchecked.check_hostname
    assert unchecked.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_suites_have_the_names_of_java(java: str, openssl: str) -> None:
    assert openssl_suite(java) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def test_suites_of_tls_1_2_are_modern_unless_set(tmp_path: Path) -> None:
    store = Authority(tmp_path).issue("/CN=a").both
    names = {each["name"] for each in server_context(settings(keystore_location=store)).get_ciphers()}
    assert {name for name in names if "GCM" not in name and "CHACHA20" not in name} == set()
    chosen = settings(keystore_location=store, cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384")
    assert "ECDHE-ECDSA-AES256-SHA384" in {each["name"] for each in server_context(chosen).get_ciphers()}


def test_connection_gets_one_ticket_that_resumes_the_next_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    accepting = server_context(settings(keystore_location=authority.issue("/CN=localhost").both))
    assert accepting.num_tickets == 1
    connecting = client_context(settings(truststore_location=authority.file))
    first = shaken(connecting, accepting, None)
    assert not first.session_reused
    assert shaken(connecting, accepting, first.session).session_reused


def shaken(connecting: ssl.SSLContext, accepting: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLObject:
    """The client's side of a connection after its handshake, with the server's tickets."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = connecting.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
    server = accepting.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    server.write(b"x")
    assert client.read() == b"x"
    return client
