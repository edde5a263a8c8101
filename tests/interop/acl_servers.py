"""Apache Kafka and our broker with the same users, topics, groups, transactions and tokens, for the same requests.

Users log in by PLAIN on a SASL_PLAINTEXT listener. `admin` is a super user of both; the others have only their ACLs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.peers.broker import BrokerProcess
from bench.servers import KAFKA
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.wire.messages import (
    add_partitions_to_txn,
    consumer_group_heartbeat,
    create_delegation_token,
    create_topics,
    delete_acls,
    describe_acls,
    find_coordinator,
    init_producer_id,
    offset_commit,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.integration.acl_probes import GROUP, TOPIC, creation
from tests.integration.conftest import RawClient

USERS = [f"user{number:02}" for number in range(16)]
ADMIN = "admin"
AUDIT, SPARE = "audit", "spare"
MEMBERS = "members"
"""A group of the consumer protocol with a member that has partitions of both topics."""
OPEN_TRANSACTION = "tx-open"
"""A transactional id whose transaction has partitions of both topics."""
TOKEN_OWNER = "zoe"
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_WAIT_SECONDS = 60


def _settings() -> dict[str, str]:
    users = " ".join(f'user_{name}="{name}-secret"' for name in (ADMIN, *USERS))
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{_MODULE} required username="{ADMIN}" password="{ADMIN}-secret" {users};'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Apache's broker is User:ANONYMOUS on its controller's listener, where no client connects.
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "delegation.token.secret.key": "secret",
        "auto.create.topics.enable": "true",
        "num.partitions": "1",
        # Requests write records of the year 1970.
        "log.retention.ms": "-1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.consumer.max.session.timeout.ms": "3600000",
        "group.consumer.session.timeout.ms": "3600000",
    }


@contextmanager
def apache(folder: Path) -> Iterator[str]:
    """HOST:PORT of Apache Kafka."""
    settings = _settings() | {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "listener.name.controller.plain.sasl.jaas.config": f"{_MODULE} required;",
    }
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, str(KAFKA), "run", "--quick", "--port", "0", "--for", "3600", "--dir", str(folder)]
    command += given
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        try:
            assert ready[:1] == ["ready"], f"Apache Kafka did not start, see {folder}"
            yield ready[1]
        finally:
            process.terminate()


@contextmanager
def odradek(folder: Path) -> Iterator[str]:
    """HOST:PORT of our broker."""
    settings = _settings() | {"security.inter.broker.protocol": "SASL_PLAINTEXT"}
    file = folder.with_suffix(".properties")
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with _FromFile(folder, file) as broker:
        yield broker.bootstrap


class _FromFile(BrokerProcess):
    """A broker whose settings are in a file, as settings with passwords must be."""

    def __init__(self, folder: Path, file: Path) -> None:
        super().__init__(folder)
        self._file = file

    def command(self) -> list[str]:
        """The command line with the file, which names the listener."""
        return [sys.executable, "-m", "odradek.cli.main", "serve", str(self._file), "--data-dir", str(self.data_dir)]


def logged_in(bootstrap: str, user: str) -> RawClient:
    """A connection of that user."""
    client = RawClient(bootstrap, 30)
    assert not client.call(SaslHandshakeRequest("PLAIN"), 1).error_code
    token = f"\0{user}\0{user}-secret".encode()
    assert not client.call(SaslAuthenticateRequest(token), 2).error_code
    return client


class Server:
    """One of the two, with everything that requests name."""

    def __init__(self, bootstrap: str) -> None:
        self.administrator = logged_in(bootstrap, ADMIN)
        self.clients = {name: logged_in(bootstrap, name) for name in USERS}
        self.ids: dict[str, bytes] = {}
        """Topic ids by names."""
        self.tokens: dict[str, bytes] = {}
        """HMACs of delegation tokens by their owners."""
        self._create_topics((TOPIC, AUDIT))
        for kind, key in ((0, GROUP), (1, OPEN_TRANSACTION)):
            finding = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            self._until(partial(self._coordinator, finding))
        self._commit()
        self._join()
        self._open_transaction()
        for owner in (ADMIN, TOKEN_OWNER):
            request = create_delegation_token.CreateDelegationTokenRequest("User", owner, [], -1)
            self.tokens[owner] = self._until(partial(self.administrator.call, request, 3)).hmac

    def restore(self) -> None:
        """Create again what a client with rights may have deleted."""
        self._create_topics((SPARE,))
        self._commit()

    def set_acls(self, wanted: Iterable[AclBinding]) -> None:
        """Replace all ACLs, and wait until they count."""
        bindings = frozenset(wanted)
        everything = delete_acls.DeleteAclsRequestFilter(1, None, 1, None, None, 1, 1)
        self.administrator.call(delete_acls.DeleteAclsRequest([everything]), 2)
        if bindings:
            made = self.administrator.call(creation(sorted(bindings)), 2)
            assert not any(each.error_code for each in made.results), [each.error_message for each in made.results]
        end = time.monotonic() + _WAIT_SECONDS
        while self._acls() != bindings:
            assert time.monotonic() < end, "the broker did not read its new ACLs"
            time.sleep(0.005)

    def _acls(self) -> frozenset[AclBinding]:
        request = describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
        return frozenset(
            AclBinding(
                ResourceType(resource.resource_type),
                resource.resource_name,
                acl.principal,
                AclOperation(acl.operation),
                AclPermissionType(acl.permission_type),
                acl.host,
                PatternType(resource.pattern_type),
            )
            for resource in self.administrator.call(request, 2).resources
            for acl in resource.acls
        )

    def _create_topics(self, names: Iterable[str]) -> None:
        topics = [create_topics.CreateTopicsRequestTopic(name, 1, 1) for name in names]
        for made in self.administrator.call(create_topics.CreateTopicsRequest(topics, 20_000), 7).topics:
            if not made.error_code:
                self.ids[made.name] = made.topic_id
        wanted = MetadataRequest([MetadataRequestTopic(name=name) for name in names], False)
        self._until(lambda: next(iter(self.administrator.call(wanted, 12).topics)))

    def _coordinator(self, finding: find_coordinator.FindCoordinatorRequest) -> Any:
        return self.administrator.call(finding, 4).coordinators[0]

    def _commit(self) -> None:
        part = [offset_commit.OffsetCommitRequestPartition(0, 0)]
        topics = [offset_commit.OffsetCommitRequestTopic(name, partitions=part) for name in (TOPIC, AUDIT)]
        request = offset_commit.OffsetCommitRequest(GROUP, topics=topics)
        self._until(lambda: self.administrator.call(request, 8).topics[0].partitions[0])

    def _join(self) -> None:
        heartbeat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest
        member = "member-of-the-administrator"
        join = heartbeat(
            MEMBERS, member, 0, rebalance_timeout_ms=10_000, subscribed_topic_names=[TOPIC, AUDIT], topic_partitions=[]
        )
        joined = self._until(lambda: self.administrator.call(join, 1))
        end = time.monotonic() + _WAIT_SECONDS
        while not joined.assignment or len(joined.assignment.topic_partitions) < 2:
            assert time.monotonic() < end, "the member got no partitions"
            time.sleep(0.05)
            joined = self.administrator.call(heartbeat(MEMBERS, member, joined.member_epoch), 1)
        owned = [
            consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions(each.topic_id, each.partitions)
            for each in joined.assignment.topic_partitions
        ]
        self.administrator.call(heartbeat(MEMBERS, member, joined.member_epoch, topic_partitions=owned), 1)

    def _open_transaction(self) -> None:
        request = init_producer_id.InitProducerIdRequest(OPEN_TRANSACTION, 900_000)
        producer = self._until(lambda: self.administrator.call(request, 4))
        topics = [add_partitions_to_txn.AddPartitionsToTxnRequestTopic(name, [0]) for name in (TOPIC, AUDIT)]
        adding = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=OPEN_TRANSACTION,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=topics,
        )
        self._until(lambda: self.administrator.call(adding, 3).results_by_topic_v3_and_below[0].results_by_partition[0])

    def _until(self, ask: Callable[[], Any]) -> Any:
        """The first answer without an error."""
        end = time.monotonic() + _WAIT_SECONDS
        while code := _error(answer := ask()):
            assert time.monotonic() < end, f"error {code} from {type(answer).__name__}"
            time.sleep(0.1)
        return answer


def _error(answer: Any) -> int:
    return int(answer.error_code if hasattr(answer, "error_code") else answer.partition_error_code)
