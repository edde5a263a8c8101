"""Voters of a KRaft quorum (KIP-853). Where metadata is in a store, brokers answer UNSUPPORTED_VERSION."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.client.admin.requests import AdminRequests, raise_failure
from odradek.client.admin.topology import RaftVoterEndpoint, active_controller
from odradek.client.network.connection import Request, Response
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterRequestListener, AddRaftVoterResponse
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


class RaftVotersAdmin:
    """`admin.raft_voters`.

    Example:

        for voter in (await admin.describe_quorum()).voters:
            if voter.replica_id == 3 and voter.directory_id is not None:
                await admin.raft_voters.remove(3, voter.directory_id)
    """

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
        of_controllers: bool = False,
    ) -> None:
        """Add a controller to the voters; with `cluster_id` only in that cluster. Raises KafkaError.

        `of_controllers`: the bootstrap servers are controllers, and the one that leads is asked.
        """
        listeners = [AddRaftVoterRequestListener(*each) for each in endpoints]
        request = AddRaftVoterRequest(cluster_id, timeout_ms, voter_id, directory_id, listeners)
        response = await self._send(request, AddRaftVoterResponse, of_controllers=of_controllers)
        raise_failure(response.error_code, response.error_message)

    async def remove(
        self, voter_id: int, directory_id: bytes, *, cluster_id: str | None = None, of_controllers: bool = False
    ) -> None:
        """Remove a controller from the voters; options as of `add`. Raises KafkaError."""
        request = RemoveRaftVoterRequest(cluster_id, voter_id, directory_id)
        response = await self._send(request, RemoveRaftVoterResponse, of_controllers=of_controllers)
        raise_failure(response.error_code, response.error_message)

    async def _send(self, request: Request, kind: type[Response], *, of_controllers: bool) -> Response:
        if not of_controllers:
            return await self._requests.to_any(request, kind)
        leader = await active_controller(self._requests)
        return await self._requests.to_broker(leader, request, kind)
