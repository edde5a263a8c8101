"""Delegation tokens in the metadata store, where Kafka keeps them in ZooKeeper (`DelegationTokenInfoZNode`)."""

from __future__ import annotations

import json
from typing import Final

from odradek.metadata.nodes import CorruptNode
from odradek.security.delegation_tokens import DelegationToken

TOKENS: Final = "/delegation_token/tokens"


def token_path(token_id: str) -> str:
    """The path of a token."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    """The content of a token's node: all but its HMAC, which follows from the secret of the brokers."""
    content = {
        "version": 3,
        "owner": token.owner,
        "tokenRequester": token.requester,
        "renewers": list(token.renewers),
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def decode_token(path: str, data: bytes) -> DelegationToken:
    """The token in a node; older versions have no requester. Raises CorruptNode."""
    try:
        content = json.loads(data)
        return DelegationToken(
            content["tokenId"],
            content["owner"],
            content.get("tokenRequester", content["owner"]),
            tuple(content.get("renewers", ())),
            int(content["issueTimestamp"]),
            int(content["maxTimestamp"]),
            int(content["expiryTimestamp"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptNode(f"{path}: {error!r}") from error
