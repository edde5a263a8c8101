"""Delegation tokens: how long they are valid, and for whom."""

from __future__ import annotations

import pytest

from odradek.metadata.nodes import CorruptNode
from odradek.metadata.token_nodes import decode_token, encode_token
from odradek.security.delegation_tokens import TokenSettings, extended, new_token, token_hmac, token_salt

SETTINGS = TokenSettings("secret", 1000, 100)
TOKEN = new_token("id", "User:alice", "User:admin", ["User:bob"], 0, SETTINGS, 10)


@pytest.mark.parametrize(
    ("lifetime", "max_ms", "expiry_ms"), [(0, 1010, 110), (-1, 1010, 110), (50, 60, 60), (5000, 1010, 110)]
)
def test_lifetime_of_a_token_is_limited(lifetime: int, max_ms: int, expiry_ms: int) -> None:
    token = new_token("id", "User:alice", "User:alice", [], lifetime, SETTINGS, 10)
    assert (token.issued_ms, token.max_ms, token.expiry_ms) == (10, max_ms, expiry_ms)


def test_token_is_extended_up_to_its_end() -> None:
    assert extended(TOKEN, -1, SETTINGS, 50).expiry_ms == 150
    assert extended(TOKEN, 20, SETTINGS, 50).expiry_ms == 70
    assert extended(TOKEN, 10**6, SETTINGS, 50).expiry_ms == TOKEN.max_ms


def test_token_is_expired_from_its_time_on() -> None:
    assert [TOKEN.is_expired(now) for now in (109, 110)] == [False, True]


def test_owner_and_renewers_may_renew() -> None:
    assert [TOKEN.may_be_renewed_by(each) for each in ("User:alice", "User:bob", "User:admin")] == [True, True, False]


def test_token_concerns_owner_requester_and_renewers() -> None:
    principals = ("User:alice", "User:bob", "User:admin", "User:carol")
    assert [TOKEN.concerns({each}) for each in principals] == [True, True, True, False]


def test_token_is_stored_as_kafka_does_without_its_secret() -> None:
    data = encode_token(TOKEN)
    assert data == (
        b'{"version":3,"owner":"User:alice","tokenRequester":"User:admin","renewers":["User:bob"],'
        b'"issueTimestamp":10,"maxTimestamp":1010,"expiryTimestamp":110,"tokenId":"id"}'
    )
    assert decode_token("/p", data) == TOKEN
    old = data.replace(b'"tokenRequester":"User:admin",', b"").replace(b'"version":3', b'"version":1')
    assert decode_token("/p", old).requester == "User:alice"
    with pytest.raises(CorruptNode):
        decode_token("/p", b"{}")


def test_secrets_follow_from_the_key_and_the_id() -> None:
    assert len({token_hmac("a", "1"), token_hmac("a", "2"), token_hmac("b", "1")}) == 3
    assert token_salt("a", "1") == token_salt("a", "1") != token_salt("a", "2")
    assert "secret" not in repr(SETTINGS)
