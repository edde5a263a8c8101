"""Which brokers get the replicas of new partitions: spread over racks first, over brokers second.

Source: Kafka's `StripedReplicaPlacer` (KIP-631), whose properties this keeps: leaders are spread evenly over racks and,
within a rack, over its brokers; the replicas of a partition lie in as many racks as there are; and what one partition's
followers are does not repeat for the next partition of the same leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.metadata.image import Broker
from odradek.ports.randomness import Random


class TooFewBrokers(ValueError):
    """The replication factor cannot be reached; the text is Kafka's."""


def _shuffled(items: Sequence[int], random: Random) -> list[int]:
    mixed = list(items)
    for index in range(len(mixed) - 1, 0, -1):
        other = random.randrange(index + 1)
        mixed[index], mixed[other] = mixed[other], mixed[index]
    return mixed


class _Rack:
    """Brokers of one rack, in a circle. It turns by one whenever the rack leads, and apart from that when it follows.

    With one turn for both, as in Kafka, a rack that leads every second partition would lead from half its brokers.
    """

    __slots__ = ("_brokers", "_follows", "_leads", "_round", "_start", "_taken")

    def __init__(self, brokers: list[int]) -> None:
        self._brokers = brokers
        self._leads = 0
        self._follows = 0
        self._round = -1
        self._start = 0
        self._taken = 0

    def next(self, round_number: int, *, leads: bool) -> int | None:
        """The next broker that this round's partition has not got yet."""
        if round_number != self._round:
            self._round = round_number
            self._taken = 0
            if leads:
                self._start = self._leads
                self._leads += 1
            else:
                self._start = self._follows
                self._follows += 1
        if self._taken == len(self._brokers):
            return None
        broker = self._brokers[(self._start + self._taken) % len(self._brokers)]
        self._taken += 1
        return broker

    def __len__(self) -> int:
        return len(self._brokers)

    def shuffle(self, random: Random) -> None:
        self._brokers = _shuffled(self._brokers, random)


def place(
    brokers: Sequence[Broker], partitions: int, replication_factor: int, random: Random
) -> Iterator[tuple[int, ...]]:
    """Yield replicas for each of the partitions, the preferred leader first; chosen as they are asked for.

    Raises TooFewBrokers, before the first.
    """
    live = [broker for broker in brokers if broker.is_active]
    if not live:
        raise TooFewBrokers("All brokers are currently fenced." if brokers else _too_few(replication_factor, 0))
    if replication_factor > len(live):
        raise TooFewBrokers(_too_few(replication_factor, len(live)))
    by_rack: dict[str | None, list[int]] = {}
    for broker in live:
        by_rack.setdefault(broker.rack, []).append(broker.id)
    names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
    racks = [_Rack(_shuffled(by_rack[name], random)) for name in names]
    # A random first rack: many topics of one partition must not all be led from the same one.
    offset = random.randrange(len(racks))
    return _placements(racks, offset, partitions, replication_factor, random)


def _placements(
    racks: list[_Rack], offset: int, partitions: int, replication_factor: int, random: Random
) -> Iterator[tuple[int, ...]]:
    brokers = sum(map(len, racks))
    for round_number in range(partitions):
        if round_number and round_number % brokers == 0:
            racks = [racks[i] for i in _shuffled(range(len(racks)), random)]
            for rack in racks:
                rack.shuffle(random)
        yield _place_one(racks, (offset + round_number) % len(racks), replication_factor, round_number)


def _place_one(racks: list[_Rack], first: int, replication_factor: int, round_number: int) -> tuple[int, ...]:
    replicas: list[int] = []
    index = first
    while len(replicas) < replication_factor:
        broker = racks[index].next(round_number, leads=not replicas)
        if broker is not None:
            replicas.append(broker)
        index = (index + 1) % len(racks)
    return tuple(replicas)


def _too_few(replication_factor: int, registered: int) -> str:
    return (
        f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
        f"{replication_factor} cannot be reached because only {registered} broker(s) are registered or some brokers "
        "have all their log directories cordoned."
    )
