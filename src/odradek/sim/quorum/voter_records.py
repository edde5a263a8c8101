"""Control records of voters as values of the simulated log, and back."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from odradek.kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from odradek.wire.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord

_VERSION: Final = "kraft.version "
_VOTERS: Final = "voters "
_MARK: Final = "leader"


def replica_key(node: int, directory: int) -> ReplicaKey:
    """The replica on the directory of this number."""
    return ReplicaKey(node, directory.to_bytes(16, "big"))


def simulated_voter(key: ReplicaKey) -> Voter:
    """A voter with its only listener."""
    return Voter(key, (Endpoint("CONTROLLER", f"h{key.node_id}", 9093),))


def voter_set(keys: Iterable[ReplicaKey]) -> VoterSet:
    """The voters with these keys."""
    return VoterSet(simulated_voter(each) for each in keys)


def to_value(control: Any, epoch: int) -> str:
    """A control record as the log stores it."""
    if isinstance(control, LeaderChangeMessage):
        return f"{_MARK} {epoch}"
    if isinstance(control, KRaftVersionRecord):
        return f"{_VERSION}{control.k_raft_version}"
    assert isinstance(control, VotersRecord)
    return _VOTERS + ",".join(
        f"{each.voter_id}:{int.from_bytes(each.voter_directory_id, 'big')}" for each in control.voters
    )


def to_control(value: str) -> Any | None:
    """The control record that a value stands for; None for a client's value and for a leader's mark."""
    if value.startswith(_VERSION):
        return KRaftVersionRecord(0, int(value.removeprefix(_VERSION)))
    voters = to_voters(value)
    return None if voters is None else voters.to_record()


@lru_cache(1024)
def to_voters(value: str) -> VoterSet | None:
    """The voters that a value stands for; None for another value."""
    if not value.startswith(_VOTERS):
        return None
    pairs = (each.split(":") for each in value.removeprefix(_VOTERS).split(","))
    return voter_set(replica_key(int(node), int(directory)) for node, directory in pairs)
