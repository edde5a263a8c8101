"""The secret that the brokers of a cluster share, and the proof by it on connections between them.

It lies in the metadata store, which only brokers have: a client that reaches a broker's port knows neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek.api.requests.broker_proof import MECHANISM, NONCE_BYTES, Claim, ProofError, connecting_proof
from odradek.client.errors import Disconnected
from odradek.client.network.connection import Connection
from odradek.client.network.connections import retrieve_failure
from odradek.metadata.nodes import CLUSTER_KEY, ClusterSecretNode
from odradek.ports.randomness import Random
from odradek.ports.store import Create, MetadataStore, NodeExists, StoreError
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_SECRET_BYTES = 32
_HANDSHAKE_VERSION = 1
_AUTHENTICATE_VERSION = 2


Prove = Callable[[Connection, int, float], Awaitable[None]]
"""Prove on a connection to the broker of that id that this is one, too, within some milliseconds."""


class ClusterSecret:
    """Reads the secret when it is first needed and keeps it; the first broker that needs it creates it."""

    __slots__ = ("_random", "_secret", "_store")

    def __init__(self, store: MetadataStore, random: Random) -> None:
        self._store = store
        self._random = random
        self._secret: bytes | None = None

    def nonce(self) -> bytes:
        """Random bytes for one proof."""
        return self._random.randrange(1 << 8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")

    async def read(self) -> bytes:
        """Raises KafkaError UNKNOWN_SERVER_ERROR if the metadata store cannot be read."""
        if self._secret is None:
            try:
                self._secret = await self._stored()
            except StoreError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{CLUSTER_KEY}: {error}") from error
        return self._secret

    async def _stored(self) -> bytes:
        while True:
            node = await self._store.get(CLUSTER_KEY)
            if node is not None:
                return ClusterSecretNode.decode(node.data)
            fresh = self._random.randrange(1 << 8 * _SECRET_BYTES).to_bytes(_SECRET_BYTES, "big")
            try:
                await self._store.apply([Create(CLUSTER_KEY, ClusterSecretNode.encode(fresh))])
            except NodeExists:
                continue


class BrokerProof:
    """Proves on a new connection to another broker that this one is of the same cluster."""

    __slots__ = ("_node_id", "_secret")

    def __init__(self, secret: ClusterSecret, node_id: int) -> None:
        self._secret = secret
        self._node_id = node_id

    async def __call__(self, connection: Connection, broker_id: int, timeout_ms: float) -> None:
        """Raises TransportError; Disconnected also where one of both does not know the secret."""
        claim = Claim(self._node_id, self._secret.nonce())
        try:
            secret = await self._secret.read()
            chosen = connection.request(
                SaslHandshakeRequest(MECHANISM), SaslHandshakeResponse, _HANDSHAKE_VERSION, timeout_ms
            )
            # If the connection breaks here, the claim raises that, and no one waits for this answer.
            chosen.add_done_callback(retrieve_failure)
            # The claim does not depend on the answer to the handshake: both travel together.
            handshake, challenge = await asyncio.gather(chosen, _send(connection, claim.encode(), timeout_ms))
            _check(handshake.error_code)
            _check(challenge.error_code)
            proof = connecting_proof(secret, claim, broker_id, challenge.auth_bytes)
            _check((await _send(connection, proof, timeout_ms)).error_code)
        except (KafkaError, ProofError) as error:
            raise Disconnected(
                f"cannot prove to broker {broker_id} that this is broker {self._node_id}: {error}"
            ) from error


def _send(connection: Connection, data: bytes, timeout_ms: float) -> asyncio.Future[SaslAuthenticateResponse]:
    request = SaslAuthenticateRequest(data)
    return connection.request(request, SaslAuthenticateResponse, _AUTHENTICATE_VERSION, timeout_ms)


def _check(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code))
