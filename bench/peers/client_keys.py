"""A client's key and certificate in every form that librdkafka's test of TLS reads (0097), and their authority."""

import datetime as dt
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

PASSWORD = "key-password"
_DAYS = dt.timedelta(days=7)


class ClientKeys:
    """The files of one client in a folder that exists; `broker_authority` is what the client trusts, in PEM."""

    def __init__(self, folder: Path, broker_authority: Path) -> None:
        self._folder = folder
        issuer = _name("Authority of the suites' clients")
        issuer_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        issued = _signed(issuer, issuer, issuer_key.public_key(), issuer_key, is_authority=True)
        own = _signed(_name("testuser"), issuer, key.public_key(), issuer_key, is_authority=False)
        trusted = x509.load_pem_x509_certificate(broker_authority.read_bytes())
        encryption = BestAvailableEncryption(PASSWORD.encode())
        self.authorities = self._write(
            "authorities.pem", *(each.public_bytes(Encoding.PEM) for each in (trusted, issued))
        )
        """Those of brokers and of clients."""
        self.certificate = self._write("client.crt", own.public_bytes(Encoding.PEM))
        self.key = self._write("client.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        self._others = {
            "SSL_pub_der": self._write("client.der", own.public_bytes(Encoding.DER)),
            "SSL_priv_der": self._write(
                "client-key.der", key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
            ),
            "SSL_ca_der": self._write("authority.der", trusted.public_bytes(Encoding.DER)),
            "SSL_pkcs": self._write(
                "client.p12",
                pkcs12.serialize_key_and_certificates(b"testuser", key, own, [trusted, issued], encryption),
            ),
        }

    def environment(self) -> dict[str, str]:
        """Where the test finds the files."""
        files = {**self._others, "SSL_pub_pem": self.certificate, "SSL_priv_pem": self.key}
        files |= {"SSL_all_cas_pem": self.authorities}
        return {**{name: str(path) for name, path in files.items()}, "SSL_password": PASSWORD}

    def of_librdkafka(self) -> dict[str, str]:
        """Settings of a client that presents the certificate."""
        return {
            "ssl.certificate.location": str(self.certificate),
            "ssl.key.location": str(self.key),
            "ssl.key.password": PASSWORD,
        }

    def _write(self, name: str, *contents: bytes) -> Path:
        path = self._folder / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(contents)
        return path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
         "decipher_only"), False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + _DAYS)
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(
            x509.KeyUsage(
                **usage, digital_signature=not is_authority, key_cert_sign=is_authority, crl_sign=is_authority
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
