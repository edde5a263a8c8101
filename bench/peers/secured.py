"""Brokers with TLS, SASL and ACLs for other people's suites: certificates, users and settings of clients.

The client's user is no super user, and everything is allowed where no ACL is, as librdkafka's own test clusters do it:
its tests create ACLs for their user and look at what is allowed afterwards.
"""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.broker import BrokerProcess
from bench.peers.client_keys import ClientKeys
from bench.peers.cluster import ClusterProcess
from odradek.cli.serving.trial_security import AUTHORITY_FILE, BROKER_FILE, prepare
from odradek.client import Admin
from odradek.client.admin import ScramMechanism, ScramUpsertion

USER, PASSWORD = "testuser", "testpass"
OPERATOR, OPERATOR_PASSWORD = "operator", "operator-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
CERTIFICATES = "SSL"
"""In the place of a mechanism: clients prove who they are by a certificate."""
HOST = "localhost"
"""Kerberos knows the broker by this name."""
PROTOCOLS = ("SASL_SSL", "SASL_PLAINTEXT", "SSL", "PLAINTEXT")
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OTHERS = {"alice": "alice-secret", "test": "test"}
"""Users that kafka-python's and aiokafka's suites have in their code."""


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class Security:
    """The files of a secured broker in a folder, and a client's settings."""

    def __init__(
        self, folder: Path, data: Path, mechanism: str, issuer_url: str = "", keys: Mapping[str, str] | None = None
    ) -> None:
        """`keys` are key tables by Kerberos name."""
        self.folder = folder
        self.mechanism = mechanism
        self.authority = folder / AUTHORITY_FILE
        self.properties = folder / "server.properties"
        self._issuer_url = issuer_url
        self._keys = keys or {}
        prepare(folder, str(data), "127.0.0.1")
        self.client_keys = ClientKeys(folder, self.authority)

    @property
    def protocol(self) -> str:
        """That of the suites' clients."""
        return "SSL" if self.mechanism == CERTIFICATES else "SASL_SSL"

    def write(self, settings: dict[str, object], listeners: dict[str, int]) -> None:
        """The broker's file; `listeners` are ports by protocol, empty for those of `serve --listen`."""
        possible = {"OAUTHBEARER": self._issuer_url, "GSSAPI": self._keys}
        mechanisms = [each for each in MECHANISMS if possible.get(each, True)]
        users = {USER: PASSWORD, OPERATOR: OPERATOR_PASSWORD, **OTHERS}
        module = " ".join([_MODULE, "required", *(f'user_{name}="{word}"' for name, word in users.items())])
        lines: dict[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.folder / BROKER_FILE,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.client_keys.authorities,
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": ",".join(mechanisms),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": f"User:{OPERATOR}",
            "delegation.token.secret.key": "secret of the suites",
        }
        for protocol in ("sasl_ssl", "sasl_plaintext") if listeners else ("sasl_ssl",):
            lines[f"listener.name.{protocol}.plain.sasl.jaas.config"] = module + ";"
            if self._keys:
                lines[f"listener.name.{protocol}.gssapi.sasl.jaas.config"] = (
                    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
                    f'keyTab="{self._keys[f"kafka/{HOST}"]}" principal="kafka/{HOST}";'
                )
        if self._issuer_url:
            lines["sasl.oauthbearer.jwks.endpoint.url"] = f"{self._issuer_url}/keys"
            lines["sasl.oauthbearer.expected.issuer"] = self._issuer_url
            lines["sasl.oauthbearer.expected.audience"] = "kafka"
        if self.mechanism == CERTIFICATES:
            lines["ssl.client.auth"] = "required"
        if listeners:
            text = ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in listeners.items())
            lines["listeners"] = text
            lines["advertised.listeners"] = text.replace("127.0.0.1", HOST) if self._keys else text
        lines |= settings
        descriptor = os.open(self.properties, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.writelines(f"{name}={value}\n" for name, value in lines.items())

    async def add_users(self, bootstrap: str) -> None:
        """SCRAM credentials of all users."""
        users = {USER: PASSWORD, OPERATOR: OPERATOR_PASSWORD, **OTHERS}
        changes = [
            ScramUpsertion(name, mechanism, word, 4096)
            for name, word in users.items()
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        async with Admin(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_SSL",
            ssl_cafile=str(self.authority),
            sasl_mechanism="PLAIN",
            sasl_plain_username=OPERATOR,
            sasl_plain_password=OPERATOR_PASSWORD,
        ) as admin:
            failures = [each for each in (await admin.users.alter(changes)).values() if each is not None]
        if failures:
            raise RuntimeError(f"cannot create users: {failures[0]}")

    def operator_file(self, bootstrap: str) -> Path:
        """A `--command-config` of the super user."""
        path = self.folder / "operator.properties"
        module = f'{_MODULE} required username="{OPERATOR}" password="{OPERATOR_PASSWORD}";'
        lines = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": module,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
        }
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path

    def of_librdkafka(self) -> list[str]:
        """Settings of its test.conf."""
        settings = {"security.protocol": self.protocol, "ssl.ca.location": str(self.authority)}
        settings |= self.client_keys.of_librdkafka()
        if self.mechanism == CERTIFICATES:
            return [f"{name}={value}" for name, value in settings.items()]
        settings["sasl.mechanism"] = self.mechanism
        if self.mechanism == "OAUTHBEARER":
            settings |= {
                "sasl.oauthbearer.method": "OIDC",
                "sasl.oauthbearer.client.id": USER,
                "sasl.oauthbearer.client.secret": PASSWORD,
                "sasl.oauthbearer.token.endpoint.url": f"{self._issuer_url}/token",
            }
        elif self.mechanism == "GSSAPI":
            settings |= {
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.principal": USER,
                "sasl.kerberos.keytab": self._keys[USER],
            }
        else:
            settings |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return [f"{name}={value}" for name, value in settings.items()]


class SecuredBroker(BrokerProcess):
    """One broker that listens with each protocol on a port of its own; `bootstrap` is that of the suites' clients."""

    def __init__(
        self, data: Path, security: Security, settings: dict[str, object], environment: Mapping[str, str] | None = None
    ) -> None:
        self.ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
        self.security = security
        security.write({**settings, "log.dirs": data}, self.ports)
        super().__init__(data, {}, self.ports["SASL_SSL"], environment=environment)

    @property
    def operator_bootstrap(self) -> str:
        """Where the super user connects."""
        return f"127.0.0.1:{self.ports['SASL_SSL']}"

    def command(self) -> list[str]:
        """The command line: everything is in the file, which may have secrets."""
        python, module, name, verb = super().command()[:4]
        return [python, module, name, verb, str(self.security.properties)]

    def start(self, timeout_seconds: float = 60) -> "SecuredBroker":
        """As that of any broker, with users."""
        super().start(timeout_seconds)
        self.port = self.ports[self.security.protocol]
        try:
            asyncio.run(self.security.add_users(self.operator_bootstrap))
        except BaseException:
            self.kill()  # the caller has nothing to stop yet
            raise
        return self


class SecuredCluster(ClusterProcess):
    """Several brokers on SASL_SSL."""

    def __init__(self, data: Path, security: Security, brokers: int, settings: dict[str, object]) -> None:
        self.security = security
        security.write({}, {})
        super().__init__(data, brokers, {**settings, "listeners": "SASL_SSL://127.0.0.1:0"})

    @property
    def operator_bootstrap(self) -> str:
        """Where the super user connects."""
        return self.bootstrap

    def command(self) -> list[str]:
        """The command line with the file that may have secrets."""
        found: Sequence[str] = super().command()
        return [*found[:4], str(self.security.properties), *found[4:]]

    def start(self, timeout_seconds: float = 60) -> "SecuredCluster":
        """As that of any cluster, with users."""
        super().start(timeout_seconds)
        try:
            asyncio.run(self.security.add_users(self.bootstrap))
        except BaseException:
            self.stop()  # the caller has nothing to stop yet
            raise
        return self
