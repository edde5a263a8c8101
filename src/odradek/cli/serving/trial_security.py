"""`odradek serve --security`: an authority, certificates and an administrator for a broker or cluster to try out.

The files lie in a folder beside the data, which later starts use again. What needs more care than a trial, such as an
authority whose key is elsewhere, is described in docs/SECURITY.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.cli.arguments.errors import UsageError
from odradek.client.admin.enums import ScramMechanism
from odradek.client.admin.users import DEFAULT_ITERATIONS, ScramUpsertion
from odradek.ports.disk import SystemDisk
from odradek.ports.installation import install_hint
from odradek.ports.store import StoreError

if TYPE_CHECKING:
    from cryptography import x509

ADMINISTRATOR: Final = "admin"
AUTHORITY_FILE: Final = "ca.pem"
BROKER_FILE: Final = "broker.pem"
CLIENT_FILE: Final = "admin.properties"
PROTOCOL: Final = "SASL_SSL"
_MECHANISM: Final = ScramMechanism.SCRAM_SHA_512
_AUTHORITY_DAYS: Final = 3650
_BROKER_DAYS: Final = 365
_PASSWORD_BYTES: Final = 18
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def folder_beside(data: str) -> Path:
    """The folder of the files for a data folder."""
    return Path(f"{os.path.abspath(data)}-security")


def security_settings(folder: Path) -> dict[str, str]:
    """Settings of a broker with these files, beside its listener."""
    name = f"listener.name.{PROTOCOL.lower()}"
    return {
        "security.inter.broker.protocol": PROTOCOL,
        f"{name}.ssl.keystore.type": "PEM",
        f"{name}.ssl.keystore.location": str(folder / BROKER_FILE),
        f"{name}.ssl.truststore.type": "PEM",
        f"{name}.ssl.truststore.location": str(folder / AUTHORITY_FILE),
        "sasl.enabled.mechanisms": _MECHANISM.mechanism_name,
        "authorizer.class.name": _AUTHORIZER,
        "super.users": f"User:{ADMINISTRATOR}",
    }


def prepare(folder: Path, data: str, host: str) -> None:
    """Make the files, and the administrator in the metadata store below `data`, unless they exist.

    Raises UsageError.
    """
    wanted = (AUTHORITY_FILE, BROKER_FILE, CLIENT_FILE)
    missing = [name for name in wanted if not (folder / name).exists()]
    if not missing:
        return
    if len(missing) < len(wanted):
        raise UsageError(f"--security: {folder} has no {missing[0]}; remove the folder to make all files again")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority, broker = _certificates(host)
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        _create_administrator(data, password)
        _write(folder / AUTHORITY_FILE, authority)
        _write(folder / BROKER_FILE, broker)
        _write(folder / CLIENT_FILE, _client_properties(folder, password))
    except OSError as error:
        raise UsageError(f"--security: {error.filename or folder}: {error.strerror or error}") from error


def _client_properties(folder: Path, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return (
        f"security.protocol={PROTOCOL}\n"
        f"sasl.mechanism={_MECHANISM.mechanism_name}\n"
        f'sasl.jaas.config={module} required username="{ADMINISTRATOR}" password="{password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={folder / AUTHORITY_FILE}\n"
    )


def _create_administrator(data: str, password: str) -> None:
    from odradek.broker.security.stored_users import BrokersRunning, alter_stored_users

    user = ScramUpsertion(ADMINISTRATOR, _MECHANISM, password, DEFAULT_ITERATIONS)
    try:
        outcome = asyncio.run(alter_stored_users(BrokerConfig({"log.dirs": data}), SystemDisk(), [user]))
    except BrokersRunning:
        raise UsageError(f"--security: brokers with data in {data} are running") from None
    except StoreError as error:
        raise UsageError(f"--security: {error}") from error
    for failure in outcome.values():
        if failure is not None:
            raise UsageError(f"--security: {failure}")


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _certificates(host: str) -> tuple[str, str]:
    """The authority's certificate, and the broker's with its key, in PEM. The authority's key is not kept."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError as error:
        raise UsageError(f"--security needs {error.name}: {install_hint('keystores')}") from error
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name, name = _name("Odradek trial authority"), _name("localhost")
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
         "decipher_only"), False,
    )  # fmt: skip
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key(), _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage, digital_signature=False, key_cert_sign=True, crl_sign=True), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), False)
        .sign(authority_key, hashes.SHA256())
    )
    broker = (
        _builder(name, authority_name, key.public_key(), _BROKER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage, digital_signature=True, key_cert_sign=False, crl_sign=False), True)
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return authority.public_bytes(Encoding.PEM).decode(), private + broker.public_bytes(Encoding.PEM).decode()


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, public_key: Any, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _names(host: str) -> list[x509.GeneralName]:
    """The names under which clients of this machine and others reach the broker."""
    from cryptography import x509

    found: dict[str, x509.GeneralName] = {}
    for each in ("localhost", "127.0.0.1", "::1", host.strip("[]"), socket.gethostname(), socket.getfqdn()):
        with contextlib.suppress(ValueError):
            found[each] = x509.IPAddress(ipaddress.ip_address(each))
            continue
        if each and each.isascii():
            found[each] = x509.DNSName(each)
    return list(found.values())


def secured(given: Mapping[str, str], address: str) -> dict[str, str]:
    """Settings of the command line with a secured listener at HOST:PORT."""
    return {**given, "listeners": f"{PROTOCOL}://{address}"}
