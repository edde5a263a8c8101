"""Where replicas are reached: the log's voters, the answers of others, the settings."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from odradek.broker.quorum.replica_addresses import ReplicaAddresses
from odradek.kraft.metadata_observer import Server
from odradek.kraft.raft.quorum import BOOTSTRAP_NODE
from odradek.kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from odradek.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestLeaderEndpoint,
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
)
from odradek.wire.messages.vote import VoteResponse, VoteResponseNodeEndpoint

OWN = Server("own", 9093)
SERVERS = [Server("b1", 1), Server("b2", 2)]
VOTERS = VoterSet(
    [
        Voter(ReplicaKey(1, b"1" * 16), (Endpoint("OTHER", "o1", 1), Endpoint("CONTROLLER", "c1", 9093))),
        Voter(ReplicaKey(2, b"2" * 16), (Endpoint("OTHER", "o2", 1),)),
    ]
)


def addresses_of(voters: VoterSet) -> ReplicaAddresses:
    quorum = SimpleNamespace(voters=voters)
    return ReplicaAddresses(quorum, "CONTROLLER", {3: OWN}, SERVERS)  # type: ignore[arg-type]


def test_voter_is_reached_at_its_endpoint_on_the_controllers_listener() -> None:
    addresses = addresses_of(VOTERS)
    assert dict(addresses) == {1: Server("c1", 9093), 3: OWN}
    assert addresses.get(2) is None
    assert addresses.get(9) is None


def test_voter_of_the_settings_is_reached_as_they_say() -> None:
    assert dict(addresses_of(VoterSet.of_ids([3, 4]))) == {3: OWN}


@pytest.mark.parametrize(("place", "server"), [(0, SERVERS[0]), (1, SERVERS[1]), (2, None)])
def test_bootstrap_servers_have_ids_below_those_of_nodes(place: int, server: Server | None) -> None:
    assert addresses_of(VOTERS).get(BOOTSTRAP_NODE - place) == server


def test_answer_names_the_address_of_a_leader_that_is_no_known_voter() -> None:
    addresses = addresses_of(VoterSet([]))
    addresses.learn_of(VoteResponse(node_endpoints=[VoteResponseNodeEndpoint(7, "c7", 9093)]))
    assert addresses[7] == Server("c7", 9093)
    assert len(addresses) == 2


def test_log_of_voters_counts_before_what_answers_said() -> None:
    addresses = addresses_of(VOTERS)
    addresses.learn_of(VoteResponse(node_endpoints=[VoteResponseNodeEndpoint(1, "old", 1)]))
    assert addresses[1] == Server("c1", 9093)


def test_leader_that_announces_itself_is_reached_where_it_says() -> None:
    addresses = addresses_of(VoterSet([]))
    part = BeginQuorumEpochRequestPartitionData(leader_id=5, leader_epoch=2)
    endpoints = [
        BeginQuorumEpochRequestLeaderEndpoint("OTHER", "o5", 1),
        BeginQuorumEpochRequestLeaderEndpoint("CONTROLLER", "c5", 9093),
    ]
    topics = [BeginQuorumEpochRequestTopicData("__cluster_metadata", [part])]
    addresses.learn_leader(BeginQuorumEpochRequest("cluster", 3, topics, endpoints))
    assert addresses[5] == Server("c5", 9093)
