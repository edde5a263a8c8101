"""Registers this controller with the active one, so that brokers and tools find it by the metadata log (KIP-919).

Source: Kafka's `ControllerRegistrationManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from odradek.broker.task_failures import logs_failure
from odradek.client.errors import TransportError
from odradek.metadata.features import CONTROLLER_FEATURES
from odradek.metadata.image import ClusterImage, ControllerRegistration
from odradek.metadata.kraft.registration_records import protocol_number
from odradek.wire.errors import KafkaError
from odradek.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationRequestFeature,
    ControllerRegistrationRequestListener,
)

logger = logging.getLogger("odradek.broker.quorum")
_log_failure = logs_failure(logger, "registering this controller failed")

_RETRY_SECONDS: Final = 1.0

Register = Callable[[ControllerRegistrationRequest], Awaitable[None]]
"""Sends the request to the active controller. Raises KafkaError and TransportError."""


def registration_features() -> dict[str, tuple[int, int]]:
    """The features that a controller supports."""
    return {each.name: (each.min_level, each.max_level) for each in CONTROLLER_FEATURES}


class OwnRegistration:
    """`look` after each image; it asks until the image has this controller's registration. `close` ends it."""

    __slots__ = ("_own", "_register", "_task")

    def __init__(self, own: ControllerRegistration, register: Register) -> None:
        self._own = own
        self._register = register
        self._task: asyncio.Task[None] | None = None

    def look(self, image: ClusterImage) -> None:
        """Register, unless the image has the registration."""
        if image.controllers.get(self._own.id) == self._own:
            self.close()
        elif self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._ask())
            self._task.add_done_callback(_log_failure)

    def close(self) -> None:
        """Ask no longer."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _ask(self) -> None:
        own = self._own
        request = ControllerRegistrationRequest(
            own.id,
            own.incarnation_id,
            listeners=[
                ControllerRegistrationRequestListener(name, each.host, each.port, protocol_number(each))
                for name, each in own.endpoints.items()
            ],
            features=[ControllerRegistrationRequestFeature(name, *levels) for name, levels in own.features.items()],
        )
        while True:
            try:
                await self._register(request)
            except (KafkaError, TransportError) as error:
                logger.debug("cannot register this controller: %s; retrying", error)
            await asyncio.sleep(_RETRY_SECONDS)
