"""Sends this replica's requests to the other voters, one connection for each voter and kind of request."""

from __future__ import annotations

import logging
from typing import Final

from odradek.broker.cluster.peers import Purpose
from odradek.broker.kraft.controllers import Controllers
from odradek.broker.quorum.raft_replica import Asked
from odradek.broker.quorum.replica_addresses import ReplicaAddresses
from odradek.client.errors import ConnectionRefused, TransportError
from odradek.kraft.raft.messages import FetchRequest, Request, SnapshotRequest
from odradek.kraft.raft.wire_answers import decode_answer
from odradek.kraft.raft.wire_requests import Sender, encode_request
from odradek.records.errors import CorruptRecords
from odradek.wire.apis import response_class
from odradek.wire.errors import KafkaError

logger = logging.getLogger("odradek.broker.quorum")

_FETCHES: Final = None
"""In the place of a purpose: fetches wait at the leader, and votes must not wait behind them."""


class VoterRequests:
    """Called with a voter's id and a request; implements `raft_replica.Ask`."""

    __slots__ = ("_addresses", "_controllers", "_sender", "_timeout_ms")

    def __init__(
        self, controllers: Controllers, addresses: ReplicaAddresses, sender: Sender, timeout_ms: float
    ) -> None:
        """`timeout_ms` is `controller.quorum.request.timeout.ms`."""
        self._controllers = controllers
        self._addresses = addresses
        self._sender = sender
        self._timeout_ms = timeout_ms

    async def __call__(self, to: int, request: Request) -> Asked:
        """The answer of the voter; None where it cannot be reached, or answers nonsense."""
        message = encode_request(request, self._sender)
        purpose = _FETCHES if isinstance(request, FetchRequest | SnapshotRequest) else Purpose.OWN
        kind = response_class(type(message).API_KEY)
        server = self._addresses.get(to)
        if server is None:
            logger.debug("%s to voter %d failed: its address is not known", type(request).__name__, to)
            return Asked(None)
        try:
            answer = await self._controllers.request(server, purpose, message, kind, self._timeout_ms)
            self._addresses.learn_of(answer)
            return Asked(decode_answer(answer))
        except (TransportError, KafkaError, CorruptRecords) as error:
            logger.debug("%s to voter %d failed: %s", type(request).__name__, to, error)
            return Asked(None, is_refused=isinstance(error, ConnectionRefused))
