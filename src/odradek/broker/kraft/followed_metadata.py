"""The metadata log as a broker of a KRaft cluster follows it: over the network, or in its own process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from odradek.kraft.metadata_observer import LogEnd
from odradek.metadata.image import ClusterImage

OnImage = Callable[[ClusterImage, int], Awaitable[None]]
"""Takes an image and the offset after its last record."""


class FollowedMetadata(Protocol):
    """`wait_until_caught_up`, then `follow`; `close` ends it."""

    @property
    def image(self) -> ClusterImage:
        """The image after all committed records that this broker has."""
        ...

    @property
    def epoch(self) -> int:
        """The newest epoch of the quorum that this broker knows."""
        ...

    @property
    def log_end(self) -> LogEnd:
        """The end of the log as this broker has it, committed or not."""
        ...

    @property
    def problem(self) -> str:
        """Why the log cannot be followed at the moment; empty if it can."""
        ...

    async def wait_until_caught_up(self, at_most_seconds: float) -> bool:
        """Wait until the image has all that was committed when a leader first answered; whether it has.

        Raises StoreError if the log can be followed no longer.
        """
        ...

    def follow(self, follower: OnImage, failed: Callable[[BaseException], None]) -> None:
        """Pass each further image on; `failed` is called once if the log can be followed no longer."""
        ...

    async def close(self) -> None:
        """Follow no further."""
        ...
