"""Requests between the replicas of a quorum as messages of Kafka's protocol, and back. Pure.

Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), Fetch (1) and FetchSnapshot (59) of `__cluster_metadata`;
AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82).
Source: KIP-595, KIP-630, KIP-853, KIP-996; Kafka's `RaftUtil`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_observer import LogEnd, Server
from odradek.kraft.raft.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    RemoveVoterRequest,
    Request,
    SnapshotRequest,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoteRequest,
)
from odradek.kraft.raft.voters import Endpoint, ReplicaKey, Voter
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.message import ApiMessage
from odradek.wire.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)

TOPIC: Final = "__cluster_metadata"
TOPIC_ID: Final = bytes(15) + b"\x01"
FETCH_BYTES: Final = 8 << 20
"""At most, of records or of a snapshot in one answer (`KafkaRaftClient.MAX_FETCH_SIZE_BYTES`)."""
NO_EPOCH: Final = -1
"""In the place of the epoch that a message does not have."""
_CHANGE_MS: Final = 30_000
"""How long an AddRaftVoter of a replica may take."""


class Sender(NamedTuple):
    """What this replica says of itself in requests."""

    listener_name: str
    server: Server
    """Where the other replicas reach it."""


def encode_request(request: Request, sender: Sender) -> ApiMessage:
    """The message of a request."""
    if isinstance(request, VoteRequest):
        return _vote(request)
    if isinstance(request, BeginEpochRequest):
        return _begin_epoch(request, sender)
    if isinstance(request, EndEpochRequest):
        return _end_epoch(request, sender)
    if isinstance(request, FetchRequest):
        return _fetch(request)
    if isinstance(request, SnapshotRequest):
        return _snapshot(request)
    return _change(request)


def decode_request(message: Any, node_id: int, *, cluster_id: str) -> Request:
    """The request in a message to this node.

    Voters that sent no cluster id or no voter id mean this cluster and this node: early versions lack them, and a
    request of Apache Kafka's tools may. Raises KafkaError INVALID_REQUEST for another topic or number of partitions.
    """
    cluster = cluster_id if message.cluster_id is None else message.cluster_id
    if isinstance(message, vote.VoteRequest):
        asked = _only(message.topics, "topic_name", "partition_index")
        to = node_id if message.voter_id < 0 else message.voter_id
        end = LogEnd(asked.last_offset, asked.last_offset_epoch)
        return VoteRequest(
            cluster, to, asked.replica_epoch, asked.replica_id, end, asked.pre_vote,
            asked.voter_directory_id, asked.replica_directory_id,
        )  # fmt: skip
    if isinstance(message, begin_quorum_epoch.BeginQuorumEpochRequest):
        begun = _only(message.topics, "topic_name", "partition_index")
        to = node_id if message.voter_id < 0 else message.voter_id
        return BeginEpochRequest(cluster, to, begun.leader_epoch, begun.leader_id, begun.voter_directory_id)
    if isinstance(message, end_quorum_epoch.EndQuorumEpochRequest):
        ended = _only(message.topics, "topic_name", "partition_index")
        candidates = [ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in ended.preferred_candidates]
        successors = candidates or [ReplicaKey(each) for each in ended.preferred_successors]
        return EndEpochRequest(cluster, ended.leader_epoch, ended.leader_id, tuple(successors))
    if isinstance(message, fetch.FetchRequest):
        return _decoded_fetch(message, cluster)
    if not isinstance(message, fetch_snapshot.FetchSnapshotRequest):
        return _decoded_change(message, cluster)
    part = _only(message.topics, "name", "partition")
    found = CheckpointId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
    return SnapshotRequest(
        cluster, message.replica_id, part.current_leader_epoch, found, part.position, part.replica_directory_id
    )


def _decoded_change(message: Any, cluster_id: str) -> VoterChangeRequest:
    """AddRaftVoter, RemoveRaftVoter or UpdateRaftVoter. AddRaftVoter lacks the kraft.versions of the voter."""
    key = ReplicaKey(message.voter_id, message.voter_directory_id)
    if isinstance(message, remove_raft_voter.RemoveRaftVoterRequest):
        return RemoveVoterRequest(cluster_id, NO_EPOCH, key)
    endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in message.listeners)
    if isinstance(message, add_raft_voter.AddRaftVoterRequest):
        return AddVoterRequest(cluster_id, NO_EPOCH, Voter(key, endpoints), message.ack_when_committed)
    assert isinstance(message, update_raft_voter.UpdateRaftVoterRequest)
    versions = message.k_raft_version_feature
    voter = Voter(key, endpoints, versions.min_supported_version, versions.max_supported_version)
    return UpdateVoterRequest(cluster_id, message.current_leader_epoch, voter)


def _decoded_fetch(message: fetch.FetchRequest, cluster_id: str) -> FetchRequest:
    topics = message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or topics[0].partitions[0].partition:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"only partition 0 of {TOPIC} is here")
    if topics[0].topic_id != TOPIC_ID and topics[0].topic != TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"only {TOPIC} is here")
    part = topics[0].partitions[0]
    replica = max(message.replica_state.replica_id, message.replica_id)
    end = LogEnd(part.fetch_offset, part.last_fetched_epoch)
    return FetchRequest(
        cluster_id, replica, part.current_leader_epoch, end, part.high_watermark, float(message.max_wait_ms),
        part.replica_directory_id,
    )  # fmt: skip


def _only(topics: Sequence[Any], name: str, index: str) -> Any:
    """The one partition that a request names. Raises KafkaError INVALID_REQUEST."""
    if len(topics) != 1 or getattr(topics[0], name) != TOPIC or len(topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"only {TOPIC} is here")
    part = topics[0].partitions[0]
    if getattr(part, index):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"only partition 0 of {TOPIC} is here")
    return part


def _vote(request: VoteRequest) -> vote.VoteRequest:
    part = vote.VoteRequestPartitionData(
        replica_epoch=request.epoch,
        replica_id=request.candidate_id,
        replica_directory_id=request.candidate_directory_id,
        voter_directory_id=request.voter_directory_id,
        last_offset_epoch=request.log_end.epoch,
        last_offset=request.log_end.offset,
        pre_vote=request.is_pre_vote,
    )
    return vote.VoteRequest(request.cluster_id, request.voter_id, [vote.VoteRequestTopicData(TOPIC, [part])])


def _begin_epoch(request: BeginEpochRequest, sender: Sender) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    part = begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(
        voter_directory_id=request.voter_directory_id, leader_id=request.leader_id, leader_epoch=request.epoch
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        request.cluster_id,
        request.voter_id,
        [begin_quorum_epoch.BeginQuorumEpochRequestTopicData(TOPIC, [part])],
        [begin_quorum_epoch.BeginQuorumEpochRequestLeaderEndpoint(sender.listener_name, *sender.server)],
    )


def _end_epoch(request: EndEpochRequest, sender: Sender) -> end_quorum_epoch.EndQuorumEpochRequest:
    part = end_quorum_epoch.EndQuorumEpochRequestPartitionData(
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[each.node_id for each in request.successors],
        preferred_candidates=[end_quorum_epoch.EndQuorumEpochRequestReplicaInfo(*each) for each in request.successors],
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        request.cluster_id,
        [end_quorum_epoch.EndQuorumEpochRequestTopicData(TOPIC, [part])],
        [end_quorum_epoch.EndQuorumEpochRequestLeaderEndpoint(sender.listener_name, *sender.server)],
    )


def _fetch(request: FetchRequest) -> fetch.FetchRequest:
    part = fetch.FetchRequestPartition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.log_end.offset,
        last_fetched_epoch=request.log_end.epoch,
        log_start_offset=-1,
        partition_max_bytes=FETCH_BYTES,
        replica_directory_id=request.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=fetch.FetchRequestReplicaState(request.replica_id, -1),
        max_wait_ms=int(request.max_wait_ms),
        max_bytes=FETCH_BYTES,
        topics=[fetch.FetchRequestTopic(TOPIC, TOPIC_ID, [part])],
    )


def _snapshot(request: SnapshotRequest) -> fetch_snapshot.FetchSnapshotRequest:
    part = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        partition=0,
        current_leader_epoch=request.epoch,
        snapshot_id=fetch_snapshot.FetchSnapshotRequestSnapshotId(*request.snapshot),
        position=request.position,
        replica_directory_id=request.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        request.cluster_id,
        request.replica_id,
        FETCH_BYTES,
        [fetch_snapshot.FetchSnapshotRequestTopicSnapshot(TOPIC, [part])],
    )


def _change(request: VoterChangeRequest) -> ApiMessage:
    if isinstance(request, RemoveVoterRequest):
        return remove_raft_voter.RemoveRaftVoterRequest(request.cluster_id, *request.voter)
    voter = request.voter
    if isinstance(request, AddVoterRequest):
        return add_raft_voter.AddRaftVoterRequest(
            request.cluster_id,
            _CHANGE_MS,
            *voter.key,
            [add_raft_voter.AddRaftVoterRequestListener(*each) for each in voter.endpoints],
            request.ack_when_committed,
        )
    return update_raft_voter.UpdateRaftVoterRequest(
        request.cluster_id,
        request.epoch,
        *voter.key,
        [update_raft_voter.UpdateRaftVoterRequestListener(*each) for each in voter.endpoints],
        update_raft_voter.UpdateRaftVoterRequestKRaftVersionFeature(voter.min_kraft_version, voter.max_kraft_version),
    )
