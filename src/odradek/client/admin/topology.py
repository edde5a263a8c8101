"""The cluster itself: its brokers, and the quorum that keeps its metadata (KIP-595)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.client.admin.requests import AdminRequests, raise_failure
from odradek.client.errors import UnsupportedByBroker
from odradek.client.network.connections import BrokerAddress
from odradek.wire.acls import AclOperation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.primitives import ZERO_UUID

_METADATA_TOPIC: Final = "__cluster_metadata"
_FENCED_SINCE: Final = 2
_CONTROLLERS_SINCE: Final = 1
_BROKERS: Final = 1
_CONTROLLERS: Final = 2
"""Types of endpoints that DescribeCluster describes (KIP-919)."""


class RaftVoterEndpoint(NamedTuple):
    """Where a voter listens, by the listener's name."""

    listener: str
    host: str
    port: int


class ClusterDescription(NamedTuple):
    """Brokers, sorted by id; controller_id is -1 without a controller."""

    cluster_id: str
    controller_id: int
    brokers: list[BrokerAddress]
    """The live ones, and the fenced ones if they were asked for."""
    fenced: frozenset[int] = frozenset()
    """The ids of brokers that are registered, but not live (KIP-1073)."""
    authorized_operations: frozenset[AclOperation] | None = None
    """What this client may do with the cluster, None unless it was asked for (KIP-430)."""


class QuorumReplica(NamedTuple):
    """A voter or observer of the metadata log; times are in ms since the epoch, None where they are unknown."""

    replica_id: int
    log_end_offset: int
    last_fetch_timestamp_ms: int | None
    last_caught_up_timestamp_ms: int | None
    directory_id: bytes | None = None
    """The directory of its log; None without KIP-853."""


class QuorumDescription(NamedTuple):
    """The state of the quorum that keeps the cluster's metadata."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    endpoints: Mapping[int, Sequence[RaftVoterEndpoint]] = {}
    """Where voters listen, by their ids; empty where the broker does not say it."""


async def describe_cluster(
    requests: AdminRequests, *, include_fenced: bool, include_authorized_operations: bool, of_controllers: bool = False
) -> ClusterDescription:
    """See `Admin.describe_cluster`."""
    cluster = requests.cluster
    endpoint_type = _CONTROLLERS if of_controllers else _BROKERS
    request = DescribeClusterRequest(include_authorized_operations, endpoint_type, include_fenced)

    async def attempt() -> DescribeClusterResponse:
        connection = await cluster.connections.any()
        if include_fenced and connection.version_of(DescribeClusterRequest) < _FENCED_SINCE:
            raise UnsupportedByBroker("the broker cannot describe fenced brokers (KIP-1073)")
        if of_controllers and connection.version_of(DescribeClusterRequest) < _CONTROLLERS_SINCE:
            raise UnsupportedByBroker("it cannot describe the controllers (KIP-919)")
        return await cluster.ask(connection, request, DescribeClusterResponse)

    response = await cluster.retrying(attempt, "DescribeCluster")
    raise_failure(response.error_code, response.error_message)
    bits = response.cluster_authorized_operations
    return ClusterDescription(
        response.cluster_id,
        response.controller_id,
        sorted(BrokerAddress(each.broker_id, each.host, each.port, each.rack) for each in response.brokers),
        frozenset(each.broker_id for each in response.brokers if each.is_fenced),
        frozenset(each for each in AclOperation if bits >> each & 1) if include_authorized_operations else None,
    )


async def describe_quorum(requests: AdminRequests, *, of_controllers: bool = False) -> QuorumDescription:
    """See `Admin.describe_quorum`."""
    from odradek.wire.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumRequestPartition,
        DescribeQuorumRequestTopic,
        DescribeQuorumResponse,
    )

    request = DescribeQuorumRequest([DescribeQuorumRequestTopic(_METADATA_TOPIC, [DescribeQuorumRequestPartition(0)])])

    async def attempt() -> tuple[DescribeQuorumResponse, Any]:
        cluster = requests.cluster
        if of_controllers:
            response = await cluster.request(await active_controller(requests), request, DescribeQuorumResponse)
        else:
            response = await cluster.request_any(request, DescribeQuorumResponse)
        raise_failure(response.error_code, response.error_message)
        found = response.topics[0].partitions[0]
        raise_failure(found.error_code, found.error_message)
        return response, found

    response, found = await requests.cluster.retrying(attempt, "DescribeQuorum")
    return QuorumDescription(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        [_replica(each) for each in found.current_voters],
        [_replica(each) for each in found.observers],
        {
            node.node_id: [RaftVoterEndpoint(each.name, each.host, each.port) for each in node.listeners]
            for node in response.nodes
        },
    )


async def active_controller(requests: AdminRequests) -> int:
    """The id of the controller that leads, as a controller reports it. Raises KafkaError, ClientError."""
    found = await describe_cluster(
        requests, include_fenced=False, include_authorized_operations=False, of_controllers=True
    )
    if found.controller_id not in {each.node_id for each in found.brokers}:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "The quorum has no leader.")
    requests.cluster.connections.update_brokers({each.node_id: each for each in found.brokers})
    return found.controller_id


async def unregister_broker(requests: AdminRequests, broker_id: int) -> None:
    """See `Admin.unregister_broker`."""
    from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

    response = await requests.to_controller(UnregisterBrokerRequest(broker_id), UnregisterBrokerResponse)
    raise_failure(response.error_code, response.error_message)


def _replica(state: Any) -> QuorumReplica:
    def known(time_ms: int) -> int | None:
        return None if time_ms < 0 else time_ms

    return QuorumReplica(
        state.replica_id,
        state.log_end_offset,
        known(state.last_fetch_timestamp),
        known(state.last_caught_up_timestamp),
        None if state.replica_directory_id == ZERO_UUID else state.replica_directory_id,
    )
