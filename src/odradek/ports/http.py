"""HTTP requests for keys and tokens: small answers, no redirects. They block: run them in a thread."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from odradek.ports.hosts import is_loopback

MAX_BYTES: Final = 1 << 20
"""Largest answer."""


class FetchError(Exception):
    """There is no answer; the text names the URL without its query."""

    status: int | None = None
    """The HTTP status of an answer that is not 2xx."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An answer that leads elsewhere is an error: the other place was not allowed."""

    def redirect_request(self, *_: Any) -> None:
        return None


def check_url(url: str, allowed: tuple[str, ...] | list[str] = ()) -> None:
    """Raise FetchError unless the URL is in `allowed`; without these, for other than file, https and loopback http."""
    parts = urllib.parse.urlsplit(url)
    if allowed:
        if url not in allowed:
            raise FetchError(f"{shown(url)} is not an allowed URL")
    elif parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise FetchError(f"{shown(url)}: https expected, or http on this machine")
    if parts.scheme not in ("file", "http", "https"):
        raise FetchError(f"{shown(url)}: https or file expected")
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise FetchError(f"{shown(url)}: file:///PATH expected")


def fetch(url: str, timeout: float, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """The body of an answer to GET, or to POST with `data`, within some seconds for each step. Raises FetchError."""
    parts = urllib.parse.urlsplit(url)
    try:
        if parts.scheme == "file":
            with open(urllib.parse.unquote(parts.path), "rb") as file:
                body = file.read(MAX_BYTES + 1)
        else:
            opener = urllib.request.build_opener(_NoRedirects())
            request = urllib.request.Request(url, data, dict(headers or {}))  # noqa: S310 - `check_url` was called
            with opener.open(request, timeout=timeout) as answer:
                body = answer.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        error.close()
        failure = FetchError(f"{shown(url)}: HTTP status {error.code}")
        failure.status = error.code
        raise failure from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise FetchError(f"{shown(url)}: {reason}") from error
    if len(body) > MAX_BYTES:
        raise FetchError(f"{shown(url)}: more than {MAX_BYTES} bytes")
    return bytes(body)


def shown(url: str) -> str:
    """A URL without user, password and query, which may be secrets."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
