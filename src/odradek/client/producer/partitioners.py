"""Partitioners: which partition a record is written to.

A keyed record goes to the same partition as from a Java producer (murmur2). Records without a key stick to one
partition for batch.size bytes (KIP-480, KIP-794), so that batches fill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Protocol
from zlib import crc32

from odradek.client.surroundings import surroundings
from odradek.ports.randomness import Random
from odradek.records.murmur import murmur2

Load = Callable[[int], int]
"""How many batches wait for a partition."""

_hash = lru_cache(maxsize=65536)(murmur2)


class Partitioner(Protocol):
    """Chooses among partitions 0 to count-1; called once per record that names no partition.

    Example:

        class ByFirstByte:
            def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
                return key[0] % count if key else 0

        async with Producer(bootstrap_servers="127.0.0.1:9092", partitioner=ByFirstByte()) as producer:
            await producer.send_and_wait("orders", b"tea", key=b"anna")
    """

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        """`available` are the partitions that have a leader now; it is empty when none has."""
        ...


class Appended(Protocol):
    """A partitioner with this method is notified of the bytes that each choice took."""

    def appended(self, topic: str, partition: int, size: int, batch_closed: bool) -> None:
        """A record of `size` bytes was appended to a batch of the partition, which closed an earlier one or not."""
        ...


def partition_for_key(key: bytes, count: int) -> int:
    """The partition of Kafka's BuiltInPartitioner: the positive murmur2 of the serialized key, modulo the count."""
    return (_hash(key) & 0x7FFFFFFF) % count


class _Sticking:
    """The current partition of one topic."""

    __slots__ = ("bytes", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.bytes = 0


class DefaultPartitioner:
    """murmur2 for keys; without a key, one partition until `batch_size` bytes went there (KIP-794).

    The next one is drawn at random; where batches wait, partitions with shorter queues are likelier, as in Kafka's
    adaptive partitioning; partitions whose leader accepts no batches are left out. `ignore_keys` is Kafka's
    `partitioner.ignore.keys`.

    Example:

        # A producer without `partitioner` makes one of its own, by its options.
        async with Producer(bootstrap_servers="127.0.0.1:9092", partitioner_ignore_keys=True) as producer:
            print((await producer.send_and_wait("orders", b"tea", key=b"anna")).partition)
    """

    __slots__ = ("_batch_size", "_ignore_keys", "_is_stuck", "_load", "_random", "_sticking")

    def __init__(
        self,
        random: Random,
        batch_size: int,
        *,
        load: Callable[[str, int], int] | None = None,
        is_stuck: Callable[[str, int], bool] | None = None,
        ignore_keys: bool = False,
    ) -> None:
        """`load` gives the batches that wait for a partition, `is_stuck` whether its leader accepts none."""
        self._random = random
        self._batch_size = max(1, batch_size)
        self._load = load
        self._is_stuck = is_stuck
        self._ignore_keys = ignore_keys
        self._sticking: dict[str, _Sticking] = {}

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        """As `Partitioner.partition`."""
        if key is not None and not self._ignore_keys:
            return (_hash(key) & 0x7FFFFFFF) % count
        state = self._sticking.get(topic)
        if state is None:
            state = self._sticking[topic] = _Sticking(self._draw(topic, count, available))
        elif state.partition >= count or (available and state.partition not in available):
            state.partition = self._draw(topic, count, available)
        return state.partition

    def appended(self, topic: str, partition: int, size: int, batch_closed: bool) -> None:
        """As `Appended.appended`."""
        state = self._sticking.get(topic)
        if state is None or state.partition != partition:
            return
        state.bytes += size
        # Switching inside of a batch would leave a half-filled one behind; a full one, or twice the size, ends it.
        if state.bytes >= self._batch_size and (batch_closed or state.bytes >= 2 * self._batch_size):
            del self._sticking[topic]

    def leave(self, topic: str, size: int) -> bool:
        """Choose another partition for the next record without a key, of `size` bytes, if this one then has its share.

        It is asked when the record does not fit into the partition's batch: otherwise it would begin a batch there that
        no other record joins.
        """
        state = self._sticking.get(topic)
        if state is None or state.bytes + size < self._batch_size:
            return False
        del self._sticking[topic]
        return True

    def _draw(self, topic: str, count: int, available: Sequence[int]) -> int:
        choices: Sequence[int] = available or range(count)
        if self._is_stuck is not None:
            choices = [each for each in choices if not self._is_stuck(topic, each)] or choices
        if self._load is None:
            return choices[self._random.randrange(len(choices))]
        waiting = [self._load(topic, each) for each in choices]
        longest = max(waiting) + 1
        sums = list(accumulate(longest - each for each in waiting))
        drawn = self._random.randrange(sums[-1])
        return next(choice for choice, upper in zip(choices, sums, strict=True) if drawn < upper)


class ConsistentPartitioner:
    """CRC-32 of the key modulo the count, as librdkafka's default `consistent_random` puts records with a key.

    Producers of both kinds then put the records of a key into the same partition. Records without a key, or with an
    empty one, stick to a partition drawn at random until a batch is full.

    Example:

        async with Producer(bootstrap_servers="127.0.0.1:9092", partitioner=ConsistentPartitioner()) as producer:
            print((await producer.send_and_wait("orders", b"tea", key=b"anna")).partition)
    """

    __slots__ = ("_random", "_sticking")

    def __init__(self, random: Random | None = None) -> None:
        """`random` replaces chance in tests."""
        self._random: Random = random or surroundings().random
        self._sticking: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        """As `Partitioner.partition`."""
        if key:
            return crc32(key) % count
        chosen = self._sticking.get(topic)
        if chosen is None or chosen >= count or (available and chosen not in available):
            choices: Sequence[int] = available or range(count)
            chosen = self._sticking[topic] = choices[self._random.randrange(len(choices))]
        return chosen

    def appended(self, topic: str, partition: int, size: int, batch_closed: bool) -> None:  # noqa: ARG002
        """As `Appended.appended`."""
        if batch_closed and self._sticking.get(topic) == partition:
            del self._sticking[topic]


class RoundRobinPartitioner:
    """Every record to the next partition that has a leader, whatever its key (Kafka's RoundRobinPartitioner).

    Example:

        async with Producer(bootstrap_servers="127.0.0.1:9092", partitioner=RoundRobinPartitioner()) as producer:
            places = [await producer.send_and_wait("jobs", b"%d" % number) for number in range(3)]
            print([each.partition for each in places])
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:  # noqa: ARG002
        """As `Partitioner.partition`."""
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return available[turn % len(available)] if available else turn % count
