"""DIGEST-MD5 with the example of RFC 2831, section 4, and servers that are not to be trusted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.digest_md5 import DigestMd5Client
from odradek.security.errors import SaslError

HOST = "elwood.innosoft.com"
CHALLENGE = f'realm="{HOST}",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def chris(user: str = "chris", password: str = "secret") -> DigestMd5Client:
    return DigestMd5Client(user, password, "imap", HOST, "OA6MHXh6VqTrRk")


def test_example_of_the_standard_is_repeated() -> None:
    client = chris()
    assert client.first() == b""
    answer = client.next(CHALLENGE.encode())
    assert answer is not None
    assert b"response=d388dad90d4bbd760a152321f2143af7" in answer
    assert b"secret" not in answer
    assert client.next(PROOF) is None


@pytest.mark.parametrize("proof", [b"rspauth=", PROOF[:-1] + b"0", b"other=1", b"", CHALLENGE.encode()])
def test_server_without_proof_is_rejected(proof: bytes) -> None:
    client = chris()
    client.next(CHALLENGE.encode())
    with pytest.raises(SaslError):
        client.next(proof)


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace("nonce=", "other="),
        CHALLENGE.replace('qop="auth"', 'qop="auth-conf,auth-int"'),
        CHALLENGE.replace("md5-sess", "md5"),
        CHALLENGE + ',nonce="again"',
        CHALLENGE + ",realm",
        CHALLENGE + "," + "a=b," * 1000,
        "",
    ],
)
def test_challenge_is_rejected_that_cannot_be_answered(challenge: str) -> None:
    with pytest.raises(SaslError):
        chris().next(challenge.encode())


def test_quotation_marks_of_names_are_escaped() -> None:
    answer = chris(user='a"\\b').next(CHALLENGE.encode())
    assert answer is not None
    assert b'username="a\\"\\\\b"' in answer


@given(st.binary(max_size=80))
def test_any_challenge_is_answered_or_an_error(challenge: bytes) -> None:
    for each in (challenge, CHALLENGE.encode() + challenge):
        try:
            chris().next(each)
        except SaslError:
            continue
