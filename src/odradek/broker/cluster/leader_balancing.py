"""Elects preferred leaders where too many partitions have another one (`auto.leader.rebalance.enable`)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.elections import ElectionType, elect_leaders
from odradek.controller.leader_balance import imbalanced_partitions, is_balanced
from odradek.controller.outcome import Decision
from odradek.metadata.image import ClusterImage

logger = logging.getLogger("odradek.broker.cluster.controller")

FIRST_BALANCE_SECONDS: Final = 5.0
"""Between a change of the cluster and the first look at its leaders."""

T = TypeVar("T")


class Events(Protocol):
    """The events of the controller, in which elections take effect."""

    image: ClusterImage

    async def carry_out(self, decision: Decision[T]) -> Sequence[T]:
        """Make a decision take effect; only within an event. Raises KafkaError."""
        ...

    def soon(self, event: Callable[[], Awaitable[object]]) -> None:
        """Run an event in its turn."""
        ...

    def later(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` later, once for each name."""
        ...


class LeaderBalance:
    """Looks at the leaders until all are the preferred ones."""

    __slots__ = ("_config", "_events")

    def __init__(self, config: BrokerConfig, events: Events) -> None:
        self._config = config
        self._events = events

    def begin(self) -> None:
        """Look in a while; the cluster has changed."""
        if self._config.flag("auto.leader.rebalance.enable"):
            self._events.later("balance", FIRST_BALANCE_SECONDS, self._balance_soon)

    def _balance_soon(self) -> None:
        self._events.soon(self._balance)

    async def _balance(self) -> None:
        events, config = self._events, self._config
        partitions = imbalanced_partitions(events.image, config.number("leader.imbalance.per.broker.percentage"))
        if partitions:
            logger.info("electing the preferred leaders of %d partitions", len(partitions))
            await events.carry_out(elect_leaders(events.image, ElectionType.PREFERRED, partitions, config))
        if not is_balanced(events.image):
            interval = config.number("leader.imbalance.check.interval.seconds")
            events.later("balance", interval, self._balance_soon)
