"""Answers between the replicas of a quorum as messages of Kafka's protocol, and back. Pure.

An error about the cluster or the form of a request stands at the top of the message, all others at the partition, with
the leader and the epoch that the sender knows. Source: KIP-595, KIP-630, KIP-853; Kafka's `RaftUtil`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_log import read_controls
from odradek.kraft.metadata_observer import LogEnd, Server
from odradek.kraft.raft.messages import (
    NO_NODE,
    AddVoterRequest,
    Answer,
    Batch,
    BeginEpochRequest,
    EpochAnswer,
    FetchAnswer,
    RemoveVoterRequest,
    Request,
    SnapshotAnswer,
    VoteAnswer,
    VoterChangeAnswer,
)
from odradek.kraft.raft.wire_requests import NO_EPOCH, TOPIC, TOPIC_ID
from odradek.records.batch import LOG_OVERHEAD, check_batch, split_batches
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import ErrorCode, error_code
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

_AT_THE_TOP: Final = frozenset((ErrorCode.INCONSISTENT_CLUSTER_ID,))

Addresses = Mapping[int, Server]
"""Where the voters are reached, by id."""


def encode_answer(request: Request, answer: Answer, addresses: Addresses, records: bytes = b"") -> ApiMessage:
    """The message of an answer to this request; `records` are those that the driver has read for a Fetch."""
    leader = addresses.get(answer.leader_id)
    known = [] if leader is None else [(answer.leader_id, *leader)]
    error = int(answer.error)
    is_at_top = answer.error in _AT_THE_TOP
    if isinstance(answer, VoteAnswer):
        if is_at_top:
            return vote.VoteResponse(error)
        part = vote.VoteResponsePartitionData(0, error, answer.leader_id, answer.epoch, answer.is_granted)
        endpoints = [vote.VoteResponseNodeEndpoint(*each) for each in known]
        return vote.VoteResponse(0, [vote.VoteResponseTopicData(TOPIC, [part])], endpoints)
    if isinstance(answer, EpochAnswer):
        module: Any = begin_quorum_epoch if isinstance(request, BeginEpochRequest) else end_quorum_epoch
        name = "BeginQuorumEpochResponse" if module is begin_quorum_epoch else "EndQuorumEpochResponse"
        return _epoch_message(module, name, answer, known, is_at_top=is_at_top)
    if isinstance(answer, FetchAnswer):
        return fetch.FetchResponse(error_code=error) if is_at_top else _fetched(answer, known, records)
    if isinstance(answer, VoterChangeAnswer):
        return _change_message(request, answer, leader)
    if is_at_top:
        return fetch_snapshot.FetchSnapshotResponse(error_code=error)
    return _snapshot_part(answer, known)


def _change_message(request: Request, answer: VoterChangeAnswer, leader: Server | None) -> ApiMessage:
    error = int(answer.error)
    if isinstance(request, AddVoterRequest):
        return add_raft_voter.AddRaftVoterResponse(error_code=error, error_message=answer.message)
    if isinstance(request, RemoveVoterRequest):
        return remove_raft_voter.RemoveRaftVoterResponse(error_code=error, error_message=answer.message)
    at = leader or Server("", 0)
    current = update_raft_voter.UpdateRaftVoterResponseCurrentLeader(answer.leader_id, answer.epoch, *at)
    return update_raft_voter.UpdateRaftVoterResponse(error_code=error, current_leader=current)


def _epoch_message(module: Any, name: str, answer: EpochAnswer, known: list[Any], *, is_at_top: bool) -> ApiMessage:
    """BeginQuorumEpoch and EndQuorumEpoch have the same answer under different names."""
    kind = getattr(module, name)
    if is_at_top:
        found: ApiMessage = kind(int(answer.error))
        return found
    part = getattr(module, f"{name}PartitionData")(0, int(answer.error), answer.leader_id, answer.epoch)
    endpoints = [getattr(module, f"{name}NodeEndpoint")(*each) for each in known]
    message: ApiMessage = kind(0, [getattr(module, f"{name}TopicData")(TOPIC, [part])], endpoints)
    return message


def _fetched(answer: FetchAnswer, known: list[Any], records: bytes) -> fetch.FetchResponse:
    part = fetch.FetchResponsePartition(
        0,
        int(answer.error),
        answer.high_watermark,
        answer.high_watermark,
        current_leader=fetch.FetchResponseLeaderIdAndEpoch(answer.leader_id, answer.epoch),
        records=records,
    )
    if answer.diverging is not None:
        part.diverging_epoch = fetch.FetchResponseEpochEndOffset(answer.diverging.epoch, answer.diverging.offset)
    if answer.snapshot is not None:
        part.snapshot_id = fetch.FetchResponseSnapshotId(*answer.snapshot)
    endpoints = [fetch.FetchResponseNodeEndpoint(*each) for each in known]
    return fetch.FetchResponse(responses=[fetch.FetchResponseTopic(TOPIC, TOPIC_ID, [part])], node_endpoints=endpoints)


def _snapshot_part(answer: SnapshotAnswer, known: list[Any]) -> fetch_snapshot.FetchSnapshotResponse:
    part = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        0,
        int(answer.error),
        fetch_snapshot.FetchSnapshotResponseSnapshotId(*(answer.snapshot or CheckpointId(0, 0))),
        fetch_snapshot.FetchSnapshotResponseLeaderIdAndEpoch(answer.leader_id, answer.epoch),
        answer.size,
        answer.position,
        answer.data,
    )
    endpoints = [fetch_snapshot.FetchSnapshotResponseNodeEndpoint(*each) for each in known]
    topics = [fetch_snapshot.FetchSnapshotResponseTopicSnapshot(TOPIC, [part])]
    return fetch_snapshot.FetchSnapshotResponse(topics=topics, node_endpoints=endpoints)


def decode_answer(message: Any) -> Answer:
    """The answer in a message. Raises CorruptRecords for damaged batches of records."""
    if isinstance(message, add_raft_voter.AddRaftVoterResponse | remove_raft_voter.RemoveRaftVoterResponse):
        return VoterChangeAnswer(error_code(message.error_code), message.error_message, NO_NODE, NO_EPOCH)
    if isinstance(message, update_raft_voter.UpdateRaftVoterResponse):
        current = message.current_leader
        return VoterChangeAnswer(error_code(message.error_code), None, current.leader_id, current.leader_epoch)
    part = _partition(message)
    if isinstance(message, vote.VoteResponse):
        if part is None:
            return VoteAnswer(_error(message), NO_NODE, NO_EPOCH, is_granted=False)
        return VoteAnswer(error_code(part.error_code), part.leader_id, part.leader_epoch, part.vote_granted)
    if isinstance(message, begin_quorum_epoch.BeginQuorumEpochResponse | end_quorum_epoch.EndQuorumEpochResponse):
        if part is None:
            return EpochAnswer(_error(message), NO_NODE, NO_EPOCH)
        return EpochAnswer(error_code(part.error_code), part.leader_id, part.leader_epoch)
    if isinstance(message, fetch.FetchResponse):
        return FetchAnswer(_error(message), NO_NODE, NO_EPOCH) if part is None else _fetch_answer(part)
    if part is None:
        return SnapshotAnswer(_error(message), NO_NODE, NO_EPOCH)
    return SnapshotAnswer(
        error_code(part.error_code),
        part.current_leader.leader_id,
        part.current_leader.leader_epoch,
        CheckpointId(part.snapshot_id.end_offset, part.snapshot_id.epoch),
        part.size,
        part.position,
        bytes(part.unaligned_records),
    )


def _partition(message: Any) -> Any | None:
    """The only partition of an answer; None where the answer has an error at the top, or names no partition."""
    topics = message.responses if isinstance(message, fetch.FetchResponse) else message.topics
    return None if message.error_code or not topics or not topics[0].partitions else topics[0].partitions[0]


def _error(message: Any) -> ErrorCode:
    """The error at the top; UNKNOWN_SERVER_ERROR where the answer has neither an error nor a partition."""
    return error_code(message.error_code) if message.error_code else ErrorCode.UNKNOWN_SERVER_ERROR


def _controls(records: memoryview, position: int) -> tuple[Any | None, ...]:
    try:
        return read_controls(records, position)
    except CorruptMetadata as error:
        raise CorruptRecords(str(error)) from error


def _fetch_answer(part: fetch.FetchResponsePartition) -> FetchAnswer:
    leader, diverging, snapshot = part.current_leader, part.diverging_epoch, part.snapshot_id
    records = memoryview(part.records or b"")
    batches = []
    for position, header in split_batches(records, allow_partial_tail=True):
        check_batch(records, position, from_client=False)
        end = position + header.batch_length + LOG_OVERHEAD
        count = header.next_offset - header.base_offset
        controls = _controls(records, position)
        batches.append(Batch(header.base_offset, header.partition_leader_epoch, count, records[position:end], controls))
    return FetchAnswer(
        error_code(part.error_code),
        leader.leader_id,
        leader.leader_epoch,
        part.high_watermark,
        LogEnd(diverging.end_offset, diverging.epoch) if diverging.epoch >= 0 else None,
        CheckpointId(snapshot.end_offset, snapshot.epoch) if snapshot.epoch >= 0 else None,
        batches=tuple(batches),
    )
