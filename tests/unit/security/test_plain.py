"""PLAIN: who is let in, and any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.errors import SaslError
from odradek.security.plain import PlainUsers, parse_plain, plain_message

USERS = PlainUsers({"alice": "secret", "bob": "geheim"})


@pytest.mark.parametrize("message", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_user_with_the_right_password_is_authenticated(message: bytes) -> None:
    assert USERS.authenticate(message) == "alice"
    assert plain_message("alice", "secret") == b"\0alice\0secret"


@pytest.mark.parametrize(
    "message",
    [b"\0alice\0geheim", b"\0ghost\0secret", b"bob\0alice\0secret", b"\0alice\0", b"\0\0secret", b"\0alice\0secret\0",
     b"alice\0secret", b"", b"\0alice\0\xff", b"\0alice\0" + b"x" * 20_000],
)  # fmt: skip
def test_anything_else_is_rejected(message: bytes) -> None:
    with pytest.raises(SaslError):
        USERS.authenticate(message)


def test_unknown_user_and_wrong_password_give_the_same_error() -> None:
    with pytest.raises(SaslError) as unknown:
        USERS.authenticate(b"\0ghost\0secret")
    with pytest.raises(SaslError) as wrong:
        USERS.authenticate(b"\0alice\0wrong")
    assert str(unknown.value) == str(wrong.value)


def test_zero_byte_in_a_password_is_rejected_by_the_client() -> None:
    with pytest.raises(SaslError):
        plain_message("alice", "a\0b")


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    try:
        username, password = parse_plain(data)
    except SaslError:
        return
    assert username
    assert password
