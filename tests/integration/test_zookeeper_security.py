"""TLS to ZooKeeper, credentials, and ACLs of nodes, against the real server."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from bench.peers.zookeeper import ZooKeeper, free_ports
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.start_error import StartError
from odradek.cli.main import main
from odradek.metadata.image import ClientEntity
from odradek.metadata.nodes import CLUSTER_ID, CLUSTER_KEY, ClusterIdNode, ConfigNode
from odradek.metadata.stores.selection import open_store
from odradek.metadata.stores.zookeeper_store import ZooKeeperStore
from odradek.ports.disk import SystemDisk
from odradek.ports.store import ConnectionLost, Create, MetadataStore, StoreError
from tests.certificates import Authority
from tests.unit.broker.migration.kraft_folder import CLUSTER, write_checkpoints, write_identity

SECONDS = 30.0
PASSWORD = "planted-password"
DIGEST = f"broker:{PASSWORD}"
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


class Secured(NamedTuple):
    """A server with a TLS port and a plain one, and the authority of its certificate."""

    server: ZooKeeper
    tls_port: int
    authority: Authority

    def settings(self, folder: Path, chroot: str, **others: str) -> dict[str, str]:
        """Settings of a broker that reaches it by TLS with a certificate of its own; others with `_` for `.`."""
        return {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(folder),
            "odradek.zookeeper.wait.ms": "0",
            "offsets.topic.num.partitions": "1",
            "zookeeper.connect": f"localhost:{self.tls_port}/{chroot}",
            "zookeeper.connection.timeout.ms": "5000",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": self.authority.issue("/CN=brokers").both,
            "zookeeper.ssl.truststore.location": self.authority.file,
        } | {name.replace("_", "."): value for name, value in others.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("zookeeper")
    authority = Authority(folder / "certificates")
    server, (port,) = ZooKeeper(folder, tick_ms=2000, sync=False), free_ports(1)
    logins = folder / "server.jaas"
    logins.write_text(f'Server {{ {DIGEST_MODULE} required user_broker="{PASSWORD}"; }};\n')
    server.options = [f"-Djava.security.auth.login.config={logins}"]
    own = authority.issue("/CN=localhost")
    server.settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        "ssl.clientAuth": "need",
        "ssl.clientHostnameVerification": "false",
        "ssl.keyStore.type": "PEM",
        "ssl.keyStore.location": own.both,
        "ssl.trustStore.type": "PEM",
        "ssl.trustStore.location": authority.file,
    }
    with server:
        yield Secured(server, port, authority)


def login_file(folder: Path, content: str = "") -> str:
    """A login file of a broker, by default with the server's user."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "client.jaas"
    module = f'{DIGEST_MODULE} required\n username="broker" password="{PASSWORD}"; // the brokers\n'
    path.write_text(content or f"KafkaServer {{ Other optional; More required; }};\nClient {{\n {module}}};\n")
    return str(path)


def by_sasl(secured: Secured, folder: Path, chroot: str, content: str = "") -> dict[str, str]:
    """Settings of a broker that logs in by DIGEST-MD5 over plain text."""
    return {
        "log.dirs": str(folder),
        "odradek.zookeeper.wait.ms": "0",
        "zookeeper.connect": f"{secured.server.connect}/{chroot}",
        "zookeeper.set.acl": "true",
        "java.security.auth.login.config": login_file(folder, content),
    }


def stored(settings: dict[str, str], use: Any = None) -> Any:
    """What `use` does with the metadata store of these settings."""

    async def run() -> Any:
        store = await open_store(BrokerConfig(settings), SystemDisk(), "")
        try:
            return await use(store) if use is not None else None
        finally:
            await store.close()

    return asyncio.run(run())


def test_broker_keeps_its_metadata_over_tls(secured: Secured, tmp_path: Path) -> None:
    async def run() -> None:
        broker = Broker(BrokerConfig(secured.settings(tmp_path, "tls")))
        await broker.start()
        await broker.stop()

    asyncio.run(run())

    async def cluster_id(store: MetadataStore) -> object:
        return await store.get(CLUSTER_ID)

    assert stored(secured.settings(tmp_path, "tls"), cluster_id) is not None


def test_many_answers_in_one_tls_record_are_all_read(secured: Secured, tmp_path: Path) -> None:
    async def use(store: MetadataStore) -> int:
        await asyncio.gather(*(store.apply([Create(f"/many-{n}", b"x" * 100)]) for n in range(300)))
        found = await asyncio.gather(*(store.get(f"/many-{n}") for n in range(300)))
        return sum(node is not None for node in found)

    assert stored(secured.settings(tmp_path, "many"), use) == 300


@pytest.mark.parametrize("missing", ["keystore", "truststore"])
def test_zookeeper_is_not_reached_without_the_right_certificates(
    missing: str, secured: Secured, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", "other CA")
    wrong = {"keystore": other.issue("/CN=brokers").both, "truststore": other.file}[missing]
    settings = secured.settings(tmp_path / "data", "wrong", **{f"zookeeper_ssl_{missing}_location": wrong})
    settings["zookeeper.connection.timeout.ms"] = "1000"
    with pytest.raises(StoreError):
        stored(settings)


@pytest.mark.parametrize("by", ["certificate", "digest", "sasl"])
def test_nodes_get_acls_of_their_creator(by: str, secured: Secured, tmp_path: Path) -> None:
    settings = secured.settings(tmp_path, f"acl-{by}", zookeeper_set_acl="true")
    if by == "digest":
        settings = {name: value for name, value in settings.items() if not name.startswith("zookeeper.ssl.")}
        settings |= {
            "zookeeper.connect": f"{secured.server.connect}/acl-{by}",
            "odradek.zookeeper.digest": DIGEST,
        }
    elif by == "sasl":
        settings = by_sasl(secured, tmp_path, "acl-sasl")

    async def use(store: MetadataStore) -> None:
        await store.apply([Create(CLUSTER_ID, b"id"), Create(CLUSTER_KEY, b"secret"), Create("/consumers", b"")])

    stored(settings, use)
    stranger = KazooClient(secured.server.connect, timeout=SECONDS)
    stranger.start()
    try:
        root = f"/acl-{by}"
        assert stranger.get(f"{root}{CLUSTER_ID}")[0] == b"id"
        with pytest.raises(NoAuthError):
            stranger.get(f"{root}{CLUSTER_KEY}")
        with pytest.raises(NoAuthError):
            stranger.set(f"{root}{CLUSTER_ID}", b"other")
        stranger.set(f"{root}/consumers", b"anybody")
        if by == "sasl":
            assert {str(each.id) for each in stranger.get_acls(f"{root}{CLUSTER_ID}")[0]} == {
                "Id(scheme='sasl', id='broker')",
                "Id(scheme='world', id='anyone')",
            }
    finally:
        stranger.stop()
        stranger.close()

    async def secret(store: MetadataStore) -> bytes:
        node = await store.get(CLUSTER_KEY)
        assert node is not None
        return node.data

    assert stored(settings, secret) == b"secret"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl needs odradek.zookeeper.digest, or zookeeper.ssl.keystore"),
        ({"odradek.zookeeper.digest": "planted"}, "odradek.zookeeper.digest: USER:PASSWORD is expected"),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "/missing.pem"},
            "zookeeper.ssl.truststore.location: /missing.pem: No such file",
        ),
    ],
)
def test_unusable_settings_end_the_start(changes: dict[str, str], text: str, tmp_path: Path) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "zookeeper.connect": "127.0.0.1:1"}
    with pytest.raises(StartError, match=text) as raised:
        asyncio.run(Broker(BrokerConfig(settings | changes)).start())
    assert raised.value.misconfigured
    assert "planted" not in str(raised.value)


def test_credentials_are_not_logged(secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1):
        stored(
            {
                "log.dirs": str(tmp_path),
                "zookeeper.connect": f"{secured.server.connect}/quiet",
                "odradek.zookeeper.digest": DIGEST,
            }
        )
    assert "Auth(" in caplog.text
    assert "planted" not in caplog.text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (f'Client {{ {DIGEST_MODULE} required username="broker" password="planted"; }};', "rejects the user"),
        (f'Client {{ {DIGEST_MODULE} required username="nobody" password="planted"; }};', "rejects the user"),
        (f'Client {{ {DIGEST_MODULE} required username="planted"; }};', "needs username and password"),
        (f'Other {{ {DIGEST_MODULE} required username="planted"; }};', "has no section Client"),
        ("Client { planted.Module required; };", "is not one of"),
        ("Client { planted", "a section has no end"),
    ],
)
def test_start_ends_when_the_login_fails(content: str, text: str, secured: Secured, tmp_path: Path) -> None:
    """A wrong password is not retried until the end of `odradek.zookeeper.wait.ms`."""
    settings = by_sasl(secured, tmp_path, "rejected", content) | {"odradek.zookeeper.wait.ms": "300000"}
    with pytest.raises(StoreError, match=text) as raised:
        stored(settings)
    assert "planted" not in str(raised.value).replace("'planted.Module'", "")


def test_login_is_left_out_when_it_is_switched_off(secured: Secured, tmp_path: Path) -> None:
    settings = by_sasl(secured, tmp_path, "off", "no login file")
    stored(settings | {"zookeeper.sasl.client": "false", "zookeeper.set.acl": "false"})


def test_sasl_password_is_not_logged(secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1):
        stored(by_sasl(secured, tmp_path, "quiet-sasl"))
    assert "SASL(" in caplog.text
    assert "planted" not in caplog.text
    assert "response=" not in caplog.text


def test_connection_that_was_lost_logs_in_again(secured: Secured, tmp_path: Path) -> None:
    """The session's next connection may do what needs the login."""

    async def use(store: MetadataStore) -> object:
        assert isinstance(store, ZooKeeperStore)
        await store.apply([Create(CLUSTER_KEY, b"secret")])
        client = store._client
        assert client is not None
        client._connection._socket.shutdown(socket.SHUT_RDWR)
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    return await store.get(CLUSTER_KEY)
                except ConnectionLost:
                    await asyncio.sleep(0.01)

    node = stored(by_sasl(secured, tmp_path, "again"), use)
    assert node.data == b"secret"


@pytest.mark.parametrize("by", ["certificate", "sasl"])
def test_import_reads_a_cluster_whose_nodes_have_acls(
    by: str, secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if by == "certificate":
        settings = secured.settings(tmp_path / "old", "import-tls", zookeeper_set_acl="true")
    else:
        settings = by_sasl(secured, tmp_path / "old", "import-sasl")
    user = ConfigNode.client_path(ClientEntity("alice"))

    async def write(store: MetadataStore) -> None:
        await store.apply([Create(CLUSTER_ID, ClusterIdNode.encode(CLUSTER))])
        await store.apply([Create(user, ConfigNode.encode({"consumer_byte_rate": "5"}))])

    stored(settings, write)
    folder, properties = tmp_path / "kafka", tmp_path / "server.properties"
    write_identity(folder, kraft=False)
    write_checkpoints(folder, {})
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    words = ["import", str(folder), "--data-dir", str(tmp_path / "new"), "-o", "json"]
    plain = f"{secured.server.connect}/import-{'tls' if by == 'certificate' else 'sasl'}"
    assert main([*words, "--zookeeper", plain]) == 2
    assert "only its brokers may read all of it" in capsys.readouterr().err
    assert main([*words, "--zookeeper-config", str(properties)]) == 0
    assert json.loads(capsys.readouterr().out)["client_settings"] == 1
