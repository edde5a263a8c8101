"""Templates become pages: everything that comes from a cluster is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from odradek.console.clusters import ClusterView
from odradek.console.paging import SIZES
from odradek.version import __version__

if TYPE_CHECKING:
    from odradek.console.console import Console

THEME_COOKIE: Final = "odradek_theme"
THEMES: Final = ("auto", "light", "dark")
DASH: Final = "–"


def figure(number: float | None, digits: int = 0) -> str:
    """A number with thin spaces between thousands; a dash for None."""
    return DASH if number is None else f"{number:,.{digits}f}".replace(",", "\u202f")


def size(number: float | None) -> str:
    """Bytes with a binary unit; a dash for None."""
    if number is None:
        return DASH
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1024 or unit == "TiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError


def rate(number: float | None) -> str:
    """A number per second; a dash for None."""
    return DASH if number is None else f"{figure(number, 1 if 0 < abs(number) < 10 else 0)}/s"


def size_rate(number: float | None) -> str:
    """Bytes per second; a dash for None."""
    return DASH if number is None else f"{size(number)}/s"


def moment(ms: int | None) -> str:
    """A time in ms since the epoch as UTC with milliseconds; a dash for none."""
    if ms is None or ms < 0:
        return DASH
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}Z"
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def span(seconds: float | None) -> str:
    """A length of time in its two largest units; a dash for None."""
    if seconds is None:
        return DASH
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    for unit, name, small, small_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // small
            return f"{whole // unit} {name}" + (f" {rest} {small_name}" if rest else "")
    raise AssertionError


def link(path: str, /, **query: object) -> str:
    """A path of the console with a query; names in it are quoted. None leaves a field out."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    return quote(path, safe="/") + (f"?{urlencode(given)}" if given else "")


@cache
def environment() -> Environment:
    """The templates with their filters."""
    made = Environment(
        loader=PackageLoader("odradek.console"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(figure=figure, size=size, rate=rate, size_rate=size_rate, moment=moment, span=span)
    made.globals.update(link=link, version=__version__, row_counts=SIZES)
    return made


def console_of(request: Request) -> Console:
    """The console that serves a request."""
    found: Console = request.app.state.console
    return found


def theme_of(request: Request) -> str:
    """The theme that the browser has chosen."""
    chosen = request.cookies.get(THEME_COOKIE, "auto")
    return chosen if chosen in THEMES else "auto"


def page(
    request: Request,
    template: str,
    *,
    title: str,
    view: ClusterView | None = None,
    status: int = 200,
    **context: Any,
) -> HTMLResponse:
    """A page from a template. Templates find the cluster as `view`, and what all pages need."""
    return HTMLResponse(fragment(request, template, view=view, title=title, **context), status)


def fragment(request: Request, template: str, *, view: ClusterView | None = None, **context: Any) -> str:
    """A rendered template."""
    console = console_of(request)
    session = request.state.session
    common: Mapping[str, Any] = {
        "view": view,
        "at": None if view is None else f"/c/{view.name}",
        "path": request.url.path,
        "query": dict(request.query_params),
        "clusters": [each.name for each in console.clusters_of(request)],
        "csrf": console.sessions.token(request.state.visitor),
        "allow_changes": console.settings.allow_changes,
        "has_login": console.settings.login,
        "user": None if session is None else session.user,
        "theme": theme_of(request),
    }
    return environment().get_template(template).render({**common, **context})
