"""The controller asks each other broker for a sign of life: a broker may reach it that it cannot reach itself.

A broker whose incoming connections alone are cut asks for leases as before, and its followers cannot copy. The question
has a connection of its own, so that it does not wait for a long control request, and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from odradek.broker.cluster.controller_channel import Connect
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.task_failures import logs_failure
from odradek.client.errors import ClientError
from odradek.metadata.image import Broker, ClusterImage
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

logger = logging.getLogger(__name__)
_log_failure = logs_failure(logger, "asking a broker for a sign of life failed")

_QUESTIONS: Final = 6
"""How often a broker is asked in a session."""
_ANSWER_SHARE: Final = 3
"""An answer that takes longer than this part of a session does not come: the next question has a new connection."""
_VERSION: Final = 0
"""Every broker answers this version of ApiVersions."""


class Contacts:
    """Asks the registered brokers, for as long as a controller reigns. A controller alone asks none."""

    __slots__ = ("_connect", "_node_id", "_pause", "_tasks", "_timeout_ms")

    def __init__(self, config: BrokerConfig, connect: Connect) -> None:
        session_ms = config.number("broker.session.timeout.ms")
        self._connect = connect
        self._node_id = config.node_id
        self._pause = session_ms / 1000 / _QUESTIONS
        self._timeout_ms = session_ms / _ANSWER_SHARE
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}

    def follow(self, image: ClusterImage, answered: Callable[[Broker], None]) -> None:
        """Ask the brokers of this image from now on; `answered` is called with each answer."""
        wanted = {(i, broker.epoch): broker for i, broker in image.brokers.items() if i != self._node_id}
        for key in self._tasks.keys() - wanted.keys():
            self._tasks.pop(key).cancel()
        for key in wanted.keys() - self._tasks.keys():
            task = asyncio.get_running_loop().create_task(self._ask(wanted[key], answered))
            task.add_done_callback(_log_failure)
            self._tasks[key] = task

    def end(self) -> None:
        """Ask no longer."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _ask(self, broker: Broker, answered: Callable[[Broker], None]) -> None:
        while True:
            # A broker that has just registered gets its image first.
            await asyncio.sleep(self._pause)
            try:
                await self._ask_on_one_connection(broker, answered)
            except ClientError as error:
                logger.debug("no sign of life from broker %d: %s; asking again", broker.id, error)

    async def _ask_on_one_connection(self, broker: Broker, answered: Callable[[Broker], None]) -> None:
        connection = await self._connect(broker)
        try:
            while True:
                await connection.request(ApiVersionsRequest(), ApiVersionsResponse, _VERSION, self._timeout_ms)
                answered(broker)
                await asyncio.sleep(self._pause)
        finally:
            connection.close()
