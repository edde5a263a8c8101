"""The admin client: topics, configs, groups, offsets, the cluster.

Calls that name several things answer for each: a dict of results where a failure of one thing is a KafkaError *value*,
so that the rest is not lost. `raise_first` turns such an answer into an exception.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, Unpack

from odradek.client.cluster import Cluster, error_of, is_stale_metadata
from odradek.client.config import AdminOptions, resolve_admin
from odradek.client.connection import Request, Response
from odradek.client.connections import BrokerAddress
from odradek.client.errors import IllegalState
from odradek.client.groups import GroupDescription, GroupListing, GroupsAdmin
from odradek.client.metadata import TopicInfo
from odradek.client.model import READ_UNCOMMITTED, OffsetAndTimestamp, TopicPartition
from odradek.client.offsets import by_topic, list_offsets
from odradek.client.replicas import ReplicasAdmin
from odradek.ports.network import Network
from odradek.ports.randomness import Random
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from odradek.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestReplicaAssignment,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestState, DeleteTopicsResponse
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
    DescribeLogDirsResponseLogDir,
)
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)

__all__ = [
    "Admin",
    "AlterConfig",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "GroupDescription",
    "GroupListing",
    "NewTopic",
    "raise_first",
]

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
GROUP: Final = 32
"""Types of config resources (Kafka's ConfigResource.Type)."""

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
"""Operations of an incremental change (KIP-339)."""

CONFIG_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}

T = TypeVar("T")
K = TypeVar("K")


class NewTopic(NamedTuple):
    """A topic to create. -1 takes the broker's default; replica_assignments gives broker ids by partition instead."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    replica_assignments: Mapping[int, list[int]] = {}


class ConfigResource(NamedTuple):
    """type: TOPIC, BROKER, ...; a broker's name is its id, or empty for the default of all brokers."""

    type: int
    name: str


class ConfigEntry(NamedTuple):
    """source as in CONFIG_SOURCES; synonyms are (name, value, source) from the one in effect downwards."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    synonyms: list[tuple[str, str | None, str]]

    @property
    def is_default(self) -> bool:
        return self.source == "DEFAULT_CONFIG"


class AlterConfig(NamedTuple):
    name: str
    value: str | None = None
    operation: int = SET


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: list[BrokerAddress]


def raise_first(results: Mapping[K, T | KafkaError]) -> dict[K, T]:
    """The results, if none is an error; else raises the first error."""
    checked: dict[K, T] = {}
    for key, result in results.items():
        if isinstance(result, KafkaError):
            raise result
        checked[key] = result
    return checked


class Admin:
    """`async with Admin(bootstrap_servers=...) as admin: await admin.create_topics([NewTopic("t", 4)])`."""

    __slots__ = ("_cluster", "_config", "_network", "_random", "groups", "replicas")

    def __init__(
        self, *, network: Network | None = None, random: Random | None = None, **options: Unpack[AdminOptions]
    ) -> None:
        """Options as in Kafka, underscores for dots. Raises ConfigError."""
        self._config = resolve_admin(options)
        self._network = network
        self._random = random
        self._cluster: Cluster | None = None
        self.groups = GroupsAdmin(lambda: self.cluster)
        """Consumer groups: list, describe, delete, their offsets."""
        self.replicas = ReplicasAdmin(lambda: self.cluster)
        """Copies of partitions: move them, elect their leaders, see how far they have come."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **arguments: Any) -> Self:
        """From a mapping with Kafka's dotted names."""
        return cls(**arguments, **{name.replace(".", "_"): value for name, value in config.items()})

    async def start(self) -> None:
        if self._cluster is None:
            self._cluster = Cluster(
                self._config, network=self._network, random=self._random, allow_auto_create_topics=False
            )

    async def close(self) -> None:
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
    def cluster(self) -> Cluster:
        """Connections and metadata. Raises IllegalState before `start`."""
        if self._cluster is None:
            raise IllegalState("the admin client is not started: use it in `async with`, or call start()")
        return self._cluster

    # --- topics ---

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int = 60_000
    ) -> dict[str, bytes | KafkaError]:
        """Create topics; the topic id (sixteen bytes, zeros where the broker gives none) of each or its error."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequestTopic(
                    each.name,
                    -1 if each.replica_assignments else each.num_partitions,
                    -1 if each.replica_assignments else each.replication_factor,
                    [CreateTopicsRequestReplicaAssignment(n, ids) for n, ids in each.replica_assignments.items()],
                    [CreateTopicsRequestConfig(name, value) for name, value in each.configs.items()],
                )
                for each in topics
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )
        response = await self._ask_controller(request, CreateTopicsResponse, lambda r: [t.error_code for t in r.topics])
        return {
            t.name: error_of(t.error_code, t.error_message) if t.error_code else t.topic_id for t in response.topics
        }

    async def delete_topics(self, names: Iterable[str], *, timeout_ms: int = 60_000) -> dict[str, KafkaError | None]:
        wanted = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequestState(name=each) for each in wanted], topic_names=wanted, timeout_ms=timeout_ms
        )
        response = await self._ask_controller(
            request,
            DeleteTopicsResponse,
            lambda r: [t.error_code for t in r.responses],
            one_of=("topics", "topic_names", 6),
        )
        for each in wanted:
            self.cluster.metadata.topics.pop(each, None)
        return {t.name or "": _failure(t.error_code, t.error_message) for t in response.responses}

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Names of all topics, sorted."""
        topics = await self.describe_topics(None)
        return sorted(
            n for n, t in topics.items() if isinstance(t, TopicInfo) and (include_internal or not t.is_internal)
        )

    async def describe_topics(self, names: Collection[str] | None) -> dict[str, TopicInfo | KafkaError]:
        """Topics with their partitions (all topics for None), read from a broker now."""
        cluster = self.cluster
        cluster.follow_topics(names)

        async def attempt() -> dict[str, TopicInfo | KafkaError]:
            errors = await cluster.refresh_metadata()
            found: dict[str, TopicInfo | KafkaError] = {}
            for name in sorted(cluster.metadata.topics if names is None else names):
                info = cluster.metadata.topics.get(name)
                if name in errors or info is None:
                    found[name] = error_of(errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name}")
                else:
                    found[name] = info
            return found

        return await cluster.retrying(attempt, "describe topics")

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, list[list[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: int = 60_000,
    ) -> dict[str, KafkaError | None]:
        """Grow topics to so many partitions; assignments give broker ids for each new one."""
        topics = []
        for name, count in counts.items():
            given = (assignments or {}).get(name)
            brokers = None if given is None else [CreatePartitionsRequestAssignment(each) for each in given]
            topics.append(CreatePartitionsRequestTopic(name, count, brokers))
        request = CreatePartitionsRequest(topics, timeout_ms, validate_only)
        response = await self._ask_controller(
            request, CreatePartitionsResponse, lambda r: [t.error_code for t in r.results]
        )
        return {t.name: _failure(t.error_code, t.error_message) for t in response.results}

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int = 60_000
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete what lies before the offsets (-1: before the high watermark); the new log start of each partition."""
        cluster = self.cluster
        done: dict[TopicPartition, int | KafkaError] = {}

        async def attempt() -> dict[TopicPartition, int | KafkaError]:
            leaders: dict[int, list[TopicPartition]] = defaultdict(list)
            for key in offsets:
                if key not in done:
                    leaders[(await cluster.leader(*key)).leader].append(key)
            for node_id, keys in leaders.items():
                topics = [
                    DeleteRecordsRequestTopic(
                        topic, [DeleteRecordsRequestPartition(p, offsets[TopicPartition(topic, p)]) for p in partitions]
                    )
                    for topic, partitions in by_topic(keys).items()
                ]
                response = await cluster.request(
                    node_id, DeleteRecordsRequest(topics, timeout_ms), DeleteRecordsResponse
                )
                for topic_answer in response.topics:
                    for each in topic_answer.partitions:
                        key = TopicPartition(topic_answer.name, each.partition_index)
                        if is_stale_metadata(each.error_code):
                            await cluster.refresh_metadata()
                            raise error_of(each.error_code, f"{key}")
                        done[key] = error_of(each.error_code, f"{key}") if each.error_code else each.low_watermark
            return done

        return await cluster.retrying(attempt, "DeleteRecords")

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by time: ms since the epoch, or EARLIEST, LATEST, MAX_TIMESTAMP. Raises KafkaError, CallTimedOut."""
        return await list_offsets(self.cluster, timestamps, isolation_level=isolation_level)

    # --- configs ---

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, keys: Collection[str] | None = None
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """All settings (or these keys) of topics and brokers."""
        found: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
        for node_id, group in self._by_node(resources).items():
            wanted = [
                DescribeConfigsRequestResource(r.type, r.name, None if keys is None else list(keys)) for r in group
            ]
            response = await self._ask(
                node_id, DescribeConfigsRequest(wanted, include_synonyms=True), DescribeConfigsResponse
            )
            for result in response.results:
                resource = ConfigResource(result.resource_type, result.resource_name)
                if result.error_code:
                    found[resource] = error_of(result.error_code, result.error_message)
                    continue
                found[resource] = {
                    each.name: ConfigEntry(
                        each.name,
                        each.value,
                        _source(each.config_source),
                        each.read_only,
                        each.is_sensitive,
                        [(s.name, s.value, _source(s.source)) for s in each.synonyms],
                    )
                    for each in result.configs
                }
        return found

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change single settings and leave the others as they are (IncrementalAlterConfigs)."""
        done: dict[ConfigResource, KafkaError | None] = {}
        for node_id, group in self._by_node(changes).items():
            resources = [
                IncrementalAlterConfigsRequestResource(
                    each.type,
                    each.name,
                    [IncrementalAlterConfigsRequestConfig(c.name, c.operation, c.value) for c in changes[each]],
                )
                for each in group
            ]
            request = IncrementalAlterConfigsRequest(resources, validate_only)
            response = await self._ask(node_id, request, IncrementalAlterConfigsResponse)
            for each in response.responses:
                done[ConfigResource(each.resource_type, each.resource_name)] = _failure(
                    each.error_code, each.error_message
                )
        return done

    # --- the cluster ---

    async def describe_cluster(self) -> ClusterDescription:
        response = await self._ask(None, DescribeClusterRequest(), DescribeClusterResponse)
        if response.error_code:
            raise error_of(response.error_code, response.error_message)
        brokers = [BrokerAddress(each.broker_id, each.host, each.port, each.rack) for each in response.brokers]
        return ClusterDescription(response.cluster_id, response.controller_id, sorted(brokers))

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, partitions: Collection[TopicPartition] | None = None
    ) -> dict[int, list[DescribeLogDirsResponseLogDir]]:
        """Log directories of brokers (all for None) with the sizes of the partitions in them."""
        if broker_ids is None:
            broker_ids = [each.node_id for each in (await self.describe_cluster()).brokers]
        topics = None
        if partitions is not None:
            topics = [DescribeLogDirsRequestTopic(name, each) for name, each in by_topic(partitions).items()]
        found = {}
        for broker_id in broker_ids:
            response = await self._ask(broker_id, DescribeLogDirsRequest(topics), DescribeLogDirsResponse)
            if response.error_code:
                raise error_of(response.error_code)
            found[broker_id] = response.results
        return found

    # --- inside ---

    def _by_node(self, resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
        """A broker's own settings are asked of that broker, everything else of any."""
        grouped: dict[int | None, list[ConfigResource]] = defaultdict(list)
        for each in resources:
            own = each.type in (BROKER, BROKER_LOGGER) and each.name
            grouped[int(each.name) if own else None].append(each)
        return grouped

    async def _ask(self, node_id: int | None, request: Request, response_type: type[Response]) -> Response:
        cluster = self.cluster

        async def attempt() -> Response:
            if node_id is None:
                return await cluster.request_any(request, response_type)
            if node_id not in cluster.connections.brokers:
                await cluster.refresh_metadata()
            return await cluster.request(node_id, request, response_type)

        return await cluster.retrying(attempt, type(request).__name__.removesuffix("Request"))

    async def _ask_controller(
        self,
        request: Request,
        response_type: type[Response],
        codes: Callable[[Response], list[int]],
        *,
        one_of: tuple[str, str, int] | None = None,
    ) -> Response:
        """To the controller. `one_of` (new, old, version): two fields of which a version has one."""
        cluster = self.cluster

        async def attempt() -> Response:
            connection = await cluster.connections.get(await cluster.controller())
            if one_of is not None:
                new, old, since = one_of
                setattr(request, old if connection.version_of(type(request)) >= since else new, [])
            response = await cluster.ask(connection, request, response_type)
            if ErrorCode.NOT_CONTROLLER in codes(response):
                await cluster.refresh_metadata()
                raise error_of(ErrorCode.NOT_CONTROLLER)
            return response

        return await cluster.retrying(attempt, type(request).__name__.removesuffix("Request"))


def _failure(code: int, message: str | None) -> KafkaError | None:
    return error_of(code, message) if code else None


def _source(code: int) -> str:
    return CONFIG_SOURCES.get(code, "UNKNOWN")
