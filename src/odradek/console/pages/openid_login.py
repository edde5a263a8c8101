"""Login at an OpenID provider: the way there, and back with a code."""

from __future__ import annotations

import logging
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from odradek.client.errors import AuthenticationFailed
from odradek.console.guard import cookie_line
from odradek.console.openid import ATTEMPT_S, AccessTokens, Issuer, IssuerFailed, LoginRejected
from odradek.console.pages.login import TOO_MANY, address_of, fail, login_page, open_session
from odradek.console.rendering import console_of, page

logger = logging.getLogger(__name__)

ATTEMPT_COOKIE: Final = "odradek_openid"


async def begin(request: Request) -> Response:
    """Send the browser to the issuer."""
    console = console_of(request)
    issuer = console.issuer
    if issuer is None or request.state.session is not None:
        return RedirectResponse("/", 303)
    attempt = console.attempts.begin()
    try:
        url = await issuer.authorization_url(attempt, _redirect_uri(request))
    except IssuerFailed as error:
        return _fail_issuer(request, error)
    response = RedirectResponse(url, 303)
    # Lax: the browser comes back from another site, and must bring this cookie then.
    response.set_cookie(ATTEMPT_COOKIE, attempt.cookie, max_age=ATTEMPT_S, path="/login", httponly=True, samesite="lax")
    return response


async def finish(request: Request) -> Response:
    """Exchange the code for tokens, check both at the clusters, and open a session. Raises ClientError."""
    console = console_of(request)
    issuer = console.issuer
    if issuer is None:
        return RedirectResponse("/", 303)
    if not console.sessions.may_try(address_of(request)):
        return login_page(request, TOO_MANY, 429)
    with console.sessions.trying(address_of(request)):
        response = await _finish(request, issuer)
    response.delete_cookie(ATTEMPT_COOKIE, path="/login", httponly=True, samesite="lax")
    return response


async def _finish(request: Request, issuer: Issuer) -> Response:
    console = console_of(request)
    answer = dict(request.query_params)
    user = ""
    try:
        attempt = console.attempts.find(request.cookies.get(ATTEMPT_COOKIE, ""), answer.get("state", ""))
        user, tokens = await issuer.redeem(answer, attempt, _redirect_uri(request))
        provider = AccessTokens(issuer, tokens)
        session = await open_session(request, user, {"sasl_oauth_token_provider": provider}, provider)
    except LoginRejected as error:
        logger.info("a login was rejected: %s", error)
        return fail(request, user, str(error))
    except AuthenticationFailed:
        return fail(request, user, "The cluster does not accept the access token of this login.")
    except IssuerFailed as error:
        return _fail_issuer(request, error)
    # A page instead of a redirect: a browser sends the strict cookie only where this site leads it.
    response = page(request, "logged_in.html", title="Logged in")
    response.headers["set-cookie"] = cookie_line(session.id)
    return response


def _redirect_uri(request: Request) -> str:
    return console_of(request).settings.redirect_uri(request.headers["host"])


def _fail_issuer(request: Request, error: IssuerFailed) -> Response:
    logger.warning("could not ask the issuer of logins: %s", error)
    return login_page(request, "The issuer of logins cannot be asked. The console's log says why.", 502)
