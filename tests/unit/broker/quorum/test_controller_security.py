"""TLS and SASL between the controllers of a quorum, and between them and brokers."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.broker.cluster.peers import PeerLimits
from odradek.broker.configuration.broker_config import Listener
from odradek.broker.kraft.broker_logins import TO_CONTROLLERS, broker_login
from odradek.broker.kraft.controllers import Controllers
from odradek.broker.network import tls_listeners
from odradek.broker.network.addresses import BoundListener, controller_notice
from odradek.broker.quorum.endpoints import controller_endpoint, guarded_controller_endpoint
from odradek.client import Producer
from odradek.client.admin import Admin, NewTopic
from odradek.kraft.metadata_observer import Server
from odradek.kraft.raft.wire_requests import TOPIC
from odradek.ports.network import TcpNetwork
from odradek.ports.randomness import SystemRandom
from odradek.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from odradek.wire.apis import ApiKey, request_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)
from tests.certificates import Authority
from tests.integration.sasl_brokers import PLAIN
from tests.unit.broker.quorum.controllers_in_process import Quorum, format_directory, quorum, until

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = ("SCRAM-SHA-256=[name=node,password=node-secret]", "SCRAM-SHA-512=[name=node,password=node-secret]")
AUTHORIZER = {"authorizer.class.name": "odradek", "super.users": "User:node"}
ACTION, ALTER, DESCRIBE = AclOperation.CLUSTER_ACTION, AclOperation.ALTER, AclOperation.DESCRIBE
RIGHTS = {
    ApiKey.FETCH: ACTION,
    ApiKey.FETCH_SNAPSHOT: ACTION,
    ApiKey.VOTE: ACTION,
    ApiKey.BEGIN_QUORUM_EPOCH: ACTION,
    ApiKey.END_QUORUM_EPOCH: ACTION,
    ApiKey.DESCRIBE_QUORUM: DESCRIBE,
    ApiKey.ENVELOPE: ACTION,
    ApiKey.BROKER_REGISTRATION: ACTION,
    ApiKey.BROKER_HEARTBEAT: ACTION,
    ApiKey.CONTROLLER_REGISTRATION: ACTION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ACTION,
    ApiKey.ALTER_PARTITION: ACTION,
    ApiKey.ALLOCATE_PRODUCER_IDS: ACTION,
    ApiKey.UNREGISTER_BROKER: ALTER,
    ApiKey.ADD_RAFT_VOTER: ALTER,
    ApiKey.REMOVE_RAFT_VOTER: ALTER,
    ApiKey.UPDATE_RAFT_VOTER: ACTION,
    ApiKey.UPDATE_FEATURES: ALTER,
    ApiKey.ELECT_LEADERS: ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: DESCRIBE,
    ApiKey.ALTER_CLIENT_QUOTAS: AclOperation.ALTER_CONFIGS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ALTER,
    ApiKey.CREATE_ACLS: ALTER,
    ApiKey.DELETE_ACLS: ALTER,
    ApiKey.DESCRIBE_ACLS: DESCRIBE,
    # Apache's controllers do not serve these.
    ApiKey.DESCRIBE_CLIENT_QUOTAS: AclOperation.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DESCRIBE,
}
OPEN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER}
BY_RESOURCE = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_CONFIGS,
}
"""The rights on each topic are those of brokers."""
OF_TOKENS = {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
"""A token's owner and renewers may use it; CREATE_TOKENS is asked for where it is for another owner."""


def tls(authority: Authority) -> dict[str, str]:
    """A listener with TLS."""
    prefix = "listener.name.controller.ssl"
    return {
        "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
        f"{prefix}.keystore.type": "PEM",
        f"{prefix}.keystore.location": authority.issue("/CN=node").both,
        f"{prefix}.truststore.type": "PEM",
        f"{prefix}.truststore.location": authority.file,
    }


def sasl(mechanism: str, protocol: str = "SASL_PLAINTEXT", password: str = "node-secret") -> dict[str, str]:
    """A listener with one mechanism, for controllers and brokers alike."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    users = ' user_node="node-secret"' if mechanism == "PLAIN" else ""
    name = f"listener.name.controller.{mechanism.lower()}.sasl.jaas.config"
    return {
        "listener.security.protocol.map": f"CONTROLLER:{protocol},PLAINTEXT:PLAINTEXT",
        "sasl.mechanism.controller.protocol": mechanism,
        "listener.name.controller.sasl.enabled.mechanisms": mechanism,
        name: f'{module} required username="node" password="{password}"{users};',
    }


def of_brokers_without_keys(settings: Mapping[str, str]) -> dict[str, str]:
    """A broker needs no certificate of its own where controllers ask for none."""
    return {f"controllers:{name}" if "keystore" in name else name: value for name, value in settings.items()}


async def write_and_restart(running: Quorum) -> None:
    """Write through a broker, restart all controllers at once, and write again."""
    async with Admin(bootstrap_servers=running.bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", 1, 1)])
    for node in list(running.controllers):
        await running.stop(node)
    await running.start(*running.ports)
    await running.wait_until_active()
    async with Admin(bootstrap_servers=running.bootstrap) as admin:
        await admin.create_topics([NewTopic("later", 1, 1)])
    async with Producer(bootstrap_servers=running.bootstrap) as producer:
        await producer.send_and_wait("orders", value=b"v")
    await until(lambda: all("later" in each.parts.metadata.image.topics for each in running.controllers.values()))


def run(directory: Path, settings: Mapping[str, str]) -> None:
    async def scenario() -> None:
        async with (
            asyncio.timeout(60),
            quorum(directory, 3, (1,), settings, partial(format_directory, users=USERS)) as running,
        ):
            await write_and_restart(running)

    asyncio.run(scenario())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_controllers_and_brokers_log_in(tmp_path: Path, mechanism: str) -> None:
    run(tmp_path, sasl(mechanism))


def test_controllers_and_brokers_log_in_within_tls(tmp_path: Path) -> None:
    protected = of_brokers_without_keys(tls(Authority(tmp_path / "certificates")))
    run(tmp_path, protected | sasl("SCRAM-SHA-512", "SASL_SSL"))


def test_controller_serves_a_renewed_certificate_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quorum that runs longer than its certificates are valid would lose all its connections otherwise."""
    monkeypatch.setattr(tls_listeners, "CHECK_SECONDS", 0.01)
    authority = Authority(tmp_path / "certificates")
    settings = tls(authority)
    trusting = ssl.create_default_context(cafile=authority.file)
    trusting.check_hostname = False

    async def served_name(port: int) -> str:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        certificate = writer.get_extra_info("peercert")
        writer.close()
        return str(dict(each[0] for each in certificate["subject"])["commonName"])

    async def scenario() -> None:
        async with asyncio.timeout(60), quorum(tmp_path, settings=settings) as running:
            port = running.ports[100]
            assert await served_name(port) == "node"
            os.replace(authority.issue("/CN=renewed").both, settings["listener.name.controller.ssl.keystore.location"])
            while await served_name(port) != "renewed":
                await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_controllers_with_a_wrong_password_elect_no_leader(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        settings = sasl("SCRAM-SHA-256", password="guessed") | {"odradek.login.max.failures": "1"}
        running = Quorum(tmp_path, 3, settings, partial(format_directory, users=USERS))
        await running.start(*running.ports)
        is_blocked = "its next ones are rejected"
        await until(lambda: is_blocked in caplog.text)
        assert {each.parts.replica.leader.leader_id for each in running.controllers.values()} == {-1}
        await running.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("user", "error"), [("node", ErrorCode.NONE), ("alice", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
)
def test_controllers_act_only_for_clients_with_the_right(tmp_path: Path, user: str, error: ErrorCode) -> None:
    settings = sasl("PLAIN") | AUTHORIZER
    name = "listener.name.controller.plain.sasl.jaas.config"
    settings[name] = settings[name].replace("user_node", 'user_alice="node-secret" user_node')

    async def scenario() -> None:
        async with quorum(tmp_path, settings=settings) as running:
            login = {name: settings[name].replace('username="node"', f'username="{user}"')}
            config = Quorum(tmp_path / "client", 1, settings | login).config(100)
            prove = broker_login(config, SystemRandom(), "CONTROLLER", TO_CONTROLLERS)
            controllers = Controllers(TcpNetwork(), 9, None, prove, PeerLimits.of(config))
            request = DescribeQuorumRequest([DescribeQuorumRequestTopic(TOPIC, [DescribeQuorumRequestPartition(0)])])
            server = Server("127.0.0.1", running.ports[100])
            answer = await controllers.fetch(server, request, DescribeQuorumResponse, 5000)
            assert answer.error_code == error
            controllers.close()

    asyncio.run(scenario())


class Denying:
    """Stands for the access of a client without rights; notes for what it is asked."""

    request = ""
    client_id: str | None = None

    def __init__(self) -> None:
        self.asked: list[AclOperation] = []

    def allows_cluster(self, operation: AclOperation) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        assert (kind, name) == (ResourceType.CLUSTER, CLUSTER_NAME)
        self.asked.append(operation)
        return False


@pytest.mark.parametrize(("key", "right"), RIGHTS.items(), ids=lambda each: each.name)
def test_controller_asks_for_the_right_that_apache_asks_for(key: ApiKey, right: AclOperation) -> None:
    """Source: Kafka's `ControllerApis`."""
    endpoint = guarded_controller_endpoint(key)
    assert endpoint is not None
    access = Denying()
    context = SimpleNamespace(
        access=access, client_id="c", connection=SimpleNamespace(session=SimpleNamespace(access=None))
    )
    with pytest.raises(KafkaError) as raised:
        endpoint.handle(request_class(key).__new__(request_class(key)), context)
    assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert access.asked == [right]
    assert access.request == key.name


def test_every_api_of_controllers_needs_a_right_or_none() -> None:
    served = {key for key in ApiKey if guarded_controller_endpoint(key) is not None}
    assert served == {*RIGHTS, *OPEN, *BY_RESOURCE, *OF_TOKENS}
    for key in OPEN:
        assert guarded_controller_endpoint(key) is controller_endpoint(key)


def test_no_client_but_super_users_may_act_before_the_acls_are_known(tmp_path: Path) -> None:
    """Without a leader the controller knows no ACL: `allow.everyone.if.no.acl.found` must not mean all clients."""

    async def scenario() -> None:
        settings = AUTHORIZER | {"allow.everyone.if.no.acl.found": "true", "super.users": "User:admin"}
        running = Quorum(tmp_path, 3, settings)
        await running.start(100)
        authorization = running.controllers[100].parts.authorization
        assert authorization is not None
        authorizer = authorization.authorizer

        def may(name: str) -> bool:
            subject = authorizer.subject(f"User:{name}", "127.0.0.1")
            return authorizer.decide(
                subject, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
            ).is_allowed

        assert not may("ANONYMOUS")
        assert may("admin")
        await running.close()
        async with quorum(tmp_path / "sole", settings=settings) as sole:
            authorization = sole.active.parts.authorization
            assert authorization is not None
            authorizer = authorization.authorizer
            await until(lambda: may("ANONYMOUS"))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("host", "authenticates", "has_authorizer", "text"),
    [
        ("0.0.0.0", False, True, "without authentication"),
        ("10.0.0.1", False, False, "without authentication"),
        ("::", True, False, "set authorizer.class.name"),
        ("0.0.0.0", True, True, ""),
        ("127.0.0.1", False, False, ""),
    ],
)
def test_controller_warns_of_a_listener_that_strangers_can_use(
    host: str, authenticates: bool, has_authorizer: bool, text: str
) -> None:
    bound = BoundListener(Listener("CONTROLLER", host, 9093, "PLAINTEXT"), host)
    notice = controller_notice(bound, authenticates=authenticates, has_authorizer=has_authorizer)
    assert (text in notice) if text else not notice


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "without authentication: every host that reaches this port can act as a controller or a broker"),
        (sasl("PLAIN"), "without an authorizer: every client that logs in can act as a controller or a broker"),
        (sasl("PLAIN") | AUTHORIZER, ""),
    ],
    ids=["plain", "logins", "logins and authorizer"],
)
def test_controller_logs_what_strangers_can_do_at_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, str], text: str
) -> None:
    async def scenario() -> None:
        running = Quorum(tmp_path, 1, settings)
        running.host = "0.0.0.0"
        await running.start(100)
        await running.close()

    asyncio.run(scenario())
    assert (text in caplog.text) if text else ("can act as a controller" not in caplog.text)
