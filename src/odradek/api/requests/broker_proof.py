"""How a broker proves to another one that it is of the same cluster: an HMAC over fresh numbers of both sides.

The exchange travels in SaslAuthenticate under a mechanism of our own, on any listener:

    connecting broker                              accepting broker
    SaslHandshake(ODRADEK-CLUSTER)           ->
    claim: its id, 32 random bytes           ->
                                             <-    32 random bytes, HMAC of the accepting broker
    HMAC of the connecting broker            ->

Both HMACs are keyed with the cluster's secret from the metadata store and cover the claim, both random numbers and the
id of the accepting broker: a proof is worth nothing on another connection, to another broker, or in the other
direction. See docs/decisions/0001-brokers-prove-themselves-by-a-cluster-secret.md.
"""

from __future__ import annotations

import hmac
from typing import Final, NamedTuple

MECHANISM: Final = "ODRADEK-CLUSTER"
NONCE_BYTES: Final = 32

_VERSION: Final = 1
_CLAIM_BYTES: Final = 1 + 4 + NONCE_BYTES
_PROOF_BYTES: Final = 32
_CONNECTING: Final = b"odradek connecting broker"
_ACCEPTING: Final = b"odradek accepting broker"


class ProofError(Exception):
    """The other side is not a broker of this cluster, or does not speak this protocol."""


class Claim(NamedTuple):
    """Who the connecting broker says it is."""

    broker_id: int
    nonce: bytes

    def encode(self) -> bytes:
        """Version, broker id, nonce."""
        return bytes((_VERSION,)) + self.broker_id.to_bytes(4, "big", signed=True) + self.nonce

    @classmethod
    def decode(cls, data: bytes) -> Claim:
        """Raises ProofError."""
        if len(data) != _CLAIM_BYTES or data[0] != _VERSION:
            raise ProofError("the claim is not one of this version")
        return cls(int.from_bytes(data[1:5], "big", signed=True), bytes(data[5:]))


def _transcript(claim: Claim, accepting_id: int, nonce: bytes) -> bytes:
    return claim.encode() + accepting_id.to_bytes(4, "big", signed=True) + nonce


def _proof(secret: bytes, side: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, side + transcript, "sha256")


class AcceptingSide:
    """The accepting broker's part of one exchange: send `challenge`, then `verify` what comes."""

    __slots__ = ("_expected", "broker_id", "challenge")

    def __init__(self, secret: bytes, own_id: int, claim: Claim, nonce: bytes) -> None:
        transcript = _transcript(claim, own_id, nonce)
        self._expected = _proof(secret, _CONNECTING, transcript)
        self.broker_id = claim.broker_id
        """Who the peer is once `verify` has returned."""
        self.challenge = nonce + _proof(secret, _ACCEPTING, transcript)

    def verify(self, proof: bytes) -> None:
        """Raises ProofError."""
        if not hmac.compare_digest(self._expected, proof):
            raise ProofError("the proof does not fit the secret of this cluster")


def connecting_proof(secret: bytes, claim: Claim, accepting_id: int, challenge: bytes) -> bytes:
    """The proof that answers a challenge. Raises ProofError if the challenger does not know the secret itself."""
    nonce, proof = challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
    transcript = _transcript(claim, accepting_id, nonce)
    if len(proof) != _PROOF_BYTES or not hmac.compare_digest(_proof(secret, _ACCEPTING, transcript), proof):
        raise ProofError("the accepting broker does not know the secret of this cluster")
    return _proof(secret, _CONNECTING, transcript)
