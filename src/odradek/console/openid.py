"""Login by OpenID Connect: the authorization code flow with PKCE, and the access tokens of a login.

The access token is the user's credential at the cluster (OAUTHBEARER), so the brokers check it. The console checks the
ID token, which proves to it that this login belongs to this browser. Sources: OpenID Connect Core 1.0 (section 3.1),
OpenID Connect Discovery 1.0, RFC 7636 (PKCE), RFC 9207 (`iss` in the response).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from odradek.client.errors import AuthenticationFailed, Disconnected
from odradek.console.settings import OpenIdSettings
from odradek.ports.http import FetchError, check_url, fetch
from odradek.security.errors import SaslError

if TYPE_CHECKING:
    from odradek.security.jwt_rules import VerificationKey

ATTEMPT_S: Final = 600
"""Seconds that a person has to log in at the issuer."""
FRESH_S: Final = 3600.0
"""Seconds after which the issuer's endpoints and keys are read again."""
KEYS_PAUSE_S: Final = 10.0
"""Pause between two reads of the keys that tokens of unknown keys cause."""
EARLY_S: Final = 30.0
"""Seconds before the end of an access token at which it is exchanged for a new one."""
MAX_REASON: Final = 200
"""Characters of an issuer's reason that pages show."""
_FETCH_S: Final = 10.0

Fetch = Callable[[str, float, bytes | None, Mapping[str, str] | None], bytes]
"""An HTTP request: URL, seconds, form, headers. Raises FetchError."""


class LoginRejected(Exception):
    """The issuer or a check rejected the login; the text is for the person and has no secret."""


class IssuerFailed(Exception):
    """The issuer cannot be asked, or its answers are not those of OpenID Connect."""


class Attempt(NamedTuple):
    """A login that began in a browser: its cookie, and the secrets that are derived from it."""

    cookie: str
    state: str
    nonce: str
    verifier: str

    @property
    def challenge(self) -> str:
        """PKCE's challenge (S256)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Attempts:
    """Begun logins. Nothing is kept of them: a flood of requests cannot end the login of another person."""

    __slots__ = ("_clock", "_secret")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)

    def begin(self) -> Attempt:
        """A new login."""
        return self._derive(f"{int(self._clock())}.{secrets.token_urlsafe(32)}")

    def find(self, cookie: str, state: str) -> Attempt:
        """The login that a browser's cookie and the issuer's `state` name. Raises LoginRejected."""
        began = cookie.partition(".")[0]
        attempt = self._derive(cookie)
        if not hmac.compare_digest(attempt.state.encode(), state.encode()):
            raise LoginRejected("This login did not begin in this browser: try again.")
        # Only a cookie of this console has a matching state, so its time is one that `begin` wrote.
        if self._clock() - int(began) > ATTEMPT_S:
            raise LoginRejected("The login took too long: try again.")
        return attempt

    def _derive(self, cookie: str) -> Attempt:
        parts = (
            hmac.new(self._secret, f"{purpose}:{cookie}".encode(), hashlib.sha256).hexdigest()
            for purpose in ("state", "nonce", "verifier")
        )
        return Attempt(cookie, *parts)


class Tokens(NamedTuple):
    """The answer of the token endpoint."""

    access: str
    refresh: str
    expires_s: float
    """Seconds since 1970 at which the access token ends; infinite if the issuer does not say."""
    id_token: str


class _Endpoints(NamedTuple):
    authorization: str
    token: str
    keys: str
    posts_secret: bool
    names_itself: bool


class Issuer:
    """An OpenID provider, as far as logins need it. All requests run in threads."""

    __slots__ = ("_clock", "_endpoints", "_fetch", "_keys", "_keys_s", "_read_s", "settings")

    def __init__(self, settings: OpenIdSettings, clock: Callable[[], float] = time.time, ask: Fetch = fetch) -> None:
        self.settings = settings
        """The settings."""
        self._clock = clock
        self._fetch = ask
        self._endpoints: _Endpoints | None = None
        self._keys: list[VerificationKey] = []
        self._read_s = self._keys_s = float("-inf")

    async def authorization_url(self, attempt: Attempt, redirect_uri: str) -> str:
        """Where a person logs in. Raises IssuerFailed."""
        endpoints = await self._discover()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(dict.fromkeys(("openid", *self.settings.scopes))),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        mark = "&" if urlsplit(endpoints.authorization).query else "?"
        return f"{endpoints.authorization}{mark}{urlencode(query)}"

    async def redeem(self, answer: Mapping[str, str], attempt: Attempt, redirect_uri: str) -> tuple[str, Tokens]:
        """The user and the tokens for the issuer's answer to a login. Raises LoginRejected, IssuerFailed."""
        endpoints = await self._discover()
        named = answer.get("iss")
        if named != self.settings.issuer and (named is not None or endpoints.names_itself):
            raise LoginRejected("The answer is of another issuer.")
        if "error" in answer:
            raise LoginRejected(
                f"The issuer rejected the login: {(answer.get('error_description') or answer['error'])[:200]}"
            )
        if not answer.get("code"):
            raise LoginRejected("The issuer answered without a code.")
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
        }
        tokens = await self._ask_tokens(endpoints, form)
        if not tokens.id_token:
            raise IssuerFailed("the issuer answered without an ID token")
        try:
            return await self._check_id_token(tokens.id_token, attempt.nonce), tokens
        except SaslError as error:
            raise LoginRejected(f"The issuer's ID token is not valid: {error}.") from error

    async def refresh(self, tokens: Tokens) -> Tokens:
        """New tokens for the refresh token of older ones. Raises LoginRejected, IssuerFailed."""
        endpoints = await self._discover()
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh}
        found = await self._ask_tokens(endpoints, form)
        return found if found.refresh else found._replace(refresh=tokens.refresh)

    # --- the issuer's documents ---

    async def _discover(self) -> _Endpoints:
        now = self._clock()
        if self._endpoints is not None and now - self._read_s < FRESH_S:
            return self._endpoints
        issuer = self.settings.issuer
        document = await self._ask(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        try:
            found = json.loads(document)
            endpoints = _endpoints_of(found, issuer)
        except (ValueError, TypeError, RecursionError, FetchError) as error:
            raise IssuerFailed(f"the configuration of {issuer}: {error}") from error
        self._endpoints, self._read_s = endpoints, now
        await self._read_keys(endpoints)
        return endpoints

    async def _read_keys(self, endpoints: _Endpoints) -> None:
        from odradek.security.jwt_rules import KeysError, parse_keys

        self._keys_s = self._clock()
        body = await self._ask(endpoints.keys)
        try:
            self._keys = parse_keys(body)
        except KeysError as error:
            raise IssuerFailed(f"the keys of {self.settings.issuer}: {error}") from error

    async def _check_id_token(self, token: str, nonce: str) -> str:
        """The user that an ID token names (Core, section 3.1.3.7). Raises SaslError, IssuerFailed."""
        from odradek.security.jwt_rules import JwtRules, UnknownKey, accept_claims, verified_claims

        settings = self.settings
        try:
            claims = await asyncio.to_thread(verified_claims, token, self._keys)
        except UnknownKey:
            if self._endpoints is None or self._clock() - self._keys_s < KEYS_PAUSE_S:
                raise
            await self._read_keys(self._endpoints)
            claims = await asyncio.to_thread(verified_claims, token, self._keys)
        rules = JwtRules(settings.issuer, (settings.client_id,), subject_claim=settings.user_claim)
        accepted = accept_claims(claims, rules, self._clock())
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise SaslError("the token is of another login")
        party = claims.get("azp")
        is_shared = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if party != settings.client_id and (party is not None or is_shared):
            raise SaslError("the token was issued to another client")
        return accepted.name

    # --- requests ---

    async def _ask_tokens(self, endpoints: _Endpoints, form: Mapping[str, str]) -> Tokens:
        settings = self.settings
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        own: dict[str, str] = {}
        if settings.client_secret and not endpoints.posts_secret:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            own = {"client_id": settings.client_id}
            if settings.client_secret:
                own["client_secret"] = settings.client_secret
        try:
            body = await self._ask(endpoints.token, urlencode({**form, **own}).encode(), headers)
        except IssuerFailed as error:
            if _is_rejection(error.__cause__):
                raise LoginRejected("The issuer rejected the login at its token endpoint.") from error
            raise
        try:
            found = json.loads(body)
            if str(found["token_type"]).lower() != "bearer":
                raise IssuerFailed("the issuer's access token is not a bearer token")
            seconds = found.get("expires_in")
            return Tokens(
                str(found["access_token"]),
                str(found.get("refresh_token", "")),
                float("inf") if seconds is None else self._clock() + float(seconds),
                str(found.get("id_token", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise IssuerFailed("the issuer's token endpoint answered without an access token") from error

    async def _ask(self, url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        try:
            return await asyncio.to_thread(self._fetch, url, _FETCH_S, form, headers)
        except FetchError as error:
            raise IssuerFailed(str(error)) from error


class AccessTokens:
    """The token provider of a login's clients: it exchanges a token that ends for a new one."""

    __slots__ = ("_clock", "_issuer", "_lock", "_tokens")

    def __init__(self, issuer: Issuer, tokens: Tokens, clock: Callable[[], float] = time.time) -> None:
        self._issuer = issuer
        self._tokens = tokens
        self._clock = clock
        self._lock = asyncio.Lock()

    @property
    def has_ended(self) -> bool:
        """Whether the access token has ended and cannot be exchanged for a new one."""
        return not self._tokens.refresh and self._clock() >= self._tokens.expires_s

    async def token(self) -> str:
        """The access token for a connection. Raises AuthenticationFailed, Disconnected."""
        # Several connections ask at a time, and a refresh token may be good for one use only.
        async with self._lock:
            if self._tokens.refresh and self._tokens.expires_s - self._clock() < EARLY_S:
                try:
                    self._tokens = await self._issuer.refresh(self._tokens)
                except LoginRejected as error:
                    raise AuthenticationFailed(str(error)) from error
                except IssuerFailed as error:
                    raise Disconnected(f"cannot refresh the access token: {error}") from error
            return self._tokens.access


def _is_rejection(cause: object) -> bool:
    """Whether a token endpoint rejected a request (RFC 6749, section 5.2), rather than failed."""
    return isinstance(cause, FetchError) and cause.status in (400, 401)


def _endpoints_of(document: Any, issuer: str) -> _Endpoints:
    """Raises ValueError, TypeError, FetchError."""
    if not isinstance(document, dict):
        raise TypeError("a JSON object expected")
    if document.get("issuer") != issuer:
        raise ValueError(f"it is that of another issuer, {document.get('issuer')!r}")
    if "S256" not in document.get("code_challenge_methods_supported", ("S256",)):
        raise ValueError("the issuer does not support PKCE with S256")
    methods = document.get("token_endpoint_auth_methods_supported", ("client_secret_basic",))
    return _Endpoints(
        authorization=_endpoint(document, "authorization_endpoint"),
        token=_endpoint(document, "token_endpoint"),
        keys=_endpoint(document, "jwks_uri"),
        posts_secret="client_secret_basic" not in methods and "client_secret_post" in methods,
        names_itself=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _endpoint(document: Mapping[str, Any], name: str) -> str:
    url = document.get(name)
    if not isinstance(url, str):
        raise TypeError(f"{name} is missing")
    check_url(url)
    if urlsplit(url).scheme == "file":
        raise ValueError(f"{name} is a file")
    return url
