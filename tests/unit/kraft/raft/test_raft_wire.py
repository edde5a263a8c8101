"""Requests and answers of a quorum's replicas as Kafka's messages: what is sent is what arrives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_log import encode_metadata_batch
from odradek.kraft.metadata_observer import LogEnd, Server
from odradek.kraft.metadata_records import VersionedRecord
from odradek.kraft.raft.messages import (
    AddVoterRequest,
    Answer,
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    RemoveVoterRequest,
    Request,
    SnapshotAnswer,
    SnapshotRequest,
    UpdateVoterRequest,
    VoteAnswer,
    VoterChangeAnswer,
    VoteRequest,
)
from odradek.kraft.raft.voters import Endpoint, ReplicaKey, Voter
from odradek.kraft.raft.wire_answers import decode_answer, encode_answer
from odradek.kraft.raft.wire_requests import NO_EPOCH, Sender, decode_request, encode_request
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.cluster_metadata import NoOpRecord
from odradek.wire.messages.fetch import FetchRequest as FetchMessage
from odradek.wire.messages.vote import VoteRequest as VoteMessage

SENDER = Sender("CONTROLLER", Server("h1", 9093))
ADDRESSES = {1: Server("h1", 9093), 2: Server("h2", 9094)}
_nodes = st.integers(0, 5)
_epochs = st.integers(0, 1 << 30)
_offsets = st.integers(0, 1 << 60)
_ends = st.builds(LogEnd, _offsets, _epochs)
_ids = st.builds(CheckpointId, _offsets, _epochs)
_errors = st.sampled_from((ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_VOTER_KEY))
_text = st.just("cluster")
_directories = st.binary(min_size=16, max_size=16)
_keys = st.builds(ReplicaKey, _nodes, _directories)
_endpoints = st.lists(st.builds(Endpoint, st.just("CONTROLLER"), st.text("h12"), st.integers(0, 65535))).map(tuple)
_voters = st.tuples(_keys, _endpoints).map(lambda each: Voter(*each))

REQUESTS = st.one_of(
    st.builds(VoteRequest, _text, _nodes, _epochs, _nodes, _ends, st.booleans(), _directories, _directories),
    st.builds(BeginEpochRequest, _text, _nodes, _epochs, _nodes, _directories),
    st.builds(EndEpochRequest, _text, _epochs, _nodes, st.lists(_keys).map(tuple)),
    st.builds(FetchRequest, _text, _nodes, _epochs, _ends, _offsets, st.just(500.0), _directories, st.none()),
    st.builds(SnapshotRequest, _text, _nodes, _epochs, _ids, _offsets, _directories, st.none()),
    st.builds(AddVoterRequest, _text, st.just(NO_EPOCH), _voters, st.booleans()),
    st.builds(RemoveVoterRequest, _text, st.just(NO_EPOCH), _keys),
    st.builds(UpdateVoterRequest, _text, _epochs, st.builds(Voter, _keys, _endpoints, st.just(0), st.integers(0, 1))),
)
VOTE = VoteRequest("cluster", 1, 1, 2, LogEnd(0, 0), is_pre_vote=False)
BEGIN = BeginEpochRequest("cluster", 1, 1, 2)
FETCH = FetchRequest("cluster", 2, 1, LogEnd(0, 0), 0, 500.0)
SNAPSHOT = SnapshotRequest("cluster", 2, 1, CheckpointId(4, 1), 0)
ADD = AddVoterRequest("cluster", NO_EPOCH, Voter(ReplicaKey(4)))
REMOVE = RemoveVoterRequest("cluster", NO_EPOCH, ReplicaKey(4))
UPDATE = UpdateVoterRequest("cluster", 3, Voter(ReplicaKey(4)))
NO_ID = st.just(-1)
_messages = st.none() | st.text()


def over_the_wire(message: Any) -> Any:
    """The message after it was encoded in its newest version, and decoded."""
    out = bytearray()
    message.encode(out, message.MAX_VERSION)
    found, end = type(message).decode(memoryview(bytes(out)), 0, message.MAX_VERSION)
    assert end == len(out)
    return found


@given(REQUESTS)
def test_request_arrives_as_it_was_sent(request: Any) -> None:
    message = over_the_wire(encode_request(request, SENDER))
    assert decode_request(message, node_id=9, cluster_id="other") == request


@given(
    st.one_of(
        st.tuples(st.just(VOTE), st.builds(VoteAnswer, _errors, _nodes, _epochs, st.booleans())),
        st.tuples(st.just(BEGIN), st.builds(EpochAnswer, _errors, _nodes, _epochs)),
        st.tuples(
            st.just(FETCH),
            st.builds(
                FetchAnswer,
                _errors,
                _nodes,
                _epochs,
                _offsets,
                st.none() | _ends,
                st.none() | _ids,
                read_from=st.just(-1),
                batches=st.just(()),
            ),
        ),
        st.tuples(
            st.just(SNAPSHOT),
            st.builds(SnapshotAnswer, _errors, _nodes, _epochs, _ids, _offsets, _offsets, st.binary()),
        ),
        st.tuples(st.sampled_from((ADD, REMOVE)), st.builds(VoterChangeAnswer, _errors, _messages, NO_ID, NO_ID)),
        st.tuples(st.just(UPDATE), st.builds(VoterChangeAnswer, _errors, st.none(), _nodes, _epochs)),
    )
)
def test_answer_arrives_as_it_was_sent(exchange: tuple[Any, Any]) -> None:
    request, answer = exchange
    assert decode_answer(over_the_wire(encode_answer(request, answer, ADDRESSES))) == answer


def answers(error: ErrorCode, leader: int, epoch: int) -> list[tuple[Request, Answer]]:
    """An answer to each kind of request."""
    return [
        (VOTE, VoteAnswer(error, leader, epoch, is_granted=False)),
        (BEGIN, EpochAnswer(error, leader, epoch)),
        (FETCH, FetchAnswer(error, leader, epoch)),
        (SNAPSHOT, SnapshotAnswer(error, leader, epoch)),
    ]


@pytest.mark.parametrize(("request_", "answer"), answers(ErrorCode.NONE, 2, 1))
def test_answer_names_where_the_leader_is_reached(request_: Request, answer: Answer) -> None:
    message = over_the_wire(encode_answer(request_, answer, ADDRESSES))
    assert [(each.node_id, each.host, each.port) for each in message.node_endpoints] == [(2, "h2", 9094)]


@pytest.mark.parametrize(("request_", "answer"), answers(ErrorCode.INCONSISTENT_CLUSTER_ID, -1, 0))
def test_wrong_cluster_is_an_error_of_the_whole_answer(request_: Request, answer: Answer) -> None:
    message = over_the_wire(encode_answer(request_, answer, ADDRESSES))
    assert message.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert decode_answer(message).error is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_fetched_records_arrive_as_batches() -> None:
    batches = b"".join(
        encode_metadata_batch([VersionedRecord(NoOpRecord(), 0)] * 2, base_offset=n, leader_epoch=3, timestamp_ms=0)
        for n in (4, 6)
    )
    answer = FetchAnswer(ErrorCode.NONE, 2, 3, 8, read_from=4)
    found = decode_answer(over_the_wire(encode_answer(FETCH, answer, ADDRESSES, batches)))
    assert isinstance(found, FetchAnswer)
    assert [(each.base_offset, each.epoch, each.record_count) for each in found.batches] == [(4, 3, 2), (6, 3, 2)]
    assert b"".join(bytes(each.payload) for each in found.batches) == batches


def test_damaged_records_are_rejected() -> None:
    batch = bytearray(
        encode_metadata_batch([VersionedRecord(NoOpRecord(), 0)], base_offset=0, leader_epoch=1, timestamp_ms=0)
    )
    batch[-1] ^= 1
    message = encode_answer(FETCH, FetchAnswer(ErrorCode.NONE, 2, 1, 1), ADDRESSES, bytes(batch))
    with pytest.raises(CorruptRecords):
        decode_answer(over_the_wire(message))


def test_request_of_an_early_version_is_for_this_node_and_cluster() -> None:
    message: Any = encode_request(VOTE, SENDER)
    message.cluster_id, message.voter_id = None, -1
    found = decode_request(message, node_id=5, cluster_id="mine")
    assert isinstance(found, VoteRequest)
    assert (found.voter_id, found.cluster_id) == (5, "mine")


def test_request_about_another_topic_is_rejected() -> None:
    for message in (FetchMessage(), VoteMessage("cluster", 1)):
        with pytest.raises(KafkaError) as raised:
            decode_request(message, 1, cluster_id="cluster")
        assert raised.value.code is ErrorCode.INVALID_REQUEST
