"""The checks of every request: Host header, cookie, login, token of forms; and the headers of every response."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from odradek.console.sessions import COOKIE, Sessions
from odradek.console.settings import ConsoleSettings

MAX_FORM_BYTES: Final = 2 * 1024 * 1024
MAX_FIELDS: Final = 10_000
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
FAILURE: Final = "The console failed. Its log says why.\n"
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
RENEWED: Final = "live"
"""Id of the part that a page renews by itself, which htmx names in its requests."""
OPEN_PATHS: Final = ("/static/", "/login", "/healthy")
"""Beginnings of paths that need no login."""

Form = list[tuple[str, str]]
"""Fields of a form in order; names may repeat."""


class Guard:
    """ASGI middleware. Handlers find `visitor`, `session` and `form` in the request's state."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings, sessions: Sessions) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        visitor = _cookie(headers.get("cookie", ""))
        is_new = not visitor
        if is_new:
            visitor = self._sessions.new_visitor()

        has_started = False

        async def send_guarded(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found[name] = value
                if "cache-control" not in found:
                    found["cache-control"] = "no-store"
                if is_new and not any(COOKIE in each for each in found.getlist("set-cookie")):
                    found.append("set-cookie", cookie_line(visitor))
                if self._settings.is_https:
                    message["headers"] = [_secured(*each) for each in message["headers"]]
            await send(message)

        state = scope.setdefault("state", {})
        state["visitor"] = visitor
        # A page that renews itself is no person: it must not keep a login alive.
        is_use = headers.get("hx-trigger") != RENEWED
        state["session"] = session = self._sessions.find(visitor, is_use=is_use)
        state["form"] = []
        rejection = self._reject_place(scope, headers)
        if rejection is None and self._settings.login and session is None and not scope["path"].startswith(OPEN_PATHS):
            rejection = _to_login(headers)
        if rejection is None and scope["method"] not in SAFE_METHODS:
            rejection = await self._read_form(state, visitor, headers, receive)
        try:
            await (self._app if rejection is None else rejection)(scope, receive, send_guarded)
        except Exception:
            # Starlette answers failures outside of this middleware, without these headers: answer first.
            if not has_started:
                await PlainTextResponse(FAILURE, 500)(scope, receive, send_guarded)
            raise

    def _reject_place(self, scope: Scope, headers: Headers) -> Response | None:
        """A response for a request that another site may have made."""
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._settings.accepts_host(host):
            return PlainTextResponse("This console does not serve that host name (--allowed-host adds names).", 421)
        if scope["method"] in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.strip().lower():
            return PlainTextResponse("A form of another site was rejected.", 403)
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return PlainTextResponse("A form of another site was rejected.", 403)
        return None

    async def _read_form(
        self, state: dict[str, object], visitor: str, headers: Headers, receive: Receive
    ) -> Response | None:
        """Read a form into the state; a response if it is too large or lacks the token."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in ("application/x-www-form-urlencoded", ""):
            return PlainTextResponse("A form in application/x-www-form-urlencoded is expected.", 415)
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return PlainTextResponse("The form is incomplete.", 400)
            body += message.get("body", b"")
            if len(body) > MAX_FORM_BYTES:
                return PlainTextResponse(f"The form has more than {MAX_FORM_BYTES} bytes.", 413)
            if not message.get("more_body"):
                break
        try:
            form = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
        except ValueError:
            return PlainTextResponse("The form cannot be read.", 400)
        token = headers.get("x-csrf-token") or next((value for name, value in form if name == "csrf"), "")
        if not self._sessions.is_token(visitor, token):
            return PlainTextResponse("The form has expired: load its page again.", 403)
        state["form"] = [(name, value) for name, value in form if name != "csrf"]
        return None


def _to_login(headers: Headers) -> Response:
    """Send a browser to the login; a part of a page is not replaced by it, but the complete page."""
    if "hx-request" in headers:
        return Response(status_code=401, headers={"hx-redirect": "/login"})
    return RedirectResponse("/login", 303)


def cookie_line(visitor: str) -> str:
    """The Set-Cookie header of a browser's id."""
    return f"{COOKIE}={visitor}; Path=/; HttpOnly; SameSite=Strict"


def _secured(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A header, in which a browser returns each cookie over https only."""
    return name, value + b"; Secure" if name == b"set-cookie" else value


def _cookie(header: str) -> str:
    """The browser's id; empty if there is none of the right form."""
    # Not http.cookies: it drops all cookies behind one that it cannot read, and programs on one host share cookies.
    found = cookie_parser(header).get(COOKIE, "")
    return found if Sessions.is_visitor(found) else ""
