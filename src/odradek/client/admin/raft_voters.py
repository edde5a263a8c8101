"""Voters of a KRaft quorum (KIP-853). Odradek's brokers have no such quorum: UnsupportedByBroker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek.client.admin.requests import AdminRequests, raise_failure
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterRequestListener, AddRaftVoterResponse
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


class RaftVoterEndpoint(NamedTuple):
    """Where a voter listens, by the listener's name."""

    listener: str
    host: str
    port: int


class RaftVotersAdmin:
    """`admin.raft_voters`."""

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def add(
        self,
        voter_id: int,
        directory_id: bytes,
        endpoints: Iterable[RaftVoterEndpoint],
        *,
        cluster_id: str | None = None,
        timeout_ms: int = 60_000,
    ) -> None:
        """Add a controller to the voters; with `cluster_id` only in that cluster. Raises KafkaError."""
        listeners = [AddRaftVoterRequestListener(*each) for each in endpoints]
        request = AddRaftVoterRequest(cluster_id, timeout_ms, voter_id, directory_id, listeners)
        response = await self._requests.to_any(request, AddRaftVoterResponse)
        raise_failure(response.error_code, response.error_message)

    async def remove(self, voter_id: int, directory_id: bytes, *, cluster_id: str | None = None) -> None:
        """Remove a controller from the voters. Raises KafkaError."""
        request = RemoveRaftVoterRequest(cluster_id, voter_id, directory_id)
        response = await self._requests.to_any(request, RemoveRaftVoterResponse)
        raise_failure(response.error_code, response.error_message)
