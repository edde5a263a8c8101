"""The voters of a quorum: which replicas vote, and where they are reached. Pure.

Source: KIP-853; Kafka's `ReplicaKey`, `VoterSet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.wire.messages.control_records import (
    VotersRecord,
    VotersRecordEndpoint,
    VotersRecordKRaftVersionFeature,
    VotersRecordVoter,
)
from odradek.wire.primitives import ZERO_UUID

STATIC_VOTERS: Final = 0
"""The kraft.version whose voters are those of `controller.quorum.voters`."""
DYNAMIC_VOTERS: Final = 1
"""The kraft.version whose voters are those of the newest VotersRecord."""


class ReplicaKey(NamedTuple):
    """A replica: a node with the directory of its metadata log. `ZERO_UUID`: the directory is not known."""

    node_id: int
    directory_id: bytes = ZERO_UUID


class Endpoint(NamedTuple):
    """A listener of a controller."""

    name: str
    host: str
    port: int


class Voter(NamedTuple):
    """A voter, its listeners, and the kraft.versions that it supports."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    min_kraft_version: int = STATIC_VOTERS
    max_kraft_version: int = DYNAMIC_VOTERS

    def supports(self, kraft_version: int) -> bool:
        """Whether the voter can take part in a quorum of this version."""
        return self.min_kraft_version <= kraft_version <= self.max_kraft_version

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The voter's listener of this name."""
        return next((each for each in self.endpoints if each.name == listener_name), None)


class VoterSet:
    """The voters by id; immutable."""

    __slots__ = ("_voters", "ids")

    def __init__(self, voters: Iterable[Voter]) -> None:
        """Raises ValueError if two voters have the same id."""
        listed = list(voters)
        self._voters: Mapping[int, Voter] = {each.key.node_id: each for each in sorted(listed)}
        self.ids = frozenset(self._voters)
        if len(self.ids) != len(listed):
            raise ValueError(f"two voters have the same id: {listed}")

    @classmethod
    def of_ids(cls, ids: Iterable[int]) -> VoterSet:
        """The voters of kraft.version 0, whose directories are not known."""
        return cls(Voter(ReplicaKey(each)) for each in ids)

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        """The voters of a record of version 0. Raises ValueError if two have the same id."""
        return cls(
            Voter(
                ReplicaKey(each.voter_id, each.voter_directory_id),
                tuple(Endpoint(found.name, found.host, found.port) for found in each.endpoints),
                each.k_raft_version_feature.min_supported_version,
                each.k_raft_version_feature.max_supported_version,
            )
            for each in record.voters
        )

    def to_record(self) -> VotersRecord:
        """The record of version 0, voters in the order of their ids."""
        voters = [
            VotersRecordVoter(
                each.key.node_id,
                each.key.directory_id,
                [VotersRecordEndpoint(*endpoint) for endpoint in each.endpoints],
                VotersRecordKRaftVersionFeature(each.min_kraft_version, each.max_kraft_version),
            )
            for each in self.voters
        ]
        return VotersRecord(0, voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(self.ids)

    def __repr__(self) -> str:
        return f"VoterSet({self.voters})"

    # --- queries ---

    @property
    def voters(self) -> list[Voter]:
        """All voters in the order of their ids."""
        return list(self._voters.values())

    @property
    def keys(self) -> frozenset[ReplicaKey]:
        """The replicas that vote."""
        return frozenset(each.key for each in self._voters.values())

    def find(self, node_id: int) -> Voter | None:
        """The voter with this id."""
        return self._voters.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica votes. Voters whose directory is not known are compared by id alone."""
        found = self._voters.get(key.node_id)
        return found is not None and found.key.directory_id in (ZERO_UUID, key.directory_id)

    def key_of(self, replica: ReplicaKey) -> ReplicaKey:
        """The key of the voter that this replica is; else its own key."""
        found = self._voters.get(replica.node_id)
        return found.key if found is not None and self.is_voter(replica) else replica

    def is_majority(self, ids: Iterable[int]) -> bool:
        """Whether these replicas hold more than half of the voters."""
        return len(self.ids.intersection(ids)) > len(self.ids) // 2

    def supports(self, kraft_version: int) -> bool:
        """Whether all voters support this version."""
        return all(each.supports(kraft_version) for each in self._voters.values())

    def has_overlapping_majority(self, other: VoterSet) -> bool:
        """Whether each majority of one set shares a voter with each majority of the other (KIP-853)."""
        return len(self.keys - other.keys) <= 1 and len(other.keys - self.keys) <= 1

    # --- changes ---

    def with_voter(self, voter: Voter) -> VoterSet | None:
        """The set with one more voter; None if a voter has its id already."""
        return None if voter.key.node_id in self.ids else VoterSet([*self.voters, voter])

    def without_voter(self, key: ReplicaKey) -> VoterSet | None:
        """The set without a voter; None if it has no such voter, or no other one."""
        found = self._voters.get(key.node_id)
        if found is None or found.key != key or len(self.ids) == 1:
            return None
        return VoterSet(each for each in self.voters if each.key != key)

    def with_update(self, voter: Voter) -> VoterSet | None:
        """The set with the new listeners and versions of a voter; None if it has no such voter."""
        if not self.is_voter(voter.key):
            return None
        return VoterSet(voter if each.key.node_id == voter.key.node_id else each for each in self.voters)
