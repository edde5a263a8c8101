"""Removes secrets from text and settings before they leave the machine. Pure."""

from __future__ import annotations

import re
from typing import Final

REDACTED: Final = "[redacted]"
_NAME: Final = (
    r"password|passwd|passphrase|secret|token|credential|api[._-]?key|jaas|private[._-]?key|ssl\.keystore\.key"
)
_SECRET_NAME: Final = re.compile(_NAME, re.IGNORECASE)
_ASSIGNMENT: Final = re.compile(
    rf"""((?:{_NAME})[\w.\-]*\\*["']?\s*[=:]\s*)"""
    r"""(\\+".*?\\+"|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s,;}\]]+)""",
    re.IGNORECASE,
)
_OTHERS: Final = (
    (re.compile(r"-----BEGIN [^-]*PRIVATE KEY-----.*?(?:-----END [^-]*PRIVATE KEY-----|\Z)", re.DOTALL), REDACTED),
    (re.compile(r"\A[A-Za-z0-9+/=\s]*-----END [^-]*PRIVATE KEY-----"), REDACTED),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=\-]+", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(r"\beyJ[\w\-]+\.[\w\-]+\.[\w\-]*"), REDACTED),
    (re.compile(r"(\w+://[^\s/:@]*:)[^\s/@]+@"), rf"\1{REDACTED}@"),
    (re.compile(rf"(--[\w.\-]*(?:{_NAME})[\w.\-]*\s+)\S+", re.IGNORECASE), rf"\1{REDACTED}"),
)
"""Private keys (also one whose beginning was cut off), bearer tokens, JWTs, passwords in URLs and of command lines."""


def redact(text: str) -> str:
    """The text without private keys, bearer tokens, passwords in URLs, and values whose name says they are secret."""
    for pattern, replacement in _OTHERS:
        text = pattern.sub(replacement, text)
    return _ASSIGNMENT.sub(rf"\1{REDACTED}", text)


def redact_setting(name: str, value: str | None) -> str | None:
    """A setting's value, without the secrets that it is or contains."""
    if value is None:
        return None
    return REDACTED if value and _SECRET_NAME.search(name) else redact(value)
