"""A raw connection that proves to be a broker, with the secret read from the metadata store's file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from odradek.api.requests.broker_proof import MECHANISM, Claim, connecting_proof
from odradek.log.directories.ownership import METADATA_FILE
from odradek.metadata.nodes import CLUSTER_KEY, ClusterSecretNode
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest


def stored_secret(data_dir: Path) -> bytes:
    """The secret of the cluster whose metadata lies in that directory."""
    file = sqlite3.connect(f"file:{data_dir / METADATA_FILE}?mode=ro", uri=True)
    try:
        ((data,),) = file.execute("SELECT data FROM nodes WHERE path = ?", (CLUSTER_KEY,))
    finally:
        file.close()
    return ClusterSecretNode.decode(data)


def prove(client: Any, data_dir: Path, broker_id: int = 9, accepting_id: int = 1) -> None:
    """Make the broker serve what only brokers may send; `accepting_id` is its own id."""
    claim = Claim(broker_id, b"n" * 32)
    assert client.call(SaslHandshakeRequest(MECHANISM), 1).error_code == 0
    # The first claim makes the broker create the secret.
    challenge = client.call(SaslAuthenticateRequest(claim.encode()), 2)
    assert challenge.error_code == 0
    proof = connecting_proof(stored_secret(data_dir), claim, accepting_id, challenge.auth_bytes)
    assert client.call(SaslAuthenticateRequest(proof), 2).error_code == 0
