"""SCRAM: the vectors of the RFCs, what each side rejects, and any bytes."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.errors import SaslError
from odradek.security.scram import (
    Mechanism,
    PretendedCredentials,
    ScramClient,
    ScramCredential,
    ScramServer,
    credential_of,
    parse_client_first,
    salted_password,
)

SHA_256 = Mechanism.SCRAM_SHA_256
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
PROOF = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()


def credential(password: str = "pencil", mechanism: Mechanism = SHA_256) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, SALT, 4096), SALT, 4096)


def server(first: bytes = FIRST, password: str = "pencil") -> ScramServer:
    return ScramServer(SHA_256, parse_client_first(first), credential(password), SERVER_NONCE)


def client(password: str = "pencil") -> ScramClient:
    return ScramClient(SHA_256, "user", password, CLIENT_NONCE)


def test_exchange_is_that_of_rfc_7677() -> None:
    ours, theirs = client(), server()
    assert ours.first == FIRST
    assert theirs.challenge == CHALLENGE
    assert ours.prove(CHALLENGE) == PROOF
    assert theirs.finish(PROOF) == SIGNATURE
    ours.finish(SIGNATURE)


def test_sha_512_exchange_completes_with_any_name_and_password() -> None:
    mechanism, name, password = Mechanism.SCRAM_SHA_512, "a=b,c=2C ä", "p,=ß\x01"
    ours = ScramClient(mechanism, name, password, "nonce", is_token=True)
    first = parse_client_first(ours.first)
    assert (first.username, first.is_token) == (name, True)
    theirs = ScramServer(mechanism, first, credential(password, mechanism), "more")
    ours.finish(theirs.finish(ours.prove(theirs.challenge)))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"p=tls-unique,,n=user,r=x", "channel binding"),
        (b"n,a=admin,n=user,r=x", "authorization id"),
        (b"n,n=user,r=x", "GS2"),
        (b"n,,n=us=er,r=x", "'='"),
        (b"n,,n=,r=x", "user name and nonce"),
        (b"n,,n=user,r=", "user name and nonce"),
        (b"n,,n=user,r=a b", "user name and nonce"),
        (b"n,,m=ext,n=user,r=x", "user name and nonce"),
        (b"n,,n=user,r=x,m=ext", "extension"),
        (b"n,,n=user,r=x,tokenauth=true,tokenauth=false", "extension"),
        (b"n,,n=us\0er,r=x", "zero byte"),
        (b"n,,n=\xff,r=x", "UTF-8"),
        (b"n,,n=" + b"x" * 20_000 + b",r=x", "too long"),
        (b"", "GS2"),
    ],
)
def test_first_message_is_rejected_when_it_is_not_scram(message: bytes, text: str) -> None:
    with pytest.raises(SaslError, match=text):
        parse_client_first(message)


@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=user,"])
def test_header_is_bound_by_the_last_message(header: bytes) -> None:
    first = parse_client_first(header + f"n=user,r={CLIENT_NONCE}".encode())
    theirs = ScramServer(SHA_256, first, credential(), SERVER_NONCE)
    if header == b"n,,":
        assert theirs.finish(PROOF) == SIGNATURE
    else:
        with pytest.raises(SaslError, match="channel binding"):
            theirs.finish(PROOF)


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (PROOF.replace(b"biws", b"eSws"), "channel binding"),
        (PROOF.replace(b"r=rO", b"r=rP"), "nonce"),
        (PROOF.replace(SERVER_NONCE.encode(), b""), "nonce"),
        (PROOF.replace(b"p=dH", b"p=eH"), "does not fit"),
        (PROOF[:-8], "base64|length"),
        (PROOF.rpartition(b",")[0], "proof"),
        (b"c=biws,p=AAAA", "proof"),
        (b"", "proof"),
    ],
)
def test_last_message_is_rejected_when_it_proves_nothing(last: bytes, text: str) -> None:
    with pytest.raises(SaslError, match=text):
        server().finish(last)


def test_proof_of_another_exchange_is_rejected() -> None:
    """A recorded exchange is worth nothing: the broker's nonce is another one."""
    theirs = ScramServer(SHA_256, parse_client_first(FIRST), credential(), "another")
    with pytest.raises(SaslError, match="nonce"):
        theirs.finish(PROOF)


def test_wrong_password_is_rejected() -> None:
    with pytest.raises(SaslError, match="does not fit"):
        server(password="pencils").finish(client().prove(CHALLENGE))


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (CHALLENGE.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=999999999"), "999999999 iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=1e9"), "not a number"),
        (CHALLENGE.replace(b"i=4096", b"i=" + b"9" * 5000), "not a number"),
        (CHALLENGE.replace(CLIENT_NONCE.encode(), b"other"), "nonce"),
        (CHALLENGE.replace(SERVER_NONCE.encode(), b""), "nonce"),
        (CHALLENGE.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s=AAAA"), "salt"),
        (b"e=unknown-user", "rejects"),
        (b"", "challenge"),
    ],
)
def test_challenge_is_rejected_before_anything_is_computed(challenge: bytes, text: str) -> None:
    def never(*_: object) -> bytes:
        raise AssertionError

    with pytest.raises(SaslError, match=text):
        client().prove(challenge, never)


@pytest.mark.parametrize("message", [b"v=AAAA", b"v=", b"e=other-error", b"", SIGNATURE[:-4] + b"AAA="])
def test_broker_that_does_not_know_the_password_is_rejected(message: bytes) -> None:
    ours = client()
    ours.prove(CHALLENGE)
    with pytest.raises(SaslError):
        ours.finish(message)


def test_signature_before_the_proof_is_rejected() -> None:
    with pytest.raises(SaslError):
        client().finish(SIGNATURE)


def test_unknown_user_gets_the_same_challenge_each_time() -> None:
    like = credential()
    made = [PretendedCredentials(b"secret").credential(SHA_256, "ghost", [like]) for _ in range(2)]
    assert made[0] == made[1]
    assert (made[0].iterations, len(made[0].salt)) == (like.iterations, len(like.salt))
    others = [
        PretendedCredentials(b"secret").credential(SHA_256, "other", [like]),
        PretendedCredentials(b"s").credential(SHA_256, "ghost", [like]),
    ]
    assert len({each.salt for each in (*made, *others)}) == 3


def test_credential_shows_no_keys() -> None:
    assert repr(credential()) == "ScramCredential(iterations=4096)"


def test_credential_is_stored_as_kafka_does() -> None:
    text = credential().text()
    assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert text.endswith(",iterations=4096")
    assert ScramCredential.parse(text) == credential()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    for act in (
        parse_client_first,
        server().finish,
        lambda each: client().prove(each, lambda *_: b""),
        client().finish,
    ):
        try:
            act(data)
        except SaslError:
            continue
        assert data


@given(st.binary(max_size=60), st.sampled_from([b"n,,n=user,r=", b"n,,", b"y,a=", b"n,,n=user,r=x,"]))
def test_any_bytes_after_a_good_start_are_a_message_or_an_error(data: bytes, start: bytes) -> None:
    try:
        first = parse_client_first(start + data)
    except SaslError:
        return
    assert first.username
    assert first.nonce


@given(st.binary(max_size=60), st.integers(0, len(PROOF)))
def test_changed_proof_is_an_error(data: bytes, at: int) -> None:
    changed = PROOF[:at] + data + PROOF[at:]
    if changed != PROOF:
        with pytest.raises(SaslError):
            server().finish(changed)


def test_unknown_users_resemble_all_kinds_of_known_ones() -> None:
    kinds = [credential()._replace(iterations=4096 + n, salt=bytes(16 * n)) for n in range(1, 9)]
    pretended = PretendedCredentials(b"secret")
    made = [pretended.credential(SHA_256, f"ghost {n}", kinds) for n in range(300)]
    assert {(each.iterations, len(each.salt)) for each in made} == {(each.iterations, len(each.salt)) for each in kinds}
    assert len({each.salt for each in made}) == len(made)
