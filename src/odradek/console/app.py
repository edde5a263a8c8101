"""The ASGI application: routes, errors, static files."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from odradek.client.errors import AuthenticationFailed, ClientError
from odradek.console.console import Console
from odradek.console.guard import Guard
from odradek.console.pages import (
    access,
    access_changes,
    broker,
    dead_letters,
    groups,
    login,
    messages,
    metrics,
    openid_login,
    overview,
    preferences,
    produce,
    queries,
    reassignment,
    topic,
    topic_changes,
    topics,
    transactions,
)
from odradek.console.rendering import page
from odradek.console.settings import CALLBACK, ConsoleSettings
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import KafkaError

Handler = Callable[[Request], Awaitable[Response]]

READS: Final[tuple[tuple[str, Handler], ...]] = (
    ("/", preferences.home),
    ("/c/{cluster}", overview.show),
    ("/c/{cluster}/brokers/{broker:int}", broker.show),
    ("/c/{cluster}/topics", topics.show),
    ("/c/{cluster}/topics/{topic}", topic.show),
    ("/c/{cluster}/topics/{topic}/settings", topic.show_settings),
    ("/c/{cluster}/topics/{topic}/groups", topic.show_groups),
    ("/c/{cluster}/topics/{topic}/messages", messages.show),
    ("/c/{cluster}/topics/{topic}/messages/stream", messages.stream),
    ("/c/{cluster}/topics/{topic}/messages/download", messages.download),
    ("/c/{cluster}/topics/{topic}/produce", produce.show),
    ("/c/{cluster}/groups", groups.show_all),
    ("/c/{cluster}/group", groups.show),
    ("/c/{cluster}/group/preview", groups.preview),
    ("/c/{cluster}/transactions", transactions.show),
    ("/c/{cluster}/reassignment", reassignment.show),
    ("/c/{cluster}/reassignment/plan", reassignment.plan),
    ("/c/{cluster}/topics/{topic}/replicas", reassignment.plan_factor),
    ("/c/{cluster}/access", access.show),
    ("/c/{cluster}/metrics", metrics.show),
    ("/c/{cluster}/topics/{topic}/metrics", metrics.show_topic),
    ("/c/{cluster}/clients", metrics.show_clients),
    ("/c/{cluster}/queries", queries.show),
    ("/c/{cluster}/dead-letters", dead_letters.show_all),
    ("/c/{cluster}/dead-letters/{topic}", dead_letters.show),
    ("/c/{cluster}/dead-letters/{topic}/preview", dead_letters.preview),
    ("/login", login.show),
    ("/login/openid", openid_login.begin),
    (CALLBACK, openid_login.finish),
)
"""Pages by path."""

OWN: Final[tuple[tuple[str, Handler], ...]] = (
    ("/login", login.enter),
    ("/logout", login.leave),
    ("/theme", preferences.set_theme),
    ("/c/{cluster}/favourites", preferences.set_favourite),
)
"""Forms that change nothing but what this browser sees."""

CHANGES: Final[tuple[tuple[str, Handler], ...]] = (
    ("/c/{cluster}/create-topic", topic_changes.create),
    ("/c/{cluster}/topics/{topic}/grow", topic_changes.grow),
    ("/c/{cluster}/topics/{topic}/alter", topic_changes.alter),
    ("/c/{cluster}/topics/{topic}/empty", topic_changes.empty),
    ("/c/{cluster}/topics/{topic}/delete", topic_changes.delete),
    ("/c/{cluster}/topics/{topic}/produce", produce.send),
    ("/c/{cluster}/group/reset", groups.reset),
    ("/c/{cluster}/group/delete", groups.delete),
    ("/c/{cluster}/abort-transaction", transactions.abort),
    ("/c/{cluster}/reassignment/execute", reassignment.execute),
    ("/c/{cluster}/reassignment/cancel", reassignment.cancel),
    ("/c/{cluster}/reassignment/unthrottle", reassignment.unthrottle),
    ("/c/{cluster}/dead-letters/{topic}/redrive", dead_letters.redrive),
    ("/c/{cluster}/acls/create", access_changes.create_acl),
    ("/c/{cluster}/acls/delete", access_changes.delete_acl),
    ("/c/{cluster}/users/set", access_changes.set_password),
    ("/c/{cluster}/users/delete", access_changes.delete_user),
    ("/c/{cluster}/quotas/set", access_changes.set_quota),
    ("/c/{cluster}/quotas/delete", access_changes.delete_quota),
)
"""Forms that change a cluster: rejected without `--allow-changes`."""


def build(settings: ConsoleSettings) -> Starlette:
    """The application of a console. Raises OSError if the audit log cannot be opened."""
    console = Console(settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with console.running():
            yield

    app = Starlette(
        routes=_routes(),
        middleware=[Middleware(Guard, settings=settings, sessions=console.sessions)],
        exception_handlers={
            HTTPException: _show_rejection,
            KafkaError: _show_failure,
            ClientError: _show_failure,
            CorruptRecords: _show_failure,
        },
        lifespan=lifespan,
    )
    app.state.console = console
    return app


def _routes() -> list[BaseRoute]:
    routes: list[BaseRoute] = [Route(path, handler, methods=["GET"]) for path, handler in READS]
    routes += [Route(path, handler, methods=["POST"]) for path, handler in OWN]
    routes += [Route(path, _change(handler), methods=["POST"]) for path, handler in CHANGES]
    routes.append(Route("/healthy", _healthy, methods=["GET"]))
    routes.append(Mount("/static", _CachedFiles(directory=Path(__file__).parent / "static")))
    return routes


def _change(handler: Handler) -> Handler:
    """A handler that runs only where changes are allowed."""

    @functools.wraps(handler)
    async def checked(request: Request) -> Response:
        if not request.app.state.console.settings.allow_changes:
            raise HTTPException(403, "This console only reads: start it with --allow-changes.")
        return await handler(request)

    return checked


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _show_rejection(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = HTTPStatus(error.status_code).phrase
    return page(request, "error.html", title=title, status=error.status_code, message=str(error.detail))


async def _show_failure(request: Request, error: Exception) -> Response:
    """The cluster rejected the request (400), or could not be asked (502)."""
    if isinstance(error, AuthenticationFailed) and request.state.session is not None:
        # The password was changed, or the user was removed.
        await request.app.state.console.sessions.close(request.state.session.id)
        return RedirectResponse("/login", 303)
    status = 400 if isinstance(error, KafkaError) else 502
    title = "The cluster rejected the request" if status == 400 else "The cluster cannot be asked"
    message = str(error) or type(error).__name__
    return page(request, "error.html", title=title, status=status, message=message)


class _CachedFiles(StaticFiles):
    """Files that browsers may keep for an hour; their names do not change between versions."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file."""
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "public, max-age=3600"
        return response
