"""Which JSON Web Tokens are accepted: signature by a known key, algorithms fixed by the type of the key, claims.

Signatures are verified by PyJWT and cryptography (the extra `oauth`), which load with the first use of this module.
Kafka's counterpart is `BrokerJwtValidator` (KIP-768).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt

from odradek.security.errors import SaslError
from odradek.security.oauthbearer import MAX_TOKEN_BYTES
from odradek.security.proven_roles import roles_named

_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_MIN_RSA_BITS: Final = 2048
_MAX_KEYS: Final = 100


class KeysError(ValueError):
    """The text is not a set of public keys."""


class VerificationKey(NamedTuple):
    """A public key and the algorithms that it verifies."""

    key_id: str | None
    key: Any
    algorithms: tuple[str, ...]


class JwtRules(NamedTuple):
    """What a token must have beside a valid signature; times are seconds since 1970."""

    issuer: str = ""
    """The value of `iss`; empty for any."""
    audiences: Sequence[str] = ()
    """Values of `aud`, of which the token must have one; empty for any."""
    scopes: Sequence[str] = ()
    """Scopes that the token must have, all of them."""
    subject_claim: str = "sub"
    """The claim with the name of the principal."""
    scope_claim: str = "scope"
    clock_skew: int = 30
    role_claim: str = ""
    """The claim with roles of the principal, a name or names of nested claims with dots; empty for none."""


class AcceptedToken(NamedTuple):
    """The identity that a token proves."""

    name: str
    expires_ms: float
    roles: tuple[str, ...] = ()
    """Roles (`Role:NAME`) in the claim for them."""


def parse_keys(text: bytes) -> list[VerificationKey]:
    """The public keys of a JWKS (RFC 7517) that verify signatures. Raises KeysError if there are none."""
    try:
        document = json.loads(text)
        found = [key for each in document["keys"][:_MAX_KEYS] if (key := _verification_key(each)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KeysError("not a JSON Web Key Set") from error
    if not found:
        raise KeysError("the JSON Web Key Set has no public key that verifies signatures")
    return found


def _verification_key(entry: Mapping[str, Any]) -> VerificationKey | None:
    """None for a key of another purpose, a symmetric one and one that cannot be read."""
    use, operations = entry.get("use"), entry.get("key_ops")
    if use not in (None, "sig") or (operations is not None and "verify" not in operations):
        return None
    kind, curve = entry.get("kty"), entry.get("crv")
    algorithms: tuple[str, ...]
    if kind == "RSA":
        algorithms = _RSA
    elif kind == "EC" and curve in _CURVES:
        algorithms = (_CURVES[curve],)
    elif kind == "OKP" and curve == "Ed25519":
        algorithms = ("EdDSA",)
    else:
        return None
    declared = entry.get("alg")
    if declared is not None:
        algorithms = tuple(each for each in algorithms if each == declared)
    public = {name: entry[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in entry}
    try:
        key = jwt.PyJWK(public, algorithm=algorithms[0] if algorithms else None).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if not algorithms or (kind == "RSA" and key.key_size < _MIN_RSA_BITS):
        return None
    key_id = entry.get("kid")
    return VerificationKey(key_id if isinstance(key_id, str) else None, key, algorithms)


class UnknownKey(SaslError):
    """The token names a key that is not in the set: it may be a new one."""


def accept_token(token: str, keys: Sequence[VerificationKey], rules: JwtRules, now: float) -> AcceptedToken:
    """The identity that a token proves at that time. Raises SaslError. Verifies a signature: not for an event loop."""
    return accept_claims(verified_claims(token, keys), rules, now)


def verified_claims(token: str, keys: Sequence[VerificationKey]) -> dict[str, Any]:
    """The claims of a token with a valid signature; they are not checked. Raises SaslError. Not for an event loop."""
    if len(token) > MAX_TOKEN_BYTES:
        raise SaslError("the token is too long")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise SaslError("the token is not a signed JWT") from None
    key = _key_of(header, keys)
    if header.get("alg") not in key.algorithms:
        raise SaslError("the token is signed by an algorithm that its key does not have")
    if "crit" in header:
        raise SaslError("the token demands an extension of JWS")
    try:
        payload = jwt.PyJWS().decode(token, key.key, algorithms=list(key.algorithms))
        claims = json.loads(payload)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise SaslError("the token's signature is not valid") from None
    if not isinstance(claims, dict):
        raise SaslError("the token has no claims")
    return claims


def _key_of(header: Mapping[str, Any], keys: Sequence[VerificationKey]) -> VerificationKey:
    """The key that the token names. Keys inside of the token, or at addresses in it, do not count."""
    key_id = header.get("kid")
    if key_id is None and len(keys) == 1:
        return keys[0]
    found = [key for key in keys if key.key_id is not None and key.key_id == key_id]
    if not found:
        raise UnknownKey("the token is signed by a key that is not in the set")
    if len(found) > 1:
        raise SaslError("several keys of the set have the id in the token")
    return found[0]


def accept_claims(claims: Mapping[str, Any], rules: JwtRules, now: float) -> AcceptedToken:
    """The identity in the claims of a verified token at that time. Raises SaslError."""
    expires = _time(claims, "exp")
    if expires + rules.clock_skew <= now:
        raise SaslError("the token has expired")
    for name, text in (("nbf", "is not valid yet"), ("iat", "was issued in the future")):
        # The broker's clock reads whole milliseconds: a token of this very millisecond is not of the future.
        if name in claims and math.floor(_time(claims, name) * 1000) / 1000 - rules.clock_skew > now:
            raise SaslError(f"the token {text}")
    if "iat" not in claims:
        raise SaslError("the token has no claim iat")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise SaslError("the token is of another issuer")
    audiences = _words(claims.get("aud"), splits=False)
    if rules.audiences and not {*rules.audiences} & {*audiences}:
        raise SaslError("the token is for another audience")
    missing = {*rules.scopes} - {*_words(claims.get(rules.scope_claim), splits=True)}
    if missing:
        raise SaslError("the token lacks a required scope")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise SaslError(f"the token has no claim {rules.subject_claim}")
    roles = roles_named(_words(_claim(claims, rules.role_claim), splits=True))
    return AcceptedToken(subject.strip(), expires * 1000, roles)


def _claim(claims: Mapping[str, Any], path: str) -> object:
    """A claim by its name, else by the names of the claims that it lies in, as `realm_access.roles`."""
    if not path or path in claims:
        return claims.get(path)
    found: object = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise SaslError(f"the token has no time as claim {name}")
    return float(value)


def _words(value: object, *, splits: bool) -> list[str]:
    """The members of a claim that is a text or a list of texts; `splits` a text at its spaces."""
    if isinstance(value, str):
        return value.split() if splits else [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
