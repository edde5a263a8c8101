"""Login with a user of the cluster: the console then acts as that user, so that the cluster's ACLs apply."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from odradek.client.admin import Admin
from odradek.client.errors import AuthenticationFailed
from odradek.console.clusters import REQUEST_MS, Clusters
from odradek.console.forms import field, see
from odradek.console.guard import cookie_line
from odradek.console.rendering import console_of, page

_OWN: Final = (
    "sasl_jaas_config", "sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider",
    "sasl_oauthbearer_client_credentials_client_id", "sasl_oauthbearer_client_credentials_client_secret",
)  # fmt: skip
"""Credentials of the console itself, which a person's client must not have."""


async def show(request: Request) -> Response:
    """The form."""
    if not console_of(request).settings.login or request.state.session is not None:
        return RedirectResponse("/", 303)
    return page(request, "login.html", title="Log in", message="")


async def enter(request: Request) -> Response:
    """Check the password at the clusters, and open a session. Raises FormError, ClientError."""
    console = console_of(request)
    if not console.settings.login:
        return RedirectResponse("/", 303)
    address = request.client.host if request.client else ""
    user, password = field(request, "user"), field(request, "password")
    if not console.sessions.may_try(address):
        message = "Too many logins failed: wait for a minute."
        return page(request, "login.html", title="Log in", status=429, message=message)
    options = {name: options_of(each, user, password) for name, each in console.settings.clusters.items()}
    try:
        for each in options.values():
            await _check(each)
    except AuthenticationFailed:
        console.sessions.count_failure(address)
        console.record_change(request, "login failed", user)
        message = "The cluster does not accept this user and password."
        return page(request, "login.html", title="Log in", status=403, message=message)
    clusters = Clusters(options, console.settings.sample_s, console.settings.metrics)
    await clusters.start()
    session = await console.sessions.open(user, clusters)
    console.record_change(request, "login", user)
    response = see("/")
    # A new id: one that was known before the login is worth nothing afterwards.
    response.headers["set-cookie"] = cookie_line(session.id)
    return response


async def leave(request: Request) -> Response:
    """End the session."""
    await console_of(request).sessions.close(request.state.visitor)
    return see("/login" if console_of(request).settings.login else "/")


def options_of(shared: Any, user: str, password: str) -> dict[str, Any]:
    """Client options of a person: those of the console without its own credentials."""
    kept = {name: value for name, value in shared.items() if name not in _OWN}
    return {**kept, "sasl_plain_username": user, "sasl_plain_password": password}


async def _check(options: dict[str, Any]) -> None:
    """Raises AuthenticationFailed, ClientError."""
    limited = {"default_api_timeout_ms": REQUEST_MS, "request_timeout_ms": REQUEST_MS, **options}
    async with Admin(**limited) as admin:
        await admin.cluster.connections.any()
