"""Beyond Kafka: requests of a producer count only on the newest connection that it has used.

A client that loses patience with a connection opens another one and repeats its request there. The first frame may
still arrive, seconds later, when the transaction that it meant is over and the next one has begun; without the epoch
bump of transaction.version 2 the two EndTxn requests look the same. See docs/RELIABILITY.md, "Delayed EndTxn".
"""

from __future__ import annotations

from collections.abc import Hashable

_Producer = tuple[int, int]


class StaleConnection(Exception):
    """A request came on a connection that its producer has replaced: close it and do nothing."""


class NewestConnections:
    """Which connection is the newest that a producer (id and epoch) has used, by the name that it goes under.

    Connection identifiers grow in the order in which connections were accepted. With a limit only so many names are
    remembered, those used last.
    """

    __slots__ = ("_limit", "_newest")

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._newest: dict[Hashable, tuple[_Producer, int]] = {}

    def is_stale(self, name: Hashable, producer_id: int, producer_epoch: int, connection: int) -> bool:
        """Whether a request on this connection must have no effect because a newer one has taken over."""
        known = self._newest.get(name)
        return known is not None and known[0] == (producer_id, producer_epoch) and connection < known[1]

    def admit(self, name: Hashable, producer_id: int, producer_epoch: int, connection: int) -> bool:
        """Observe a request's connection; False, and nothing is changed, if the request `is_stale`."""
        if self.is_stale(name, producer_id, producer_epoch, connection):
            return False
        self.observe(name, producer_id, producer_epoch, connection)
        return True

    def observe(self, name: Hashable, producer_id: int, producer_epoch: int, connection: int) -> None:
        """A request of this producer was accepted on the connection; an older epoch of it changes nothing."""
        producer = (producer_id, producer_epoch)
        newest = self._newest
        known = newest.get(name)
        if known is not None and known[0][0] == producer_id and known[0][1] > producer_epoch:
            return
        if self._limit is not None:
            newest.pop(name, None)
        if known is None or known[0] != producer or connection > known[1]:
            known = (producer, connection)
        newest[name] = known
        if self._limit is not None and len(newest) > self._limit:
            del newest[next(iter(newest))]

    def forget(self, name: Hashable) -> None:
        """Treat every connection of this name as new."""
        self._newest.pop(name, None)
