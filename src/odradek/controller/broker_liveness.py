"""Which registered brokers still reach the controller, and whether enough of them do for it to decide.

A broker proves that it reaches the controller each time it asks for a lease, and that it can be reached each time it
answers the controller. One that has not done both for a session is silent: it is fenced although the metadata store
still has its session, because it may be cut off from the other brokers only. A controller that fewer than half of all
brokers are in contact with, itself included, is more likely cut off itself: it yields. While that is not certain, it
fences none.

See docs/decisions/0013-controllers-fence-silent-brokers.md. Kafka's counterpart is `BrokerHeartbeatManager`.

Pure: times are seconds of the controller's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import NamedTuple

from odradek.metadata.image import Broker


class Verdict(NamedTuple):
    """The outcome of one look at all brokers."""

    silent: frozenset[int] | None
    """Brokers that have been silent for a session; None while it is open whether this controller is cut off."""
    yields: bool
    """Whether another broker should be the controller: too few reach this one."""


class _Contact(NamedTuple):
    epoch: int
    asked_at: float
    """When its last request came."""
    answered_at: float
    """When its last answer came."""

    @property
    def at(self) -> float:
        """When both ways last worked."""
        return min(self.asked_at, self.answered_at)


class BrokerLiveness:
    """When the last request and the last answer of each broker came, during one reign."""

    __slots__ = ("_contacts", "_looked_at", "_node_id", "_pause", "_session")

    def __init__(self, node_id: int, session_seconds: float, pause_seconds: float) -> None:
        """`pause_seconds`: the time between two looks."""
        self._node_id = node_id
        self._session = session_seconds
        self._pause = pause_seconds
        self._contacts: dict[int, _Contact] = {}
        self._looked_at = 0.0

    def begin(self, now: float) -> None:
        """A reign begins: every broker has a session's time for a request and an answer."""
        self._contacts.clear()
        self._looked_at = now

    def register(self, brokers: Mapping[int, Broker], now: float) -> None:
        """The registered brokers are now these; a registration counts as a sign of life."""
        for broker_id in [known for known in self._contacts if known not in brokers]:
            del self._contacts[broker_id]
        for broker_id, broker in brokers.items():
            known = self._contacts.get(broker_id)
            if known is None or known.epoch != broker.epoch:
                self._contacts[broker_id] = _Contact(broker.epoch, now, now)

    def note_request(self, broker_id: int, epoch: int, now: float) -> None:
        """The broker has sent a request under this registration."""
        known = self._contacts.get(broker_id)
        if known is not None and known.epoch == epoch:
            self._contacts[broker_id] = known._replace(asked_at=now)

    def note_answer(self, broker_id: int, epoch: int, now: float) -> None:
        """The broker has answered the controller under this registration."""
        known = self._contacts.get(broker_id)
        if known is not None and known.epoch == epoch:
            self._contacts[broker_id] = known._replace(answered_at=now)

    def session_end(self, broker_id: int) -> float:
        """When a broker is silent unless it answers until then; infinite for the controller's own.

        Its requests do not count here: it sends one whenever it asks for this.
        """
        known = self._contacts.get(broker_id)
        return inf if known is None or broker_id == self._node_id else known.answered_at + self._session

    def look(self, now: float) -> Verdict:
        """Judge all registered brokers."""
        self._excuse(now)
        silent = frozenset(
            broker_id
            for broker_id, known in self._contacts.items()
            if broker_id != self._node_id and now - known.at >= self._session
        )
        count = len(self._contacts)
        if 2 * (count - len(silent)) < count:
            return Verdict(frozenset(), yields=True)
        # Brokers that a cut concerns all at once sent their last requests at different times.
        fresh = sum(i == self._node_id or now - known.at < self._session / 2 for i, known in self._contacts.items())
        return Verdict(silent if 2 * fresh >= count else None, yields=False)

    def _excuse(self, now: float) -> None:
        """Count no time in which this process stood still: requests have arrived in it that are not served yet."""
        stood_still = now - self._looked_at - 2 * self._pause
        self._looked_at = now
        if stood_still > 0.0:
            for broker_id, known in self._contacts.items():
                asked_at, answered_at = known.asked_at + stood_still, known.answered_at + stood_still
                self._contacts[broker_id] = _Contact(known.epoch, min(now, asked_at), min(now, answered_at))


class FencedBrokers:
    """The brokers that are fenced because they are silent, by registration; not those that shut down."""

    __slots__ = ("_fenced",)

    def __init__(self) -> None:
        self._fenced: dict[int, int] = {}

    def __contains__(self, broker: Broker) -> bool:
        return self._fenced.get(broker.id) == broker.epoch

    def clear(self) -> None:
        """A reign begins: its image has no fenced broker."""
        self._fenced.clear()

    def fence(self, brokers: Iterable[Broker]) -> None:
        """These are fenced now."""
        self._fenced.update((broker.id, broker.epoch) for broker in brokers)

    def release(self, registrations: Iterable[tuple[int, int]]) -> None:
        """Requests of these, by id and epoch, arrive again; or they shut down, and stay fenced for that reason."""
        for broker_id, epoch in registrations:
            if self._fenced.get(broker_id) == epoch:
                del self._fenced[broker_id]

    def changes(self, brokers: Mapping[int, Broker], silent: Collection[int]) -> tuple[list[Broker], list[Broker]]:
        """Of the registered brokers those to be fenced, and those to be fenced no longer."""
        fence = [broker for i, broker in brokers.items() if i in silent and broker.is_active]
        release = [broker for i, broker in brokers.items() if i not in silent and broker in self]
        return fence, release
