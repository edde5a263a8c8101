"""Requests and answers of the HTTP listener, free of I/O."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


class HttpRequest(NamedTuple):
    """A GET or HEAD request."""

    path: str
    query: Mapping[str, Sequence[str]]
    """Parameters behind the question mark; each may come several times."""
    headers: Mapping[str, str]
    """By lower-case name."""
    peer_host: str = ""
    """Address of the peer; empty if it is unknown."""


class HttpResponse(NamedTuple):
    """An answer with its whole body."""

    status: int
    content_type: str
    body: Sequence[bytes]


Answer = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""What serves one path."""


def text_response(status: int, text: str) -> HttpResponse:
    """A line of plain text."""
    return HttpResponse(status, TEXT, (f"{text}\n".encode(),))


def json_response(status: int, value: Any) -> HttpResponse:
    """A JSON document."""
    return HttpResponse(status, JSON, (json.dumps(value, indent=2).encode() + b"\n",))


def parsed_target(target: str, headers: Mapping[str, str], peer_host: str = "") -> HttpRequest:
    """The request for a target such as `/metrics?name=value`. Raises ValueError for one that cannot be parsed."""
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True, max_num_fields=16)
    return HttpRequest(parts.path, query, headers, peer_host)
