"""Our admin client against Apache Kafka 4.3 and against our own broker: both must give it the same answers."""

import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.client import Admin, KafkaError, NewTopic, Producer, TopicPartition, TransactionalProducer
from odradek.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AlterConfig,
    AlterConfigOp,
    ClientQuotaEntity,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ElectionType,
    FeatureUpdate,
    FeatureUpgradeType,
    GroupState,
    GroupType,
    IsolationLevel,
    OffsetSpec,
    OpenTransaction,
    QuotaEntityType,
    QuotaFilter,
    QuotaMatch,
    ResourceType,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    TopicPartitionReplica,
    TransactionState,
    raise_first,
)
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ProducerFenced, UnsupportedByBroker
from odradek.client.network.connection import Request
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from tests.interop.client_suite import run, until

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def name(unique_name: Callable[[str], str]) -> str:
    return unique_name("admin")


@asynccontextmanager
async def admin_with_topic(server: str, name: str, partitions: int = 2) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=server) as admin:
        raise_first(await admin.create_topics([NewTopic(name, partitions, 1)]))
        await admin.cluster.topic(name)
        yield admin


async def only_broker(admin: Admin) -> int:
    return (await admin.describe_cluster()).brokers[0].node_id


def test_cluster_is_described_with_what_this_client_may_do(server: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            found = await admin.describe_cluster(include_fenced=True, include_authorized_operations=True)
            assert [each.node_id for each in found.brokers]
            assert found.fenced == frozenset()
            assert found.authorized_operations is not None
            assert AclOperation.ALTER_CONFIGS in found.authorized_operations

    run(body())


def test_offsets_of_an_unknown_partition_are_an_error_of_that_one(server: str, name: str) -> None:
    async def body() -> None:
        async with admin_with_topic(server, name) as admin:
            known, unknown = TopicPartition(name, 1), TopicPartition(name, 7)
            done = await admin.groups.alter_offsets(name, {known: 5, unknown: 5})
            assert done[known] is None
            assert getattr(done[unknown], "code", None) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await admin.groups.offsets(name)).keys() == {known}

    run(body())


def test_quotas_are_set_described_and_removed(server: str, name: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            entity = ClientQuotaEntity.of({QuotaEntityType.USER: name, QuotaEntityType.CLIENT_ID: None})
            wanted = [QuotaFilter(QuotaEntityType.USER, QuotaMatch.EXACT, name), QuotaFilter(QuotaEntityType.CLIENT_ID)]
            raise_first(await admin.quotas.alter({entity: {"producer_byte_rate": 1024, "consumer_byte_rate": 2048}}))
            both = {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0}

            async def described(expected: dict[ClientQuotaEntity, dict[str, float]]) -> bool:
                return await admin.quotas.describe(wanted, strict=True) == expected

            await until(lambda: described({entity: both}))
            raise_first(await admin.quotas.alter({entity: dict.fromkeys(both)}))
            await until(lambda: described({}))

    run(body())


def test_quota_with_an_unknown_name_is_an_error_of_its_entity(server: str, name: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            entity = ClientQuotaEntity.of({"user": name})
            failure = (await admin.quotas.alter({entity: {"no_such_rate": 1}}))[entity]
            assert failure is not None
            assert failure.code is ErrorCode.INVALID_REQUEST

    run(body())


def test_scram_credentials_are_set_described_and_removed(server: str, name: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            mechanism = ScramMechanism.SCRAM_SHA_256
            raise_first(await admin.users.alter([ScramUpsertion(name, mechanism, "secret", 4096)]))

            async def described() -> bool:
                return (await admin.users.describe([name]))[name] == [ScramCredential(mechanism, 4096)]

            await until(described)
            missing = ScramDeletion(name, ScramMechanism.SCRAM_SHA_512)
            failure = (await admin.users.alter([missing]))[name]
            assert failure is not None
            assert failure.code is ErrorCode.RESOURCE_NOT_FOUND
            raise_first(await admin.users.alter([ScramDeletion(name, mechanism)]))

            async def gone() -> bool:
                found = (await admin.users.describe([name]))[name]
                return isinstance(found, KafkaError) and found.code is ErrorCode.RESOURCE_NOT_FOUND

            await until(gone)

    run(body())


def test_acl_calls_report_disabled_security(server: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            with pytest.raises(KafkaError, match="SECURITY_DISABLED"):
                await admin.acls.describe()
            binding = AclBinding(ResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
            created = (await admin.acls.create([binding]))[binding]
            assert created is not None
            assert created.code is ErrorCode.SECURITY_DISABLED
            matching = AclFilter(ResourceType.TOPIC)
            deleted = (await admin.acls.delete([matching]))[matching]
            assert isinstance(deleted, KafkaError)
            assert deleted.code is ErrorCode.SECURITY_DISABLED

    run(body())


def test_features_are_described_with_levels(server: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            found = await admin.features.describe()
            assert found.epoch is not None
            for feature in ("group.version", "transaction.version"):
                assert found.finalized[feature].max_version <= found.supported[feature].max_version

    run(body())


def test_feature_update_that_no_broker_supports_is_rejected(server: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            before = await admin.features.describe()
            update = FeatureUpdate(9_999, FeatureUpgradeType.UPGRADE)
            with pytest.raises(KafkaError):
                raise_first(await admin.features.update({"transaction.version": update}, validate_only=True))
            assert (await admin.features.describe()).finalized == before.finalized

    run(body())


def test_quorum_is_described_with_its_leader_as_a_voter(server: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            found = await admin.describe_quorum()
            assert found.leader_id in [each.replica_id for each in found.voters]
            assert found.leader_epoch >= 1
            assert found.high_watermark >= 0

    run(body())


def test_open_transaction_is_listed_described_and_aborted(server: str, name: str) -> None:
    async def body() -> None:
        place = TopicPartition(name, 0)
        async with (
            admin_with_topic(server, name) as admin,
            TransactionalProducer(bootstrap_servers=server, transactional_id=name) as producer,
        ):
            producer.begin()
            await (await producer.send(name, b"open", partition=0))

            (listed,) = await admin.transactions.list(transactional_id_pattern=name)
            assert (listed.transactional_id, listed.state) == (name, TransactionState.ONGOING)
            assert await admin.transactions.list(producer_ids=[listed.producer_id]) == [listed]
            assert listed not in await admin.transactions.list(longer_than_ms=3_600_000)
            assert listed not in await admin.transactions.list(states=[TransactionState.PREPARE_COMMIT])

            described = raise_first(await admin.transactions.describe([name]))[name]
            assert described.partitions == [place]
            assert described.start_time_ms is not None
            assert described.coordinator_id == await only_broker(admin)

            (state,) = raise_first(await admin.transactions.describe_producers([place]))[place]
            assert (state.producer_id, state.producer_epoch) == (listed.producer_id, described.producer_epoch)
            assert state.transaction_start_offset == 0

            await admin.transactions.abort(
                OpenTransaction(place, state.producer_id, state.producer_epoch, state.coordinator_epoch or 0)
            )
            (after,) = raise_first(await admin.transactions.describe_producers([place]))[place]
            assert after.transaction_start_offset is None
            await producer.abort()

    run(body())


def test_unknown_transactional_id_is_an_error_of_its_own(server: str, name: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            found = (await admin.transactions.describe([name]))[name]
            assert isinstance(found, KafkaError)
            assert found.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run(body())


def test_fenced_producer_loses_its_open_transaction(server: str, name: str) -> None:
    async def body() -> None:
        async with (
            admin_with_topic(server, name) as admin,
            TransactionalProducer(bootstrap_servers=server, transactional_id=name) as producer,
        ):
            producer.begin()
            await (await producer.send(name, b"open", partition=0))
            before = raise_first(await admin.transactions.describe([name]))[name]
            fenced = raise_first(await admin.transactions.fence([name]))[name]
            assert fenced.producer_epoch > before.producer_epoch
            after = raise_first(await admin.transactions.describe([name]))[name]
            assert after.partitions == []
            with pytest.raises(ProducerFenced):
                await producer.commit()

    run(body())


def test_log_directories_report_sizes_and_places_of_replicas(server: str, name: str) -> None:
    async def body() -> None:
        async with admin_with_topic(server, name) as admin, Producer(bootstrap_servers=server) as producer:
            await (await producer.send(name, b"x" * 100, partition=1))
            broker = await only_broker(admin)
            directories = raise_first(await admin.log_dirs.describe())[broker]
            (path,) = directories
            assert directories[path].error is None
            assert directories[path].replicas[TopicPartition(name, 1)].size_bytes > 100
            assert (directories[path].usable_bytes or 0) > 0
            replica = TopicPartitionReplica(name, 1, broker)
            missing = TopicPartitionReplica(name, 7, broker)
            found = raise_first(await admin.log_dirs.describe_replicas([replica, missing]))
            assert (found[replica].current, found[replica].future) == (path, None)
            assert found[missing].current is None
            moved = await admin.log_dirs.alter({replica: "/no/such/directory"})
            assert moved[replica] is not None
            assert moved[replica].code is ErrorCode.LOG_DIR_NOT_FOUND  # type: ignore[union-attr]

    run(body())


@pytest.mark.parametrize("election_type", ElectionType)
def test_election_that_is_not_needed_says_so(server: str, name: str, election_type: ElectionType) -> None:
    async def body() -> None:
        async with admin_with_topic(server, name, 1) as admin:
            place, missing = TopicPartition(name, 0), TopicPartition(name, 5)
            found = await admin.replicas.elect([place, missing], election_type)
            assert found[place] is not None
            assert found[place].code is ErrorCode.ELECTION_NOT_NEEDED  # type: ignore[union-attr]
            assert found[missing] is not None
            assert found[missing].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[union-attr]

    run(body())


def test_reassignments_report_an_error_for_each_partition(server: str, name: str) -> None:
    async def body() -> None:
        async with admin_with_topic(server, name) as admin:
            broker = await only_broker(admin)
            good, absent, idle = TopicPartition(name, 0), TopicPartition(name, 9), TopicPartition(name, 1)
            found = await admin.replicas.reassign({good: [broker], absent: [broker], idle: None})
            assert found[good] is None
            assert found[absent] is not None
            assert found[absent].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[union-attr]
            assert found[idle] is not None
            assert found[idle].code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS  # type: ignore[union-attr]
            assert await admin.replicas.reassignments([good]) == {}

    run(body())


def test_settings_are_altered_with_typed_operations(server: str, name: str) -> None:
    async def body() -> None:
        async with admin_with_topic(server, name) as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, name)
            append = AlterConfig("cleanup.policy", "compact", AlterConfigOp.APPEND)
            raise_first(await admin.alter_configs({resource: [append]}))

            async def altered() -> bool:
                entry = raise_first(await admin.describe_configs([resource]))[resource]["cleanup.policy"]
                return entry.value == "delete,compact" and entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG

            await until(altered)
            assert resource in await admin.list_config_resources([ConfigResourceType.TOPIC])

    run(body())


@pytest.mark.parametrize("static", [True, False])
def test_members_of_a_group_are_described_and_removed(server: str, name: str, static: bool) -> None:
    async def body() -> None:
        async with admin_with_topic(server, name) as admin:
            options: dict[str, Any] = {"group_instance_id": "first"} if static else {}
            async with Consumer(name, group_id=name, bootstrap_servers=server, **options) as consumer:
                while not consumer.assignment():
                    await consumer.poll(100)
                found = raise_first(await admin.groups.describe([name]))[name]
                assert (found.state, found.type) == (GroupState.STABLE, GroupType.CLASSIC)
                assert sorted(found.members[0].assignment or ()) == [TopicPartition(name, 0), TopicPartition(name, 1)]
                removed = await admin.groups.remove_members(name, ["first"] if static else None)
                assert removed == {"first" if static else found.members[0].member_id: None}

    run(body())


def test_missing_group_is_an_error_of_its_own(server: str, name: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            found = (await admin.groups.describe([name]))[name]
            assert isinstance(found, KafkaError)
            assert found.code is ErrorCode.GROUP_ID_NOT_FOUND
            deleted = (await admin.groups.delete([name]))[name]
            assert deleted is not None
            assert deleted.code is ErrorCode.GROUP_ID_NOT_FOUND

    run(body())


def test_offsets_are_listed_with_an_error_for_each_partition(server: str, name: str) -> None:
    async def body() -> None:
        async with Producer(bootstrap_servers=server) as producer, admin_with_topic(server, name, 1) as admin:
            now = int(time.time() * 1_000)  # retention would delete records of the past
            for number in range(3):
                await producer.send_and_wait(name, b"x", timestamp_ms=now - number)
            there = TopicPartition(name, 0)
            for spec, offset in ((OffsetSpec.EARLIEST, 0), (OffsetSpec.LATEST, 3), (OffsetSpec.MAX_TIMESTAMP, 0)):
                for isolation_level in IsolationLevel:
                    found = await admin.list_offsets({there: spec}, isolation_level=isolation_level)
                    assert raise_first(found)[there].offset == offset
        async with Admin(bootstrap_servers=server, default_api_timeout_ms=2_000) as admin:
            missing = TopicPartition(name, 7)
            results = await admin.list_offsets({there: OffsetSpec.LATEST, missing: OffsetSpec.LATEST})
            assert raise_first({there: results[there]})[there].offset == 3
            error = results[missing]
            assert isinstance(error, KafkaError)
            assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(body())


def test_topics_are_described_and_deleted_by_id(server: str, name: str) -> None:
    async def body() -> None:
        async with admin_with_topic(server, name) as admin:
            topic_id = admin.cluster.metadata.topic_id(name)
            unknown = bytes(15) + b"\7"
            found = await admin.describe_topics_by_id([topic_id, unknown])
            topic, error = found[topic_id], found[unknown]
            assert not isinstance(topic, KafkaError)
            assert (topic.name, len(topic.partitions)) == (name, 2)
            assert isinstance(error, KafkaError)
            assert error.code is ErrorCode.UNKNOWN_TOPIC_ID
            deleted = await admin.delete_topics_by_id([topic_id, unknown])
            assert deleted[topic_id] is None
            refused = deleted[unknown]
            assert refused is not None
            assert refused.code is ErrorCode.UNKNOWN_TOPIC_ID

    run(body())


def test_groups_of_other_protocols_are_described_or_unsupported(server: str, name: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            describe: dict[type[Request], Callable[[list[str]], Coroutine[Any, Any, dict[str, Any]]]] = {
                ShareGroupDescribeRequest: admin.share_groups.describe,
                StreamsGroupDescribeRequest: admin.streams_groups.describe,
            }
            for request, groups in describe.items():
                if await admin.offers(request):
                    found = (await groups([name]))[name]
                    assert isinstance(found, KafkaError)
                    assert found.code is ErrorCode.GROUP_ID_NOT_FOUND
                else:
                    with pytest.raises(UnsupportedByBroker) as caught:
                        await groups([name])
                    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION

    run(body())


def test_client_metrics_resources_are_listed(server: str, name: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
            raise_first(await admin.alter_configs({resource: [AlterConfig("interval.ms", "60000")]}))

            async def is_listed() -> bool:
                return resource in await admin.list_config_resources([ConfigResourceType.CLIENT_METRICS])

            await until(is_listed)
            raise_first(await admin.alter_configs({resource: [AlterConfig("interval.ms", None, AlterConfigOp.DELETE)]}))

    run(body())
