"""Which tokens are accepted, and the attacks on JSON Web Tokens that are known."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.errors import SaslError
from odradek.security.jwt_rules import JwtRules, KeysError, accept_token, parse_keys

NOW = 1_000_000.0
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
RULES = JwtRules("https://issuer", ("kafka",), ("produce",))
CLAIMS: dict[str, Any] = {
    "iss": "https://issuer", "aud": ["kafka", "x"], "sub": "alice", "scope": "produce consume",
    "iat": NOW - 10, "exp": NOW + 600,
}  # fmt: skip


def jwk(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    algorithm: Any = (
        jwt.algorithms.RSAAlgorithm
        if isinstance(key, rsa.RSAPrivateKey)
        else jwt.algorithms.ECAlgorithm
        if isinstance(key, ec.EllipticCurvePrivateKey)
        else jwt.algorithms.OKPAlgorithm
    )
    return json.loads(algorithm.to_jwk(key.public_key())) | ({"kid": kid} if kid else {}) | more


KEYS = parse_keys(
    json.dumps({"keys": [jwk(RSA, "r"), jwk(EC, "e"), jwk(ED, "d"), jwk(OTHER_RSA, "p", alg="PS256")]}).encode()
)
PEM = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "r", header: Any = None, **claims: Any) -> str:
    merged = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode(merged, key, algorithm, headers=({"kid": kid} if kid else {}) | (header or {}))


def accepted(text: str, rules: JwtRules = RULES, now: float = NOW) -> str:
    return accept_token(text, KEYS, rules, now).name


def part(content: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "r"), (RSA, "PS512", "r"), (EC, "ES256", "e"), (ED, "EdDSA", "d"), (OTHER_RSA, "PS256", "p")],
)
def test_token_of_a_known_key_is_accepted(key: Any, algorithm: str, kid: str) -> None:
    assert accept_token(token(key, algorithm, kid), KEYS, RULES, NOW) == ("alice", (NOW + 600) * 1000, ())


def test_unsigned_tokens_are_rejected() -> None:
    for algorithm in ("none", "None", "NONE", ""):
        with pytest.raises(SaslError):
            accepted(f"{part({'alg': algorithm, 'kid': 'r'})}.{part(CLAIMS)}.")
    with pytest.raises(SaslError):
        accepted(token().rpartition(".")[0] + ".")


def test_public_key_is_no_secret_of_hmac() -> None:
    """RS256's public key as the secret of HS256: a verifier that believes the header accepts it."""
    for secret in (PEM, json.dumps(jwk(RSA, "r")).encode()):
        signed = f"{part({'alg': 'HS256', 'kid': 'r'})}.{part(CLAIMS)}"
        mac = base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), hashlib.sha256)).rstrip(b"=").decode()
        with pytest.raises(SaslError, match="algorithm"):
            accepted(f"{signed}.{mac}")


@pytest.mark.parametrize(
    ("key", "algorithm", "kid", "header"),
    [
        (OTHER_RSA, "RS256", "r", None),
        (RSA, "RS256", "e", None),
        (EC, "ES256", "r", None),
        (RSA, "RS256", "unknown", None),
        (RSA, "RS256", None, None),
        (OTHER_RSA, "RS256", "p", None),
        (OTHER_RSA, "RS256", "../../dev/null", None),
        (OTHER_RSA, "RS256", "r' OR '1'='1", None),
        (OTHER_RSA, "RS256", None, {"jwk": jwk(OTHER_RSA, None)}),
        (OTHER_RSA, "RS256", "evil", {"jku": "https://evil/keys"}),
        (RSA, "RS256", "r", {"crit": ["b64"], "b64": True}),
    ],
)
def test_key_confusion_is_rejected(key: Any, algorithm: str, kid: str | None, header: Any) -> None:
    with pytest.raises(SaslError):
        accepted(token(key, algorithm, kid, header))


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({"exp": NOW - 31}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "never"}, "exp"),
        ({"exp": True}, "exp"),
        ({"iat": None}, "iat"),
        ({"iat": NOW + 31}, "future"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iss": "https://evil"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "kafk"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": {"kafka": 1}}, "audience"),
        ({"scope": "consume"}, "scope"),
        ({"scope": None}, "scope"),
        ({"sub": None}, "sub"),
        ({"sub": " "}, "sub"),
    ],
)
def test_claims_are_required(claims: dict[str, Any], text: str) -> None:
    # PyJWT refuses to sign some of these, a forger does not.
    merged = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    with pytest.raises(SaslError, match=text):
        accepted(jwt.PyJWS().encode(json.dumps(merged).encode(), RSA, "RS256", headers={"kid": "r"}))


def test_clock_skew_and_other_claims_are_allowed() -> None:
    assert accepted(token(exp=NOW - 29, iat=NOW + 29, aud="kafka", scope=["produce"])) == "alice"
    rules = JwtRules(subject_claim="client_id")
    assert accepted(token(client_id="app", iss=None, aud=None, scope=None), rules) == "app"


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "s"},
        jwk(RSA, "r", use="enc"),
        jwk(RSA, "r", key_ops=["encrypt"]),
        jwk(RSA, "r", alg="HS256"),
        jwk(EC, "e", alg="RS256"),
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        jwk(rsa.generate_private_key(public_exponent=65537, key_size=1024), "short"),
        {},
    ],
)
def test_keys_that_verify_nothing_are_left_out(entry: dict[str, Any]) -> None:
    with pytest.raises(KeysError, match="no public key"):
        parse_keys(json.dumps({"keys": [entry]}).encode())


@pytest.mark.parametrize("member", ["use", "key_ops"])
def test_key_whose_purpose_is_null_verifies_signatures(member: str) -> None:
    assert len(parse_keys(json.dumps({"keys": [jwk(RSA, "r", **{member: None})]}).encode())) == 1


@pytest.mark.parametrize("text", [b"", b"[]", b'{"keys": 1}', b'{"keys": [1]}', b"[" * 100_000, b"<html>"])
def test_other_texts_are_no_keys(text: bytes) -> None:
    with pytest.raises(KeysError):
        parse_keys(text)


@given(st.text(max_size=100), st.integers(0, 500))
def test_any_change_of_a_token_is_an_error(text: str, at: int) -> None:
    good = token()
    for changed in (text, good[:at] + text + good[at + 1 :], f"{text}.{text}.{text}"):
        if changed != good:
            try:
                accepted(changed)
            except SaslError:
                continue
            # Base64 has spellings that mean the same bytes.
            assert changed.split(".")[0] == good.split(".")[0]


def test_token_of_this_millisecond_is_not_of_the_future() -> None:
    """The broker's clock reads whole milliseconds, the issuer's more."""
    assert accepted(token(iat=NOW + 0.0009, nbf=NOW + 0.0009), RULES._replace(clock_skew=0)) == "alice"


@pytest.mark.parametrize(
    ("claims", "claim", "roles"),
    [
        ({"groups": ["ops", "a b", "ops", 7, "", "*", "x\ny"]}, "groups", ("Role:ops", "Role:a b")),
        ({"groups": "ops dev"}, "groups", ("Role:ops", "Role:dev")),
        ({"realm_access": {"roles": ["ops"]}}, "realm_access.roles", ("Role:ops",)),
        ({"a.b": ["ops"], "a": {"b": ["no"]}}, "a.b", ("Role:ops",)),
        ({"groups": {"ops": True}}, "groups", ()),
        ({"realm_access": "ops"}, "realm_access.roles", ()),
        ({"groups": ["ops"]}, "", ()),
    ],
)
def test_token_gives_the_roles_of_its_claim(claims: dict[str, Any], claim: str, roles: tuple[str, ...]) -> None:
    assert accept_token(token(**claims), KEYS, RULES._replace(role_claim=claim), NOW).roles == roles


def test_token_gives_a_bounded_number_of_roles() -> None:
    many = token(groups=[f"r{i}" for i in range(150)] + ["x" * 250])
    assert len(accept_token(many, KEYS, RULES._replace(role_claim="groups"), NOW).roles) == 100
