"""The failure of an authentication."""

from __future__ import annotations


class SaslError(Exception):
    """The peer's message is not one of the mechanism, or proves nothing. The text never contains a secret."""
