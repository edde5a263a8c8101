"""The failure of an authentication."""

from __future__ import annotations


class SaslError(Exception):
    """The peer's message is not one of the mechanism, or proves nothing. The text never contains a secret."""


class ReportedSaslError(SaslError):
    """The end of a login whose failure was reported at an earlier message of the peer."""
