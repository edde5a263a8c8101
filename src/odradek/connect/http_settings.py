"""Checks of settings that the HTTP sink and the HTTP source have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

URL: Final = "http.url"
_HEADERS: Final = ("http.headers.authorization", "http.headers.content.type")
_HEADER: Final = re.compile(r"[\x20-\x7e\x80-\xff]*")
"""What the value of a header may have: Latin-1 without control characters."""
_PATH: Final = re.compile(r"[\x21-\x7e]*")


def check_http(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with the URL and the headers. No line has a value, which may be a secret."""
    errors = {}
    if not _is_url(values[URL]):
        line = f"{URL}: http://HOST/… or https://HOST/… expected, without a user, and in ASCII without spaces"
        errors[URL] = [line]
    for name in _HEADERS:
        if not _HEADER.fullmatch(values.get(name, "")):
            errors[name] = [f"{name}: one line of Latin-1 expected"]
    return errors


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.username is None
            and (parts.port is None or parts.port > 0)
            and _PATH.fullmatch(parts.path + parts.query) is not None
        )
    except ValueError:
        return False
