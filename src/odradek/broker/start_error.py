"""Why a node cannot start."""

from __future__ import annotations


class StartError(Exception):
    """The node cannot start. `misconfigured` separates a mistake of the user from a failure of the machine."""

    def __init__(self, text: str, *, misconfigured: bool = True) -> None:
        self.misconfigured = misconfigured
        super().__init__(text)
