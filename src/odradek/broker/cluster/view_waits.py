"""Waiting for an image of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from odradek.broker.cluster.cluster_view import OnImage
from odradek.metadata.image import ClusterImage


class Watched(Protocol):
    """The part of a `ClusterView` that is used here."""

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        ...

    def subscribe(self, on_image: OnImage, /) -> Callable[[], None]:
        """See `ClusterView`."""
        ...


async def wait_until(view: Watched, is_met: Callable[[ClusterImage], bool], at_most_seconds: float) -> bool:
    """Wait until the broker's image meets a condition; whether it does within that time."""
    if is_met(view.image):
        return True
    met = asyncio.Event()

    def look(_old: ClusterImage, new: ClusterImage) -> None:
        if is_met(new):
            met.set()

    unsubscribe = view.subscribe(look)
    try:
        async with asyncio.timeout(at_most_seconds):
            await met.wait()
    except TimeoutError:
        return False
    finally:
        unsubscribe()
    return True
