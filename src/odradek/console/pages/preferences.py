"""What a browser chooses for itself: first page, theme, favourite topics."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from odradek.console.forms import FormError, field, see
from odradek.console.rendering import THEME_COOKIE, THEMES, console_of, link, page

FAVOURITES_COOKIE: Final = "odradek_favourites"
MAX_COOKIE: Final = 3_500
"""Bytes of favourites; browsers keep at most 4,096 of a cookie."""
_YEAR_S: Final = 365 * 24 * 3600


async def home(request: Request) -> Response:
    """The only cluster, or a choice of clusters."""
    clusters = console_of(request).clusters_of(request)
    if len(clusters) == 1:
        return RedirectResponse(link(f"/c/{next(iter(clusters)).name}"), 303)
    return page(request, "clusters.html", title="Clusters")


async def set_theme(request: Request) -> Response:
    """Keep the theme in a cookie. Raises FormError."""
    theme = field(request, "theme")
    if theme not in THEMES:
        raise FormError(f"theme: {', '.join(THEMES)} expected.")
    response = see(_back(request))
    response.set_cookie(THEME_COOKIE, theme, max_age=_YEAR_S, httponly=True, samesite="strict")
    return response


async def set_favourite(request: Request) -> Response:
    """Add a topic to the favourites or remove it. Raises FormError."""
    view = console_of(request).view_of(request)
    topic = field(request, "topic")
    everything = _read(request)
    names = everything.setdefault(view.name, [])
    if topic in names:
        names.remove(topic)
    else:
        names.append(topic)
    text = quote(json.dumps(everything, separators=(",", ":")))
    if len(text) > MAX_COOKIE:
        raise FormError("A browser cannot keep more favourites: remove some first.")
    response = see(_back(request))
    response.set_cookie(FAVOURITES_COOKIE, text, max_age=_YEAR_S, httponly=True, samesite="strict")
    return response


def favourites_of(request: Request, cluster: str) -> frozenset[str]:
    """Names of favourite topics."""
    return frozenset(_read(request).get(cluster, ()))


def _read(request: Request) -> dict[str, list[str]]:
    """Favourites by cluster; a cookie that was changed is ignored."""
    try:
        found = json.loads(unquote(request.cookies.get(FAVOURITES_COOKIE, "{}")))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        name: [each for each in topics if isinstance(each, str)]
        for name, topics in found.items()
        if isinstance(topics, list)
    }


def _back(request: Request) -> str:
    """The page with the form: the path of the referrer, never another site."""
    parts = urlsplit(request.headers.get("referer", ""))
    if not parts.path.startswith("/") or parts.path.startswith("//") or "\\" in parts.path:
        return "/"
    return parts.path + (f"?{parts.query}" if parts.query else "")
