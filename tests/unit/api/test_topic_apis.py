"""Requests about topics, transactions and the cluster: small decisions of their handlers, by version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import (
    api_02_list_offsets,
    api_03_metadata,
    api_04_leader_and_isr,
    api_18_api_versions,
    api_20_delete_topics,
    api_22_init_producer_id,
    api_23_offset_for_leader_epoch,
    api_25_add_offsets_to_txn,
    api_26_end_txn,
    api_34_alter_replica_log_dirs,
    api_36_sasl_authenticate,
    api_37_create_partitions,
    api_38_create_delegation_token,
    api_41_describe_delegation_token,
    api_60_describe_cluster,
    api_64_unregister_broker,
    api_71_get_telemetry_subscriptions,
)
from odradek.api.requests.long_work import LongWork
from odradek.api.requests.session import Principal, Session
from odradek.controller.outcome import Failure
from odradek.controller.topics import DeletedTopic, GrownTopic
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.replication.partition import Partition
from odradek.security.delegation_tokens import DelegationToken
from odradek.transactions.events import ProducerResult
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestState
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenRequestOwner,
)
from odradek.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.unit.log.support import NOW, batch, open_log

STATE = PartitionState(1, 0, (1,), (1,))


def finished(answer: Any) -> Any:
    """The answer of a handler that may be a coroutine."""

    async def wait() -> Any:
        return await answer

    return asyncio.run(wait()) if isinstance(answer, Awaitable) else answer


# --- ListOffsets, OffsetForLeaderEpoch ---


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """Records with the timestamps NOW, NOW + 5 and NOW + 2, the first in epoch 3, the others in epoch 4."""
    found = Partition("t", b"t" * 16, 0, 1, open_log(tmp_path))
    found.apply_state(PartitionState(1, 3, (1,), (1,)))
    found.append(batch(timestamps=[NOW]), now_ms=NOW)
    found.apply_state(PartitionState(1, 4, (1,), (1,), partition_epoch=1))
    for timestamp in (NOW + 5, NOW + 2):
        found.append(batch(timestamps=[timestamp]), now_ms=NOW)
    return found


def services_of(partition: Partition) -> Any:
    return SimpleNamespace(
        partitions=SimpleNamespace(require=lambda *_: partition),
        long_work=LongWork(lambda: 0.0, 10),
        image=ClusterImage,
    )


def offset_of(
    partition: Partition, timestamp: int, *, version: int = 10, replica_id: int = -1, epoch: int = -1
) -> tuple[int, int, int, int]:
    """(error, offset, timestamp, leader epoch)"""
    rows = [ListOffsetsRequestPartition(0, epoch, timestamp)]
    request = ListOffsetsRequest(replica_id, 0, [ListOffsetsRequestTopic("t", rows)])
    context: Any = SimpleNamespace(services=services_of(partition), version=version)
    (row,) = finished(api_02_list_offsets.handle(request, context)).topics[0].partitions
    return row.error_code, row.offset, row.timestamp, row.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (0, 3, -1, 4)),
        (-2, (0, 0, -1, 3)),
        (-3, (0, 1, NOW + 5, 4)),
        (-4, (0, 0, -1, 3)),
        (-5, (0, -1, -1, -1)),
        (-6, (0, -1, -1, -1)),
        (NOW, (0, 0, NOW, 3)),
        (NOW + 1, (0, 1, NOW + 5, 4)),
        (NOW + 6, (0, -1, -1, -1)),
    ],
)
def test_offset_is_found_by_its_timestamp(
    partition: Partition, timestamp: int, expected: tuple[int, int, int, int]
) -> None:
    assert offset_of(partition, timestamp, version=11) == expected


@pytest.mark.parametrize(("timestamp", "first"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)])
def test_special_timestamp_is_unsupported_before_its_version(partition: Partition, timestamp: int, first: int) -> None:
    for version in range(1, 12):
        code = offset_of(partition, timestamp, version=version)[0]
        assert code == (0 if version >= first else ErrorCode.UNSUPPORTED_VERSION), version


@pytest.mark.parametrize(("version", "epoch"), [(3, -1), (4, 4)])
def test_leader_epoch_of_an_offset_is_answered_from_version_4_on(
    partition: Partition, version: int, epoch: int
) -> None:
    assert offset_of(partition, -1, version=version) == (0, 3, -1, epoch)


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_new_leader_does_not_answer_offsets_that_could_go_back(
    partition: Partition, version: int, code: ErrorCode
) -> None:
    partition.leader_epoch_start_offset = 3
    partition.high_watermark = 2
    assert offset_of(partition, -1, version=version)[0] == code
    assert offset_of(partition, NOW, version=version)[0] == code
    assert offset_of(partition, -2, version=version)[:2] == (0, 0), "the start is committed anyway"
    assert offset_of(partition, -1, version=version, replica_id=2)[:2] == (0, 3), "a follower reads to the end"
    partition.high_watermark = 3
    assert offset_of(partition, -1, version=version)[:2] == (0, 3)


def test_leader_epoch_of_a_request_for_offsets_is_checked(partition: Partition) -> None:
    for replica_id in (-1, -2):
        assert offset_of(partition, -1, epoch=4, replica_id=replica_id)[0] == 0
        assert offset_of(partition, -1, epoch=3, replica_id=replica_id)[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert offset_of(partition, -1, epoch=5, replica_id=replica_id)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_only_a_debugging_client_asks_a_follower_for_offsets(partition: Partition) -> None:
    partition.apply_state(PartitionState(2, 5, (1, 2), (1, 2), partition_epoch=2))
    assert offset_of(partition, -1)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert offset_of(partition, -1, replica_id=-2)[:2] == (0, 3)


@pytest.mark.parametrize(
    ("epoch", "current", "expected"),
    [
        (3, -1, (0, 3, 1)),
        (4, 4, (0, 4, 3)),
        (9, -1, (0, -1, -1)),
        (4, 3, (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)),
    ],
)
def test_end_of_an_epoch_is_answered(
    partition: Partition, epoch: int, current: int, expected: tuple[int, int, int]
) -> None:
    rows = [OffsetForLeaderEpochRequestPartition(0, current, epoch)]
    request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderEpochRequestTopic("t", rows)])
    context: Any = SimpleNamespace(services=services_of(partition))
    answer: Any = api_23_offset_for_leader_epoch.handle(request, context)
    (row,) = answer.topics[0].partitions
    assert (row.error_code, row.leader_epoch, row.end_offset) == expected


# --- Metadata, ApiVersions, DescribeCluster ---


class Access:
    """Allows what is listed, as (operation, name); the cluster has the name "cluster"."""

    def __init__(self, *allowed: tuple[AclOperation, str]) -> None:
        self._allowed = allowed
        self.quiet: list[tuple[str, bool]] = []

    def allows(self, operation: AclOperation, _kind: ResourceType, name: str, *, quiet: bool = False) -> bool:
        self.quiet.append((name, quiet))
        return (operation, name) in self._allowed

    def allows_cluster(self, operation: AclOperation, *, quiet: bool = False) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, "cluster", quiet=quiet)


DESCRIBE, CREATE = AclOperation.DESCRIBE, AclOperation.CREATE


@pytest.mark.parametrize(
    ("allowed", "created"),
    [
        ([], []),
        ([(DESCRIBE, "a"), (CREATE, "a")], ["a"]),
        ([(DESCRIBE, "a"), (CREATE, "b")], []),
        ([(DESCRIBE, "a"), (CREATE, "cluster")], ["a"]),
        ([(DESCRIBE, "a"), (DESCRIBE, "b"), (CREATE, "cluster")], ["a", "b"]),
    ],
)
def test_topic_is_created_for_clients_that_may_see_and_create_it(
    allowed: list[tuple[AclOperation, str]], created: list[str]
) -> None:
    access = Access(*allowed)
    assert api_03_metadata._creatable(["a", "b"], access) == created  # type: ignore[arg-type]
    assert ("cluster", True) in access.quiet, "the right on the topic may follow: no audit record"
    assert all(not quiet for name, quiet in access.quiet if name != "cluster")


def test_operations_without_an_authorizer_are_those_of_the_resource() -> None:
    cluster = {"CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"}
    topic = {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
    assert sum(1 << AclOperation[name] for name in cluster) == api_03_metadata.CLUSTER_OPERATIONS
    assert sum(1 << AclOperation[name] for name in topic) == api_03_metadata.TOPIC_OPERATIONS


def api_versions(version: int, *, telemetry: object = None, name: str = "librdkafka", software: str = "2.8") -> Any:
    session = Session("PLAINTEXT", "127.0.0.1")
    services = SimpleNamespace(telemetry=telemetry, image=ClusterImage)
    context: Any = SimpleNamespace(services=services, session=session, version=version)
    answer: Any = api_18_api_versions.handle(ApiVersionsRequest(name, software), context)
    return answer, session


def first_versions(answer: Any) -> dict[int, int]:
    return {row.api_key: row.min_version for row in answer.api_keys._rows}


def test_produce_seems_to_begin_at_version_0() -> None:
    answer, _ = api_versions(3)
    found = first_versions(answer)
    assert found[ApiKey.PRODUCE] == 0
    assert found[ApiKey.FETCH] > 0
    assert ApiKey.PUSH_TELEMETRY not in found
    assert ApiKey.PUSH_TELEMETRY in first_versions(api_versions(3, telemetry=object())[0])


@pytest.mark.parametrize(
    ("name", "software", "version", "is_valid"),
    [
        ("librdkafka", "2.8", 3, True),
        ("lib rdkafka", "2.8", 3, False),
        ("librdkafka", "2 8", 3, False),
        ("librdkafka", "", 3, False),
        ("lib rdkafka", "", 2, True),
    ],
)
def test_software_of_a_client_must_have_a_valid_name(name: str, software: str, version: int, is_valid: bool) -> None:
    answer, session = api_versions(version, name=name, software=software)
    assert answer.error_code == (0 if is_valid else ErrorCode.INVALID_REQUEST)
    is_noted = is_valid and version >= 3
    assert (session.client_software_name == name) is is_noted


def test_features_of_level_0_are_shown_to_clients_that_can_read_them() -> None:
    levels = {version: api_versions(version)[0].supported_features for version in (3, 4)}
    assert all(feature.min_version > 0 for feature in levels[3])
    assert any(feature.min_version == 0 for feature in levels[4])
    assert {feature.name for feature in levels[3]} < {feature.name for feature in levels[4]}


def test_unknown_version_is_answered_with_the_range_of_a_plain_client() -> None:
    answer = api_18_api_versions.unsupported_version_response()
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    found = first_versions(answer)
    assert ApiKey.SASL_HANDSHAKE not in found
    assert ApiKey.GET_TELEMETRY_SUBSCRIPTIONS not in found


@pytest.mark.parametrize(
    ("kind", "code", "wanted"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE, "CONTROLLER endpoints"),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "endpoint type 3"),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "endpoint type 0"),
    ],
)
def test_cluster_has_endpoints_of_brokers_only(kind: int, code: ErrorCode, wanted: str) -> None:
    answer: Any = api_60_describe_cluster.handle(DescribeClusterRequest(endpoint_type=kind), SimpleNamespace())
    assert (answer.error_code, answer.endpoint_type) == (code, kind)
    assert answer.error_message.endswith(wanted)


# --- changes of topics under quotas ---


class Tokens:
    """A quota of mutations with this number of partitions left."""

    def __init__(self, left: int) -> None:
        self.left = left

    def lacking_ms(self, _now_ms: float) -> int:
        return 500 if self.left <= 0 else 0

    def take(self, count: int, _now_ms: float) -> None:
        self.left -= count


class Changing:
    """A controller that changes the topics "a" with 1, "b" with 2 partitions."""

    def __init__(self, left: int, version: int, *, fails: Sequence[str] = ()) -> None:
        self.tokens = Tokens(left)
        self.fails = fails
        self.passed: list[list[str]] = []
        topics = [Topic(name, name.encode() * 16, (STATE,) * (index + 1)) for index, name in enumerate("ab")]
        found = ClusterImage("cluster").with_topics(topics)
        quota = SimpleNamespace(active=True, bucket=lambda *_: self.tokens)
        services = SimpleNamespace(
            controller=self,
            image=lambda: found,
            quotas=SimpleNamespace(mutations=quota),
            clock=SimpleNamespace(monotonic=lambda: 0.0),
        )
        session = SimpleNamespace(is_broker=False)
        self.context: Any = SimpleNamespace(
            services=services, session=session, version=version, quota_entity=("user", "client")
        )

    async def delete_topics(self, wanted: Any) -> list[DeletedTopic]:
        self.passed.append([each.name or each.id.decode() for each in wanted])
        return [DeletedTopic(each.name, each.id, self._failure(each.name)) for each in wanted]

    async def create_partitions(self, wanted: Any, *, validate_only: bool) -> list[GrownTopic]:
        assert not validate_only
        self.passed.append([each.name for each in wanted])
        return [GrownTopic(each.name, self._failure(each.name)) for each in wanted]

    def _failure(self, name: str) -> Failure | None:
        return Failure(ErrorCode.TOPIC_DELETION_DISABLED, "not here") if name in self.fails else None


@pytest.mark.parametrize(
    ("version", "left", "passed", "codes", "throttle_ms"),
    [
        (5, 1, [["a"]], [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED], 500),
        (4, 1, [["a", "b"]], [0, 0], 500),
        (5, 2, [["a", "b"]], [0, 0], 500),
        (5, 9, [["a", "b"]], [0, 0], 0),
        (5, 0, [], [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2, 500),
    ],
)
def test_deletions_above_the_quota_are_refused_to_clients_that_know_of_it(
    version: int, left: int, passed: list[list[str]], codes: list[int], throttle_ms: int
) -> None:
    broker = Changing(left, version)
    response = finished(api_20_delete_topics.handle(DeleteTopicsRequest(topic_names=["a", "b"]), broker.context))
    assert broker.passed == passed
    assert [each.error_code for each in response.responses] == codes
    assert [each.name for each in response.responses] == ["a", "b"]
    assert response.throttle_time_ms == throttle_ms


def test_topic_is_deleted_by_its_id() -> None:
    broker = Changing(1, 6)
    request = DeleteTopicsRequest([DeleteTopicsRequestState(None, b"b" * 16), DeleteTopicsRequestState("a")])
    finished(api_20_delete_topics.handle(request, broker.context))
    assert broker.passed == [["b" * 16]], "its two partitions were counted"


def test_deletion_of_nothing_asks_the_controller() -> None:
    """It rejects the request if it is not the controller."""
    broker = Changing(1, 6)
    finished(api_20_delete_topics.handle(DeleteTopicsRequest([]), broker.context))
    assert broker.passed == [[]]


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_disabled_deletion_is_named_from_version_3_on(version: int, code: ErrorCode) -> None:
    broker = Changing(9, version, fails=["a"])
    response = finished(api_20_delete_topics.handle(DeleteTopicsRequest(topic_names=["a"]), broker.context))
    assert (response.responses[0].error_code, response.responses[0].error_message) == (code, "not here")


@pytest.mark.parametrize(
    ("version", "left", "passed", "codes"),
    [
        (3, 1, [["a"]], [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]),
        (2, 1, [["a", "b"]], [0, 0]),
        (3, 0, [], [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2),
    ],
)
def test_partitions_above_the_quota_are_refused_to_clients_that_know_of_it(
    version: int, left: int, passed: list[list[str]], codes: list[int]
) -> None:
    broker = Changing(left, version)
    request = CreatePartitionsRequest([CreatePartitionsRequestTopic("a", 3), CreatePartitionsRequestTopic("b", 3)])
    response = finished(api_37_create_partitions.handle(request, broker.context))
    assert broker.passed == passed
    assert [each.error_code for each in response.results] == codes


@pytest.mark.parametrize(("total", "left"), [(3, 8), (4, 7), (2, 9), (1, 9), (0, 9)])
def test_added_partitions_are_counted_against_the_quota(total: int, left: int) -> None:
    broker = Changing(9, 3)
    request = CreatePartitionsRequest([CreatePartitionsRequestTopic("b", total)])
    finished(api_37_create_partitions.handle(request, broker.context))
    assert (broker.passed, broker.tokens.left) == ([["b"]], left)


def test_failed_growth_gives_its_tokens_back() -> None:
    broker = Changing(9, 3, fails=["b"])
    request = CreatePartitionsRequest([CreatePartitionsRequestTopic("a", 2), CreatePartitionsRequestTopic("b", 7)])
    response = finished(api_37_create_partitions.handle(request, broker.context))
    assert [each.error_code for each in response.results] == [0, ErrorCode.TOPIC_DELETION_DISABLED]
    assert broker.tokens.left == 8


# --- transactions ---


@pytest.mark.parametrize(
    ("answer", "first"),
    [
        (lambda version: api_22_init_producer_id._response(ProducerResult(ErrorCode.PRODUCER_FENCED), version), 4),
        (lambda version: api_25_add_offsets_to_txn._response(ErrorCode.PRODUCER_FENCED, version), 2),
        (lambda version: api_26_end_txn._response(ProducerResult(ErrorCode.PRODUCER_FENCED), version), 2),
    ],
)
def test_fenced_producer_is_called_so_from_a_version_on(answer: Any, first: int) -> None:
    for version in range(first + 2):
        code = ErrorCode.PRODUCER_FENCED if version >= first else ErrorCode.INVALID_PRODUCER_EPOCH
        assert answer(version).error_code == code


def test_failed_producer_has_neither_id_nor_epoch() -> None:
    response = api_22_init_producer_id._response(ProducerResult(ErrorCode.NOT_COORDINATOR), 4)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (ErrorCode.NOT_COORDINATOR, -1, -1)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (5, -1)])
def test_producer_that_names_half_of_its_identity_is_invalid(producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest("id", 1000, producer_id, epoch)
    answer: Any = api_22_init_producer_id.handle(request, SimpleNamespace(version=4))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


# --- brokers, directories, logins, tokens ---


def test_codes_of_leader_and_isr_are_answered_by_topic() -> None:
    codes = {
        (b"a" * 16, 0): ErrorCode.NONE,
        (b"b" * 16, 1): ErrorCode.KAFKA_STORAGE_ERROR,
        (b"a" * 16, 2): ErrorCode.NONE,
    }

    async def leader_and_isr(_request: object, connection: int) -> Any:
        assert connection == 7
        return codes

    services = SimpleNamespace(cluster=SimpleNamespace(leader_and_isr=leader_and_isr))
    context: Any = SimpleNamespace(services=services, connection=SimpleNamespace(identifier=7))
    response = finished(api_04_leader_and_isr.handle(LeaderAndIsrRequest(), context))
    found = {
        (topic.topic_id, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partition_errors
    }
    assert found == codes


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (None, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REPLICA_NOT_AVAILABLE),
        (ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.LOG_DIR_NOT_FOUND),
    ],
)
def test_each_move_between_directories_has_its_code(failure: ErrorCode | None, code: int) -> None:
    moved: list[tuple[str, str, int]] = []

    def move(path: str, topic: str, index: int) -> None:
        moved.append((path, topic, index))
        if failure is not None and index == 1:
            raise KafkaError(failure)

    context: Any = SimpleNamespace(services=SimpleNamespace(log_directories=SimpleNamespace(move=move)))
    topics = [AlterReplicaLogDirsRequestTopic("t", [0, 1])]
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDirsRequestDir("/a", topics)])
    answer: Any = api_34_alter_replica_log_dirs.handle(request, context)
    response = finished(answer)
    assert moved == [("/a", "t", 0), ("/a", "t", 1)]
    (topic,) = response.results
    assert [(row.partition_index, row.error_code) for row in topic.partitions] == [(0, 0), (1, code)]


@pytest.mark.parametrize("ends", ["", "the login failed"])
def test_failed_login_ends_its_connection_after_the_delay(ends: str) -> None:
    calls: list[object] = []

    async def step(_session: object, data: bytes) -> Any:
        calls.append(data)
        return SimpleNamespace(ends=ends, code=58 if ends else 0, message=ends or None, data=b"next", lifetime_ms=5)

    async def delay() -> None:
        calls.append("delay")

    services = SimpleNamespace(logins=SimpleNamespace(step=step, delay=delay))
    connection = SimpleNamespace(end=calls.append)
    context: Any = SimpleNamespace(services=services, connection=connection, session=None)
    response = finished(api_36_sasl_authenticate.handle(SaslAuthenticateRequest(b"mine"), context))
    assert calls == ([b"mine", "delay", ends] if ends else [b"mine"])
    assert (response.auth_bytes, response.session_lifetime_ms) == (b"next", 5)


def test_rejected_removal_of_a_broker_is_answered_with_its_reason() -> None:
    async def unregister_broker(broker_id: int) -> None:
        if broker_id != 3:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "unknown")

    services = SimpleNamespace(controller=SimpleNamespace(unregister_broker=unregister_broker))
    context: Any = SimpleNamespace(services=services)
    failed = finished(api_64_unregister_broker.handle(UnregisterBrokerRequest(4), context))
    assert (failed.throttle_time_ms, failed.error_code, failed.error_message) == (
        0,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "unknown",
    )
    done = finished(api_64_unregister_broker.handle(UnregisterBrokerRequest(3), context))
    assert (done.error_code, done.error_message) == (0, None)


ALICE = Principal("User", "alice")


def token(name: str, owner: str, *, requester: str = "User:root", renewers: tuple[str, ...] = ()) -> DelegationToken:
    return DelegationToken(name, owner, requester, renewers, 1, 3, 2)


TOKENS = [
    token("1", "User:alice"),
    token("2", "User:bob"),
    token("3", "User:carol", renewers=("User:alice",)),
    token("4", "User:carol", requester="User:alice"),
    token("5", "User:carol"),
]


def seen_tokens(owners: list[str] | None, access: Access | None = None) -> list[str]:
    async def all_tokens() -> list[tuple[DelegationToken, bytes]]:
        return [(each, b"mac") for each in reversed(TOKENS)]

    services = SimpleNamespace(tokens=SimpleNamespace(all=all_tokens), authorization=access)
    session = SimpleNamespace(principal=ALICE, is_broker=False)
    context: Any = SimpleNamespace(services=services, session=session, access=access)
    wanted = None if owners is None else [DescribeDelegationTokenRequestOwner("User", name) for name in owners]
    response = finished(api_41_describe_delegation_token.handle(DescribeDelegationTokenRequest(wanted), context))
    return [each.token_id for each in response.tokens]


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        (None, ["1", "3", "4"]),
        ([], ["1", "3", "4"]),
        (["alice"], ["1", "3", "4"]),
        (["bob"], []),
        (["carol"], ["3", "4"]),
    ],
)
def test_client_sees_the_tokens_that_concern_it(owners: list[str] | None, expected: list[str]) -> None:
    assert seen_tokens(owners) == expected
    assert seen_tokens(owners, Access()) == expected


def test_acls_show_further_tokens() -> None:
    assert seen_tokens(None, Access((DESCRIBE, "2"))) == ["1", "2", "3", "4"]
    assert seen_tokens(None, Access((AclOperation.DESCRIBE_TOKENS, "User:carol"))) == ["1", "3", "4", "5"]
    assert seen_tokens(["bob"], Access((DESCRIBE, "2"))) == ["2"]


@pytest.mark.parametrize(
    ("owner", "access", "is_created"),
    [
        (None, None, True),
        ("bob", None, True),
        ("alice", Access(), True),
        ("bob", Access(), False),
        ("bob", Access((AclOperation.CREATE_TOKENS, "User:bob")), True),
    ],
)
def test_token_for_another_user_needs_a_right(owner: str | None, access: Access | None, is_created: bool) -> None:
    async def create(of: str, requester: str, renewers: list[str], most_ms: int) -> tuple[DelegationToken, bytes]:
        assert (of, requester, renewers, most_ms) == (f"User:{owner or 'alice'}", "User:alice", [], 1000)
        return token("new", of), b"mac"

    services = SimpleNamespace(tokens=SimpleNamespace(create=create), authorization=access)
    session = SimpleNamespace(principal=ALICE, is_broker=False)
    context: Any = SimpleNamespace(services=services, session=session, access=access, version=3)
    request = CreateDelegationTokenRequest("User" if owner else None, owner, [], 1000)
    response = finished(api_38_create_delegation_token.handle(request, context))
    failed = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (response.error_code, response.token_id) == ((0, "new") if is_created else (failed, ""))
    times = response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms
    assert times == ((1, 2, 3) if is_created else (-1, -1, -1))
    assert response.token_requester_principal_name == ALICE.name


def test_telemetry_needs_a_receiver() -> None:
    context: Any = SimpleNamespace(services=SimpleNamespace(telemetry=None))
    with pytest.raises(KafkaError) as raised:
        api_71_get_telemetry_subscriptions.handle(GetTelemetrySubscriptionsRequest(), context)
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_telemetry_subscription_is_that_of_the_client() -> None:
    asked: list[Any] = []

    def subscription_of(client: Any, instance_id: bytes) -> Any:
        asked.append((*client, instance_id))
        return SimpleNamespace(
            instance_id=b"i" * 16, subscription_id=4, push_interval_ms=1000, max_bytes=99, metrics=("org.apache",)
        )

    session = Session("PLAINTEXT", "10.0.0.1")
    services = SimpleNamespace(telemetry=SimpleNamespace(subscription_of=subscription_of))
    context: Any = SimpleNamespace(services=services, session=session, client_id=None)
    answer: Any = api_71_get_telemetry_subscriptions.handle(GetTelemetrySubscriptionsRequest(b"x" * 16), context)
    assert (answer.subscription_id, answer.push_interval_ms, answer.telemetry_max_bytes) == (4, 1000, 99)
    assert (answer.requested_metrics, answer.delta_temporality) == (["org.apache"], False)
    assert (asked[0][0], asked[0][-2:]) == ("", ("10.0.0.1", b"x" * 16))
