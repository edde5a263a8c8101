"""The cluster itself: its brokers, and the quorum that keeps its metadata (KIP-595)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from odradek.client.admin.requests import AdminRequests, raise_failure
from odradek.client.network.connections import BrokerAddress
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

_METADATA_TOPIC: Final = "__cluster_metadata"


class ClusterDescription(NamedTuple):
    """Live brokers, sorted by id; controller_id is -1 without a controller."""

    cluster_id: str
    controller_id: int
    brokers: list[BrokerAddress]


class QuorumReplica(NamedTuple):
    """A voter or observer of the metadata log; times are in ms since the epoch, None where they are unknown."""

    replica_id: int
    log_end_offset: int
    last_fetch_timestamp_ms: int | None
    last_caught_up_timestamp_ms: int | None


class QuorumDescription(NamedTuple):
    """The state of the quorum that keeps the cluster's metadata."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]


async def describe_cluster(requests: AdminRequests) -> ClusterDescription:
    """See `Admin.describe_cluster`."""
    response = await requests.to_any(DescribeClusterRequest(), DescribeClusterResponse)
    raise_failure(response.error_code, response.error_message)
    brokers = [BrokerAddress(each.broker_id, each.host, each.port, each.rack) for each in response.brokers]
    return ClusterDescription(response.cluster_id, response.controller_id, sorted(brokers))


async def describe_quorum(requests: AdminRequests) -> QuorumDescription:
    """See `Admin.describe_quorum`."""
    from odradek.wire.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumRequestPartition,
        DescribeQuorumRequestTopic,
        DescribeQuorumResponse,
    )

    request = DescribeQuorumRequest([DescribeQuorumRequestTopic(_METADATA_TOPIC, [DescribeQuorumRequestPartition(0)])])
    response = await requests.to_any(request, DescribeQuorumResponse)
    raise_failure(response.error_code, response.error_message)
    found = response.topics[0].partitions[0]
    raise_failure(found.error_code, found.error_message)
    return QuorumDescription(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        [_replica(each) for each in found.current_voters],
        [_replica(each) for each in found.observers],
    )


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
    )
