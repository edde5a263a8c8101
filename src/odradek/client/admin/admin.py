"""The admin client's face; its subjects are the other modules of this package."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from odradek.client.admin import configs as config_calls
from odradek.client.admin import topics as topic_calls
from odradek.client.admin import topology
from odradek.client.admin.configs import AlterConfig, ConfigEntry, ConfigResource
from odradek.client.admin.enums import ConfigResourceType
from odradek.client.admin.groups import GroupsAdmin
from odradek.client.admin.replicas import ReplicasAdmin
from odradek.client.admin.requests import AdminRequests
from odradek.client.admin.topics import NewTopic
from odradek.client.admin.topology import ClusterDescription, QuorumDescription
from odradek.client.arguments import check_ports, keywords
from odradek.client.config import AdminOptions, resolve_admin
from odradek.client.errors import IllegalState
from odradek.client.metrics.push import MetricsPush, instance_id
from odradek.client.model import IsolationLevel, OffsetAndTimestamp, OffsetSpec
from odradek.client.network.cluster import Cluster
from odradek.client.network.connection import Request
from odradek.client.network.metadata import TopicInfo
from odradek.ports.network import Network
from odradek.ports.randomness import Random
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.client.admin.acls import AclsAdmin
    from odradek.client.admin.features import FeaturesAdmin
    from odradek.client.admin.log_dirs import LogDirsAdmin
    from odradek.client.admin.quotas import QuotasAdmin
    from odradek.client.admin.raft_voters import RaftVotersAdmin
    from odradek.client.admin.share_groups import ShareGroupsAdmin
    from odradek.client.admin.streams_groups import StreamsGroupsAdmin
    from odradek.client.admin.tokens import TokensAdmin
    from odradek.client.admin.transactions import TransactionsAdmin
    from odradek.client.admin.users import UsersAdmin
    from odradek.client.metrics.metric import Metric, Metrics


class Admin:
    """`async with Admin(bootstrap_servers=...) as admin: await admin.create_topics([NewTopic("t", 4)])`.

    Calls that name several things return a dict with a KafkaError as the *value* of each that failed; `raise_first`
    turns such an answer into an exception. Every call raises ClientError when no broker answers in time.

    Example:

        async with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
            raise_first(await admin.create_topics([NewTopic("clicks", num_partitions=4)]))
            for topic, found in (await admin.describe_topics(["clicks", "absent"])).items():
                print(topic, found.code if isinstance(found, KafkaError) else len(found.partitions))
    """

    __slots__ = ("_cluster", "_config", "_network", "_push", "_random", "_requests", "groups", "replicas")

    def __init__(
        self, *, network: Network | None = None, random: Random | None = None, **options: Unpack[AdminOptions]
    ) -> None:
        """Options as in Kafka, underscores for dots. Raises ConfigError."""
        self._config = resolve_admin(options)
        check_ports(network=network, random=random)
        self._network = network
        self._random = random
        self._cluster: Cluster | None = None
        self._push: MetricsPush | None = None
        self._requests = AdminRequests(lambda: self.cluster)
        self.groups = GroupsAdmin(self._requests)
        """Consumer groups: list, describe, delete, their offsets and members."""
        self.replicas = ReplicasAdmin(self._requests)
        """Replicas of partitions: reassign them, elect leaders, compare end offsets."""

    @property
    def log_dirs(self) -> LogDirsAdmin:
        """Log directories: describe them, move replicas between them."""
        from odradek.client.admin.log_dirs import LogDirsAdmin

        return LogDirsAdmin(self._requests)

    @property
    def share_groups(self) -> ShareGroupsAdmin:
        """Share groups: describe them, their offsets."""
        from odradek.client.admin.share_groups import ShareGroupsAdmin

        return ShareGroupsAdmin(self._requests)

    @property
    def streams_groups(self) -> StreamsGroupsAdmin:
        """Groups of Kafka Streams: describe them."""
        from odradek.client.admin.streams_groups import StreamsGroupsAdmin

        return StreamsGroupsAdmin(self._requests)

    @property
    def raft_voters(self) -> RaftVotersAdmin:
        """Voters of a KRaft quorum: add, remove."""
        from odradek.client.admin.raft_voters import RaftVotersAdmin

        return RaftVotersAdmin(self._requests)

    @property
    def quotas(self) -> QuotasAdmin:
        """Client quotas: describe, alter."""
        from odradek.client.admin.quotas import QuotasAdmin

        return QuotasAdmin(self._requests)

    @property
    def users(self) -> UsersAdmin:
        """SCRAM credentials of users: describe, alter."""
        from odradek.client.admin.users import UsersAdmin

        return UsersAdmin(self._requests)

    @property
    def tokens(self) -> TokensAdmin:
        """Delegation tokens: create, renew, expire, describe."""
        from odradek.client.admin.tokens import TokensAdmin

        return TokensAdmin(self._requests)

    @property
    def acls(self) -> AclsAdmin:
        """Access control lists: describe, create, delete."""
        from odradek.client.admin.acls import AclsAdmin

        return AclsAdmin(self._requests)

    @property
    def transactions(self) -> TransactionsAdmin:
        """Transactions: list, describe, abort; their producers: describe, fence."""
        from odradek.client.admin.transactions import TransactionsAdmin

        return TransactionsAdmin(self._requests)

    @property
    def features(self) -> FeaturesAdmin:
        """Features of the cluster: describe, update."""
        from odradek.client.admin.features import FeaturesAdmin

        return FeaturesAdmin(self._requests)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **arguments: Any) -> Self:
        """From a mapping with Kafka's dotted names; `arguments` are the constructor's others. Raises ConfigError."""
        return cls(**keywords(config, arguments))

    async def start(self) -> None:
        """Make the client usable; it connects on the first call."""
        if self._cluster is None:
            self._cluster = Cluster(
                self._config, network=self._network, random=self._random, allow_auto_create_topics=False
            )
            if self._config["enable_metrics_push"]:
                rack = self._config["client_rack"]
                self._push = MetricsPush(self._cluster, self.metrics, lambda: {"client_rack": rack} if rack else {})

    async def close(self) -> None:
        """Close all connections."""
        if self._push is not None:
            await self._push.close()
        if self._cluster is not None:
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def config(self) -> AdminOptions:
        """All options as resolved."""
        return self._config

    def metrics(self) -> Metrics:
        """What the client has measured, under Java's names. Raises IllegalState before `start`."""
        from odradek.client.metrics.compute import admin_metrics

        return admin_metrics(self.cluster)

    def register_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Push an application's own metrics, too, where brokers ask for them (KIP-1076)."""
        if self._push is not None:
            self._push.add_source(source)

    def unregister_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """End what `register_metrics` began; without effect for an unknown source."""
        if self._push is not None:
            self._push.remove_source(source)

    async def client_instance_id(self, timeout_ms: float = 30_000) -> str:
        """The id that brokers gave this client (KIP-714), as Kafka writes ids. Raises IllegalState, CallTimedOut."""
        self.cluster.check_loop()
        return await instance_id(self._push, timeout_ms)

    @property
    def cluster(self) -> Cluster:
        """Connections and metadata. Raises IllegalState before `start`."""
        if self._cluster is None:
            raise IllegalState("the admin client is not started: use it in `async with`, or call start()")
        return self._cluster

    async def offers(self, request: type[Request]) -> bool:
        """Whether a broker offers the API of a request. Raises ClientError."""
        return request.API_KEY in (await self.cluster.connections.any()).versions

    # --- topics ---

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int = 60_000
    ) -> dict[str, bytes | KafkaError]:
        """Create topics; the topic id (sixteen bytes, zeros where the broker gives none) of each or its error."""
        return await topic_calls.create_topics(
            self._requests, topics, validate_only=validate_only, timeout_ms=timeout_ms
        )

    async def delete_topics(self, names: Iterable[str], *, timeout_ms: int = 60_000) -> dict[str, KafkaError | None]:
        """Delete topics with all their records."""
        return await topic_calls.delete_topics(self._requests, names, timeout_ms=timeout_ms)

    async def delete_topics_by_id(
        self, ids: Iterable[bytes], *, timeout_ms: int = 60_000
    ) -> dict[bytes, KafkaError | None]:
        """Delete topics by their ids (KIP-516): never a topic that was created later under the same name."""
        return await topic_calls.delete_topics_by_id(self._requests, ids, timeout_ms=timeout_ms)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Names of all topics, sorted."""
        found = await self.describe_topics(None)
        return sorted(
            n for n, t in found.items() if isinstance(t, TopicInfo) and (include_internal or not t.is_internal)
        )

    async def describe_topics(self, names: Collection[str] | None) -> dict[str, TopicInfo | KafkaError]:
        """Topics with their partitions (all topics for None), read from a broker now."""
        return await topic_calls.describe_topics(self._requests, names)

    async def describe_topics_by_id(self, ids: Iterable[bytes]) -> dict[bytes, TopicInfo | KafkaError]:
        """Topics by their ids (KIP-516), read from a broker now."""
        return await topic_calls.describe_topics_by_id(self._requests, ids)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, list[list[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: int = 60_000,
    ) -> dict[str, KafkaError | None]:
        """Raise the number of partitions of topics to `counts`; assignments give broker ids for each new one."""
        return await topic_calls.create_partitions(
            self._requests, counts, assignments=assignments, validate_only=validate_only, timeout_ms=timeout_ms
        )

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int = 60_000
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete the records before the offsets (-1: the high watermark); the new log start offset by partition."""
        return await topic_calls.delete_records(self._requests, offsets, timeout_ms=timeout_ms)

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
        """Offsets by an OffsetSpec or by time (ms since the epoch); offset -1 where no record is that young."""
        return await topic_calls.list_offsets(
            self._requests, timestamps, isolation_level=IsolationLevel(isolation_level)
        )

    # --- configs ---

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, keys: Collection[str] | None = None, documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """All settings (or these keys) of topics, brokers, groups; their documentation since Kafka 2.6 (KIP-569)."""
        return await config_calls.describe_configs(self._requests, resources, keys=keys, documentation=documentation)

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change single settings and leave the others as they are (IncrementalAlterConfigs)."""
        return await config_calls.alter_configs(self._requests, changes, validate_only=validate_only)

    async def list_config_resources(self, types: Collection[ConfigResourceType] = ()) -> list[ConfigResource]:
        """Resources that have settings, of these types or of all (KIP-1142). Raises KafkaError."""
        return await config_calls.list_config_resources(self._requests, types)

    # --- the cluster ---

    async def describe_cluster(
        self,
        *,
        include_fenced: bool = False,
        include_authorized_operations: bool = False,
        of_controllers: bool = False,
    ) -> ClusterDescription:
        """Id, controller and live brokers; on request fenced brokers, and what this client may do with the cluster.

        With `of_controllers` the bootstrap servers are controllers of KRaft, and controllers are described (KIP-919).
        Raises KafkaError, UnsupportedByBroker where the broker is too old for fenced brokers.
        """
        return await topology.describe_cluster(
            self._requests,
            include_fenced=include_fenced,
            include_authorized_operations=include_authorized_operations,
            of_controllers=of_controllers,
        )

    async def describe_quorum(self, *, of_controllers: bool = False) -> QuorumDescription:
        """The quorum that keeps the cluster's metadata (KIP-595). Raises KafkaError.

        With `of_controllers` the bootstrap servers are controllers of KRaft (KIP-919).
        """
        return await topology.describe_quorum(self._requests, of_controllers=of_controllers)

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker that is gone for good. Raises KafkaError."""
        await topology.unregister_broker(self._requests, broker_id)
