"""The hand-over of leadership before a broker stops: Kafka's controlled shutdown."""

from __future__ import annotations

import asyncio
import logging

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.controller_link import ControllerLink
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.metadata.image import ClusterImage
from odradek.wire.errors import KafkaError

logger = logging.getLogger("odradek.broker")


class Departure:
    """Has the controller move leadership away from this broker, as far as other replicas can lead."""

    __slots__ = ("_config", "_link", "_view")

    def __init__(self, config: BrokerConfig, view: ClusterView, link: ControllerLink) -> None:
        self._config = config
        self._view = view
        self._link = link

    async def hand_over(self) -> None:
        """Return when the controller has moved leadership, or when all attempts have failed."""
        config = self._config
        if not config.flag("controlled.shutdown.enable") or len(self._view.image.live_brokers()) < 2:
            return
        backoff = config.number("controlled.shutdown.retry.backoff.ms") / 1000
        retries = config.number("controlled.shutdown.max.retries")
        try:
            async with asyncio.timeout(retries * backoff):
                for attempt in range(retries):
                    if attempt:
                        await self._wait_for_other_controller(backoff)
                    if await self._try_hand_over():
                        return
        except TimeoutError:
            logger.warning(
                "controlled shutdown failed: no controller answered within %g s; stopping without it", retries * backoff
            )

    async def _try_hand_over(self) -> bool:
        """Whether the controller has moved what it can."""
        try:
            left = await self._link.controlled_shutdown()
        except KafkaError as error:
            logger.warning("controlled shutdown failed: the controller answered %s", error)
            return False
        if left:
            logger.info("controlled shutdown: %d partitions have no other in-sync replica to lead them", left)
        return True

    async def _wait_for_other_controller(self, at_most_seconds: float) -> None:
        """Wait until a controller is elected that is not the present one, or until the time is over."""
        view = self._view
        epoch, elected = view.image.controller_epoch, asyncio.Event()

        def look(_old: ClusterImage, new: ClusterImage) -> None:
            if new.controller_epoch != epoch:
                elected.set()

        unsubscribe = view.subscribe(look)
        try:
            async with asyncio.timeout(at_most_seconds):
                await elected.wait()
        except TimeoutError:
            logger.info("controlled shutdown: no other controller was elected within %g s", at_most_seconds)
        finally:
            unsubscribe()
