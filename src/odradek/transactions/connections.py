"""Beyond Kafka: requests of a producer count only on the newest connection that it has used.

A client that loses patience with a connection opens another one and repeats its request there. The first frame may
still arrive, seconds later, when the transaction that it meant is over and the next one has begun; without the epoch
bump of transaction.version 2 nothing in an EndTxn tells the two apart. See docs/RELIABILITY.md, "Delayed EndTxn".
"""

from __future__ import annotations

from collections.abc import Hashable

_Producer = tuple[int, int]


class NewestConnections:
    """Which connection is the newest that a producer (id and epoch) has used, by the name that it goes under.

    Connection identifiers grow in the order in which connections were accepted.
    """

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: dict[Hashable, tuple[_Producer, int]] = {}

    def is_stale(self, name: Hashable, producer_id: int, producer_epoch: int, connection: int) -> bool:
        """Whether a request on this connection must have no effect because a newer one has taken over."""
        known = self._newest.get(name)
        return known is not None and known[0] == (producer_id, producer_epoch) and connection < known[1]

    def used(self, name: Hashable, producer_id: int, producer_epoch: int, connection: int) -> None:
        """A request of this producer was accepted on the connection."""
        producer = (producer_id, producer_epoch)
        known = self._newest.get(name)
        if known is None or known[0] != producer or connection > known[1]:
            self._newest[name] = (producer, connection)

    def forget(self, name: Hashable) -> None:
        self._newest.pop(name, None)
