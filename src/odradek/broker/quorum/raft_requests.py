"""Requests of the other replicas of the quorum, and what tools ask of it: `DescribeQuorum`."""

from __future__ import annotations

from typing import Any, Final

from odradek.broker.quorum.raft_replica import RaftReplica
from odradek.broker.quorum.replica_addresses import ReplicaAddresses
from odradek.kraft.raft.messages import FetchRequest, SnapshotRequest
from odradek.kraft.raft.roles import Leader, Progress
from odradek.kraft.raft.voters import ReplicaKey
from odradek.kraft.raft.wire_answers import encode_answer
from odradek.kraft.raft.wire_requests import TOPIC, decode_request
from odradek.metadata.image import ClusterImage
from odradek.ports.clock import Clock
from odradek.wire.errors import ErrorCode
from odradek.wire.message import ApiMessage
from odradek.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponseListener,
    DescribeQuorumResponseNode,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseReplicaState,
    DescribeQuorumResponseTopic,
)
from odradek.wire.primitives import ZERO_UUID

_SILENT_OBSERVER_MS: Final = 300_000
"""An observer that has not fetched for this time is gone (Kafka's `LeaderState.OBSERVER_SESSION_TIMEOUT_MS`)."""
_WITH_NODES: Final = 2
"""The first version of the answer that has the controllers' listeners (KIP-853)."""


class RaftRequests:
    """Answers on behalf of a replica."""

    __slots__ = ("_addresses", "_clock", "_listener_name", "_replica")

    def __init__(self, replica: RaftReplica, addresses: ReplicaAddresses, listener_name: str, clock: Clock) -> None:
        """`addresses` are those of the replicas, on the listener of that name."""
        self._replica = replica
        self._addresses = addresses
        self._listener_name = listener_name
        self._clock = clock

    async def serve(self, message: Any, connection: int) -> ApiMessage:
        """The answer to a request of another replica, or to a change of the voters. Raises KafkaError.

        `connection` is the one that the request came on.
        """
        if isinstance(message, BeginQuorumEpochRequest):
            self._addresses.learn_leader(message)
        identity = self._replica.machine.quorum.identity
        request = decode_request(message, identity.node_id, cluster_id=identity.cluster_id)
        if isinstance(request, FetchRequest | SnapshotRequest):
            request = request._replace(connection=connection)
        served = await self._replica.receive(request)
        return encode_answer(request, served.answer, self._addresses, served.records)

    def describe(self, request: DescribeQuorumRequest, image: ClusterImage, version: int) -> DescribeQuorumResponse:
        """The replicas as the leader knows them; NOT_LEADER_OR_FOLLOWER on another replica.

        Listeners of the controllers are answered from version 2 on.
        """
        asked = [(topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in request.topics]
        if asked != [(TOPIC, [0])]:
            return DescribeQuorumResponse(int(ErrorCode.INVALID_REQUEST), f"only partition 0 of {TOPIC} is here")
        quorum = self._replica.machine.quorum
        role = quorum.role
        if not isinstance(role, Leader):
            part = DescribeQuorumResponsePartition(
                0, int(ErrorCode.NOT_LEADER_OR_FOLLOWER), None, quorum.leader_id, quorum.epoch
            )
            return DescribeQuorumResponse(error_message=None, topics=[DescribeQuorumResponseTopic(TOPIC, [part])])
        known = {key: each for key, each in role.progress.items() if key.node_id >= 0}
        fresh = {key for key, each in known.items() if quorum.now_ms - each.fetched_ms < _SILENT_OBSERVER_MS}
        keys = sorted(quorum.voters.keys)
        voters = [self._state(key, role.progress_of(key)) for key in keys]
        observers = [self._state(key, known[key]) for key in sorted(fresh.difference(keys))]
        if version < _WITH_NODES:  # which lacks directories
            for each in (*voters, *observers):
                each.replica_directory_id = ZERO_UUID
        high_watermark = quorum.high_watermark if role.has_committed else -1
        part = DescribeQuorumResponsePartition(
            0, 0, None, quorum.leader_id, quorum.epoch, high_watermark, voters, observers
        )
        nodes = self._nodes(image) if version >= _WITH_NODES else []
        return DescribeQuorumResponse(
            error_message=None, topics=[DescribeQuorumResponseTopic(TOPIC, [part])], nodes=nodes
        )

    def _state(self, key: ReplicaKey, progress: Progress) -> DescribeQuorumResponseReplicaState:
        quorum = self._replica.machine.quorum
        now_ms = self._clock.now_ms()
        end_offset = quorum.log.end_offset
        if key.node_id == quorum.identity.node_id:
            return DescribeQuorumResponseReplicaState(*key, end_offset, now_ms, now_ms)
        if progress.fetched_ms < 0:
            return DescribeQuorumResponseReplicaState(*key, progress.end_offset)
        fetched_ms = int(now_ms - (self._clock.monotonic() * 1000 - progress.fetched_ms))
        return DescribeQuorumResponseReplicaState(
            *key,
            log_end_offset=progress.end_offset,
            last_fetch_timestamp=fetched_ms,
            last_caught_up_timestamp=fetched_ms if progress.end_offset >= end_offset else -1,
        )

    def _nodes(self, image: ClusterImage) -> list[DescribeQuorumResponseNode]:
        nodes = []
        for node_id, server in sorted(self._addresses.items()):
            registered = image.controllers.get(node_id)
            listeners = [DescribeQuorumResponseListener(self._listener_name, *server)]
            if registered is not None:
                listeners = [
                    DescribeQuorumResponseListener(name, each.host, each.port)
                    for name, each in registered.endpoints.items()
                ]
            nodes.append(DescribeQuorumResponseNode(node_id, listeners))
        return nodes
