"""The controller's watch over brokers that it has no contact with: it fences them, or yields if too few reach it.

`odradek.controller.broker_liveness` decides who is silent; this part has the clock and turns it into events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from odradek.broker.cluster.broker_events import Events
from odradek.broker.cluster.contacts import Contacts
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.broker_liveness import BrokerLiveness, FencedBrokers
from odradek.controller.brokers import fencing_changed
from odradek.metadata.image import Broker, ClusterImage
from odradek.ports.clock import Clock

logger = logging.getLogger(__name__)

_LOOKS: Final = 12
"""How often the brokers are looked at in a session: a silent one is fenced at most that share of it late."""


class Fencing:
    """Fences silent brokers for one controller, for as long as it reigns. Without other brokers no timer runs."""

    __slots__ = (
        "_clock",
        "_config",
        "_contacts",
        "_events",
        "_fenced",
        "_has_yielded",
        "_liveness",
        "_pause",
        "_session",
        "_yields",
    )

    def __init__(self, config: BrokerConfig, clock: Clock, events: Events, contacts: Contacts) -> None:
        self._config = config
        self._clock = clock
        self._events = events
        self._contacts = contacts
        self._session = config.number("broker.session.timeout.ms") / 1000
        self._pause = self._session / _LOOKS
        self._liveness = BrokerLiveness(config.node_id, self._session, self._pause)
        self._fenced = FencedBrokers()
        self._has_yielded = False
        self._yields: Callable[[], None] = lambda: None

    def watch_yield(self, listener: Callable[[], None]) -> None:
        """Call the listener, instead of an earlier one, when another broker should be the controller."""
        self._yields = listener

    def begin(self) -> None:
        """A reign begins."""
        self._has_yielded = False
        self._fenced.clear()
        self._liveness.begin(self._clock.monotonic())

    def end(self) -> None:
        """The reign is over."""
        self._contacts.end()

    def follow(self, image: ClusterImage) -> None:
        """The newest image of the reign."""
        self._liveness.register(image.brokers, self._clock.monotonic())
        self._contacts.follow(image, self._note_answer)
        if len(image.brokers) > 1:
            self._events.later("fencing", self._pause, self._look)

    def note_request(self, broker_id: int, epoch: int) -> None:
        """A broker has asked for a lease under this registration."""
        self._liveness.note_request(broker_id, epoch, self._clock.monotonic())

    def _note_answer(self, broker: Broker) -> None:
        self._liveness.note_answer(broker.id, broker.epoch, self._clock.monotonic())

    def session_end(self, broker_id: int) -> float:
        """When a broker is fenced unless it answers until then."""
        return self._liveness.session_end(broker_id)

    def fences(self, broker: Broker) -> bool:
        """Whether the broker is fenced as silent, or the event that fences it is under way."""
        return broker in self._fenced

    def leaves(self, broker_id: int, epoch: int) -> None:
        """The broker of this registration shuts down: it stays fenced although its requests arrive."""
        self._fenced.release([(broker_id, epoch)])

    def _look(self) -> None:
        image = self._events.image
        self.follow(image)
        silent, yields = self._liveness.look(self._clock.monotonic())
        if yields:
            if not self._has_yielded:
                self._has_yielded = True
                logger.warning(
                    "no contact with more than half of the brokers for %g s: another one is to be the controller",
                    self._session,
                )
            self._yields()
        elif silent is not None and any(self._fenced.changes(image.brokers, silent)):
            self._events.soon(self._fence)

    async def _fence(self) -> None:
        """Fence and release by a look at the newest image; an event. Raises KafkaError."""
        image = self._events.image
        silent, _ = self._liveness.look(self._clock.monotonic())
        if silent is None:
            return
        fence, release = self._fenced.changes(image.brokers, silent)
        if fence:
            logger.warning(
                "no contact with brokers %s for %g s: they are fenced until the next one",
                _ids(broker.id for broker in fence),
                self._session,
            )
        if release:
            logger.info("brokers %s are in contact again", _ids(broker.id for broker in release))
        self._fenced.fence(fence)
        decision = fencing_changed(image, fence, release, self._config)
        await self._events.carry_out(decision)
        # If that failed, the next look finds them again.
        self._fenced.release((broker.id, broker.epoch) for broker in release)


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(str(broker_id) for broker_id in sorted(brokers))
