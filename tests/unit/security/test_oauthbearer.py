"""OAUTHBEARER's messages, and any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.errors import SaslError
from odradek.security.oauthbearer import bearer_message, parse_bearer


def test_messages_are_those_of_kafka() -> None:
    message = bearer_message("a.b.c", {"traceId": "123"})
    assert message == b"n,,\x01auth=Bearer a.b.c\x01traceId=123\x01\x01"
    assert parse_bearer(message) == ("a.b.c", "", {"traceId": "123"})
    assert parse_bearer(b"n,a=alice,\x01auth=bearer a.b.c\x01\x01").authorization_id == "alice"
    assert "a.b.c" not in repr(parse_bearer(message))


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer \x01\x01",
     b"p=x,,\x01auth=Bearer a\x01\x01",
     b"n,,\x01auth=Bearer a b\x01\x01", b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", b"n,,\x01auth=Bearer a\x01",
     b"n,,\x01auth=Bearer a\x01b\x01\x01", b"n,,\x01auth=Bearer \xff\x01\x01",
     b"n,,\x01auth=Bearer " + b"a" * 20_000 + b"\x01\x01"],
)  # fmt: skip
def test_anything_else_is_rejected(message: bytes) -> None:
    with pytest.raises(SaslError):
        parse_bearer(message)


@pytest.mark.parametrize(
    ("token", "extensions"), [("a\x01auth=Bearer b", {}), ("", {}), ("a", {"auth": "x"}), ("a", {"b": "\x01"})]
)
def test_client_sends_no_message_that_means_something_else(token: str, extensions: dict[str, str]) -> None:
    with pytest.raises(SaslError):
        bearer_message(token, extensions)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    for message in (data, b"n,,\x01auth=Bearer " + data + b"\x01\x01"):
        try:
            assert parse_bearer(message).token
        except SaslError:
            continue
