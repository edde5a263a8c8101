"""Clients log in by Kerberos at a running broker, with a key distribution center on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.peers.kdc import REALM, Kdc, missing_program
from bench.peers.zookeeper import ZooKeeper
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.start_error import StartError
from odradek.client import Admin
from odradek.client.errors import AuthenticationFailed
from odradek.metadata.nodes import CLUSTER_ID
from odradek.metadata.stores.selection import open_store
from odradek.ports.disk import SystemDisk
from odradek.ports.store import Create, StoreError

SECONDS = 60
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kdc, dict[str, str]]]:
    """A realm and the key tables of the broker and of clients, by principal."""
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError) as error:
        pytest.skip(f"the extra gssapi is not installed: {error}")
    if missing := missing_program():
        pytest.skip(f"{missing} is not installed (Debian: krb5-kdc, krb5-admin-server, krb5-user)")
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        names = ("kafka/localhost", "other/localhost", "zookeeper/localhost", "alice", "robot/host")
        yield kdc, {name: kdc.key_table(name) for name in names}


@pytest.fixture
def keys(realm: tuple[Kdc, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in realm[0].environment.items():
        monkeypatch.setenv(name, value)
    return realm[1]


def settings(data: Path, keys: dict[str, str], **others: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keys["kafka/localhost"]}" '
            f'principal="kafka/localhost@{REALM}";'
        ),
        "sasl.kerberos.service.name": "kafka",
        "connection.failed.authentication.delay.ms": "0",
        "log.dirs": str(data),
    } | {name.replace("_", "."): value for name, value in others.items()}


def login(bootstrap: str, principal: str = "", key_table: str = "") -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": "localhost",
    }
    if key_table:
        jaas = f'{MODULE} required useKeyTab=true keyTab="{key_table}" principal="{principal}@{REALM}";'
        options["sasl_jaas_config"] = jaas
    return options


def served(config: dict[str, str], use: Callable[[Broker], Awaitable[Any]]) -> Any:
    async def scenario() -> Any:
        broker = Broker(BrokerConfig(config))
        await broker.start()
        try:
            return await asyncio.wait_for(use(broker), SECONDS)
        finally:
            await broker.stop()

    return asyncio.run(scenario())


async def principals(options: dict[str, Any], broker: Broker) -> set[str]:
    async with Admin(**options) as admin:
        await admin.list_topics()
        parts: Any = broker._parts
        return {str(each.session.principal) for each in parts.server.connections.values()}


def test_client_logs_in_by_the_key_of_a_key_table(keys: dict[str, str], tmp_path: Path) -> None:
    async def use(broker: Broker) -> set[str]:
        return await principals(login(broker.bootstrap, "alice", keys["alice"]), broker)

    assert served(settings(tmp_path, keys), use) == {"User:alice"}


def test_client_logs_in_by_the_tickets_of_kinit(
    realm: tuple[Kdc, dict[str, str]], keys: dict[str, str], tmp_path: Path
) -> None:
    realm[0].log_in("robot/host", keys["robot/host"])

    async def use(broker: Broker) -> set[str]:
        return await principals(login(broker.bootstrap), broker)

    assert served(settings(tmp_path, keys), use) == {"User:robot"}


def test_rules_make_the_user_name_of_a_kerberos_name(keys: dict[str, str], tmp_path: Path) -> None:
    rules = f"RULE:[2:$1-$2@$0](robot-.*@{REALM})s/@.*//U,DEFAULT"

    async def use(broker: Broker) -> set[str]:
        return await principals(login(broker.bootstrap, "robot/host", keys["robot/host"]), broker)

    config = settings(tmp_path, keys, sasl_kerberos_principal_to_local_rules=rules)
    assert served(config, use) == {"User:ROBOT-HOST"}


def test_client_without_tickets_learns_why_it_cannot_log_in(
    keys: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")

    async def use(broker: Broker) -> None:
        async with Admin(**login(broker.bootstrap)) as admin:
            await admin.list_topics()

    with pytest.raises(AuthenticationFailed, match=r"GSSAPI: .*[Cc]redential"):
        served(settings(tmp_path / "data", keys), use)


def test_ticket_for_another_service_is_rejected(keys: dict[str, str], tmp_path: Path) -> None:
    async def use(broker: Broker) -> None:
        options = login(broker.bootstrap, "alice", keys["alice"]) | {"sasl_kerberos_service_name": "other"}
        async with Admin(**options) as admin:
            await admin.list_topics()

    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        served(settings(tmp_path, keys), use)


def test_broker_logs_in_at_zookeeper_by_kerberos(
    realm: tuple[Kdc, dict[str, str]], keys: dict[str, str], tmp_path: Path
) -> None:
    """Nodes belong to the broker's Kerberos name, and a server whose key is another's gets no session."""

    def section(name: str, principal: str, owner: str) -> str:
        options = f'useKeyTab=true storeKey=true keyTab="{keys[owner]}" principal="{principal}@{REALM}"'
        return f"{name} {{ {MODULE} required {options}; }};\n"

    server = ZooKeeper(tmp_path, tick_ms=2000, sync=False, host="localhost")
    logins = tmp_path / "server.jaas"
    logins.write_text(section("Server", "zookeeper/localhost", "zookeeper/localhost"))
    config = realm[0].environment["KRB5_CONFIG"]
    server.options = [f"-Djava.security.auth.login.config={logins}", f"-Djava.security.krb5.conf={config}"]
    server.settings = {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    mine = tmp_path / "broker.jaas"
    mine.write_text(section("Client", "robot/host", "robot/host"))
    given = {
        "log.dirs": str(tmp_path / "data"),
        "zookeeper.connect": f"{server.connect}/kerberos",
        "zookeeper.set.acl": "true",
        "java.security.auth.login.config": str(mine),
    }

    async def owners() -> set[str]:
        store: Any = await open_store(BrokerConfig(given), SystemDisk(), "")
        try:
            await store.apply([Create(CLUSTER_ID, b"id")])
            acls = await asyncio.to_thread(store._client.get_acls, f"/kerberos{CLUSTER_ID}")
            return {f"{each.id.scheme}:{each.id.id}" for each in acls[0]}
        finally:
            await store.close()

    with server:
        assert asyncio.run(owners()) == {f"sasl:robot/host@{REALM}", "world:anyone"}
        given["zookeeper.sasl.client.username"] = "other"
        with pytest.raises(StoreError, match="login at ZooKeeper"):
            asyncio.run(owners())
        given["zookeeper.server.principal"] = "zookeeper/localhost"
        given["zookeeper.connect"] = server.connect
        assert asyncio.run(owners()) == {f"sasl:robot/host@{REALM}", "world:anyone"}


@pytest.mark.parametrize("library", ["kafka-python", "aiokafka"])
def test_other_clients_log_in_by_kerberos(
    library: str, realm: tuple[Kdc, dict[str, str]], keys: dict[str, str], tmp_path: Path
) -> None:
    realm[0].log_in("alice", keys["alice"])

    def blocking(options: dict[str, Any]) -> set[str]:
        from kafka import KafkaAdminClient

        admin = KafkaAdminClient(**options)
        try:
            return {str(each) for each in admin.list_topics()}
        finally:
            admin.close()

    async def use(broker: Broker) -> set[str]:
        options = login(broker.bootstrap)
        if library == "kafka-python":
            return await asyncio.to_thread(blocking, options)
        from aiokafka.admin import AIOKafkaAdminClient

        admin = AIOKafkaAdminClient(**options)
        await admin.start()
        try:
            return set(await admin.list_topics())
        finally:
            await admin.close()

    assert served(settings(tmp_path, keys), use) == set()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"listener.name.sasl_plaintext.gssapi.sasl.jaas.config": f"{MODULE} required useKeyTab=true;"}, "keyTab="),
        ({"sasl.kerberos.service.name": "other"}, "is not of the service other"),
        ({"sasl.kerberos.principal.to.local.rules": "RULE:nonsense"}, "principal.to.local.rules"),
        (
            {
                "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
                    f'{MODULE} required keyTab="/nowhere" principal="kafka/localhost";'
                )
            },
            "cannot be used",
        ),
    ],
)
def test_broker_without_a_usable_key_does_not_start(
    changes: dict[str, str], text: str, keys: dict[str, str], tmp_path: Path
) -> None:
    async def start() -> None:
        await Broker(BrokerConfig(settings(tmp_path, keys) | changes)).start()

    with pytest.raises(StartError, match=text):
        asyncio.run(start())
