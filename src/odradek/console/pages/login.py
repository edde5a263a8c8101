"""Login with a user of the cluster: the console then acts as that user, so that the cluster's ACLs apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from odradek.client.admin import Admin
from odradek.client.errors import AuthenticationFailed
from odradek.console.clusters import REQUEST_MS, Clusters
from odradek.console.forms import field, see
from odradek.console.guard import cookie_line
from odradek.console.openid import AccessTokens
from odradek.console.rendering import console_of, page
from odradek.console.sessions import Session

_OWN: Final = (
    "sasl_jaas_config", "sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider",
    "sasl_oauthbearer_client_credentials_client_id", "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_token_endpoint_url", "sasl_oauthbearer_scope",
)  # fmt: skip
"""Credentials of the console itself, which a person's client must not have."""
TOO_MANY: Final = "Too many logins failed: wait for a minute."


async def show(request: Request) -> Response:
    """The form, or the way to the issuer."""
    if not console_of(request).settings.login or request.state.session is not None:
        return RedirectResponse("/", 303)
    return login_page(request)


async def enter(request: Request) -> Response:
    """Check the password at the clusters, and open a session. Raises FormError, ClientError."""
    console = console_of(request)
    if not console.settings.login or console.issuer is not None:
        return RedirectResponse("/", 303)
    user, password = field(request, "user"), field(request, "password")
    if not console.sessions.may_try(address_of(request)):
        return login_page(request, TOO_MANY, 429)
    own = {"sasl_plain_username": user, "sasl_plain_password": password}
    with console.sessions.trying(address_of(request)):
        try:
            session = await open_session(request, user, own)
        except AuthenticationFailed:
            return fail(request, user, "The cluster does not accept this user and password.")
    response = see("/")
    # A new id: one that was known before the login is worth nothing afterwards.
    response.headers["set-cookie"] = cookie_line(session.id)
    return response


async def open_session(request: Request, user: str, own: dict[str, Any], tokens: AccessTokens | None = None) -> Session:
    """Check a person's client options at the clusters, and open a session. Raises ClientError."""
    console = console_of(request)
    options = {name: {**_shared(each), **own} for name, each in console.settings.clusters.items()}
    for each in options.values():
        await _check(each)
    clusters = Clusters(options, console.settings.sample_s, console.settings.metrics)
    await clusters.start()
    if request.state.session is not None:
        # Its cookie is replaced: the browser can neither use nor end it any longer.
        await console.sessions.close(request.state.session.id)
    session = await console.sessions.open(user, clusters, tokens)
    console.record_change(request, "login", user)
    return session


def fail(request: Request, user: str, message: str) -> Response:
    """Count and record a failed login."""
    console = console_of(request)
    console.sessions.count_failure(address_of(request))
    console.record_change(request, "login failed", user)
    return login_page(request, message, 403)


def login_page(request: Request, message: str = "", status: int = 200) -> Response:
    """The page of logins."""
    openid = console_of(request).settings.openid
    issuer = None if openid is None else openid.issuer
    return page(request, "login.html", title="Log in", status=status, message=message, issuer=issuer)


def address_of(request: Request) -> str:
    """The address of the browser, or of its proxy."""
    return request.client.host if request.client else ""


async def leave(request: Request) -> Response:
    """End the session."""
    await console_of(request).sessions.close(request.state.visitor)
    return see("/login" if console_of(request).settings.login else "/")


def _shared(options: Mapping[str, Any]) -> dict[str, Any]:
    """Client options of the console without its own credentials."""
    return {name: value for name, value in options.items() if name not in _OWN}


async def _check(options: dict[str, Any]) -> None:
    """Raises AuthenticationFailed, ClientError."""
    limited = {"default_api_timeout_ms": REQUEST_MS, "request_timeout_ms": REQUEST_MS, **options}
    async with Admin(**limited) as admin:
        await admin.cluster.connections.any()
