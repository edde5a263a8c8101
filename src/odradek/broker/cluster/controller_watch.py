"""Watching the controller's process from the other brokers, so that its death is noticed before its session ends.

The same signs count as for the controller watching brokers: a connection that broke and cannot be made again since
its address rejects connections. A store that sees deaths by itself is simply quicker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek.broker.cluster.controller_channel import Connect, ControllerChannel, Differences
from odradek.broker.task_failures import logs_failure
from odradek.controller.notices import PartitionNews
from odradek.metadata.image import Broker, ClusterImage
from odradek.ports.store import StoreError

logger = logging.getLogger(__name__)
_log_failure = logs_failure(logger, "the watch of the controller failed")


class ControllerWatch:
    """Subscribe `follow` to this broker's images."""

    __slots__ = ("_closed", "_connect", "_died", "_line", "_node_id")

    def __init__(self, node_id: int, connect: Connect, died: Callable[[Broker], Awaitable[None]]) -> None:
        """`died` is called with the registration of a controller whose process is gone; it may raise StoreError."""
        self._node_id = node_id
        self._connect = connect
        self._died = died
        self._line: ControllerChannel | None = None
        self._closed = False

    def follow(self, _old: ClusterImage, new: ClusterImage) -> None:
        """Watch the broker that is the controller now, unless it is this broker."""
        controller = None if new.controller_id == self._node_id else new.brokers.get(new.controller_id)
        line = self._line
        if line is not None and controller is not None and line.broker[:2] == controller[:2]:
            return  # the same registration
        self._end_line()
        if controller is not None and not self._closed:
            self._line = ControllerChannel(controller, self._connect, self, Differences())
            self._line.watch()

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        self._end_line()

    def _end_line(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    # --- what the line reports ---

    def broker_died(self, broker: Broker) -> None:
        """Implements ChannelEvents."""
        asyncio.get_running_loop().create_task(self._report(broker)).add_done_callback(_log_failure)

    async def _report(self, broker: Broker) -> None:
        try:
            await self._died(broker)
        except StoreError as error:
            # Its session ends in any case.
            logger.warning(
                "cannot end the election of the dead controller, broker %d: %s; its session expires later",
                broker.id,
                error,
            )

    # These follow from answers, and nothing is asked over this line.

    def image_acknowledged(self, _broker: Broker, _version: int) -> None:
        """Implements ChannelEvents."""
        return

    def registration_ended(self, _broker: Broker) -> None:
        """Implements ChannelEvents."""
        return

    def deposed(self) -> None:
        """Implements ChannelEvents."""
        return

    def replicas_answered(self, _broker: Broker, _offline: list[PartitionNews], _online: list[PartitionNews]) -> None:
        """Implements ChannelEvents."""
        return
