"""The metadata log for a broker whose process is a controller, too (`process.roles=broker,controller`).

The broker reads the images of its own controller; its requests go to the active one, over the network even if that is
in this process. Source: Kafka's `SharedServer`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from odradek.broker.kraft.controllers import Controllers
from odradek.broker.kraft.followed_metadata import OnImage
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.broker.task_failures import logs_failure
from odradek.kraft.metadata_observer import LogEnd
from odradek.metadata.features import is_on_records
from odradek.metadata.image import ClusterImage
from odradek.ports.store import StoreError

logger = logging.getLogger("odradek.broker.quorum")
_log_failure = logs_failure(logger, "following the metadata log of this process failed")

_REPORT_SECONDS: Final = 10.0
_FAILED: Final = "the controller in this process has failed"


class LocalMetadata:
    """Implements `FollowedMetadata` on a controller that has started; `close` stops it."""

    __slots__ = ("_changed", "_controllers", "_node", "_task")

    def __init__(self, node: ControllerNode, controllers: Controllers) -> None:
        """`controllers` are the broker's connections."""
        self._node = node
        self._controllers = controllers
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        node.on_change(self._note)
        self._note()

    @property
    def image(self) -> ClusterImage:
        """See `FollowedMetadata`."""
        return self._node.parts.metadata.image

    @property
    def epoch(self) -> int:
        """See `FollowedMetadata`."""
        return self._node.parts.replica.leader.epoch

    @property
    def log_end(self) -> LogEnd:
        """See `FollowedMetadata`."""
        return self._node.parts.replica.machine.quorum.log.end

    @property
    def problem(self) -> str:
        """See `FollowedMetadata`."""
        return "the quorum has no leader" if self._node.parts.replica.known_high_watermark is None else ""

    async def wait_until_caught_up(self, _at_most_seconds: float) -> bool:
        """See `FollowedMetadata`; it waits until a majority of controllers has started, however long that takes.

        Raises StoreError if the controller in this process fails meanwhile.
        """
        while not self._is_caught_up():
            if self._node.has_failed.is_set():
                raise StoreError(_FAILED)
            self._changed.clear()
            try:
                async with asyncio.timeout(_REPORT_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                logger.warning("waiting for a majority of controllers: %s", self.problem or "nothing is committed")
        return True

    def _is_caught_up(self) -> bool:
        parts = self._node.parts
        high_watermark = parts.replica.known_high_watermark
        is_known = high_watermark is not None and parts.metadata.end_offset >= high_watermark
        return is_known and is_on_records(self.image)

    def follow(self, follower: OnImage, failed: Callable[[BaseException], None]) -> None:
        """See `FollowedMetadata`."""
        self._task = asyncio.get_running_loop().create_task(self._pass_on(follower))
        self._task.add_done_callback(_log_failure)
        self._task.add_done_callback(lambda task: self._ended(task, failed))

    async def close(self) -> None:
        """See `FollowedMetadata`."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        await self._node.stop()

    def _note(self) -> None:
        parts = self._node.parts
        self._controllers.note_active(parts.addresses.get(parts.replica.leader.leader_id))
        self._changed.set()

    @staticmethod
    def _ended(task: asyncio.Task[None], failed: Callable[[BaseException], None]) -> None:
        """The broker must not act on what it knew before, whatever has ended the task."""
        if not task.cancelled():
            failed(task.exception() or StoreError(_FAILED))

    async def _pass_on(self, follower: OnImage) -> None:
        metadata, passed = self._node.parts.metadata, -1
        while not self._node.has_failed.is_set():
            self._changed.clear()
            if metadata.end_offset != passed:
                passed = metadata.end_offset
                await follower(metadata.image, passed)
                continue
            await self._changed.wait()
