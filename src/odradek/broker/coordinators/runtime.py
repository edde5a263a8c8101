"""All partitions of a coordinator's topic that this broker leads (Kafka's CoordinatorRuntime)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic

from odradek.broker.coordinators.context import CoordinatorContext, CoordinatorEnvironment
from odradek.broker.coordinators.shard import CoordinatorState, Record, RecordCodec, Shard
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError

RELOAD_SECONDS = 5.0
"""After which a partition is loaded again whose log could not be read, for instance without a free descriptor."""


class CoordinatorRuntime(Generic[Shard, Record]):
    """Opens a shard for each partition that this broker is elected for, and closes it when the broker resigns."""

    __slots__ = ("_closed", "_codec", "_contexts", "_environment", "_open_shard")

    def __init__(
        self,
        codec: RecordCodec[Record],
        open_shard: Callable[[CoordinatorContext[Any, Record]], Shard],
        environment: CoordinatorEnvironment,
    ) -> None:
        self._codec = codec
        self._open_shard = open_shard
        self._environment = environment
        self._contexts: dict[int, CoordinatorContext[Shard, Record]] = {}
        self._closed = False

    def elected(self, partition: Partition) -> None:
        """Load the partition and coordinate it; one that is there already stays."""
        if partition.index in self._contexts or self._closed:
            return
        context = CoordinatorContext(partition, self._codec, self._open_shard, self._environment, self._on_failed)
        self._contexts[partition.index] = context
        context.load()
        context.shard.on_loading()

    def _on_failed(self, context: CoordinatorContext[Any, Record]) -> None:
        self._environment.loop.call_later(RELOAD_SECONDS, self._reload, context)

    def _reload(self, failed: CoordinatorContext[Any, Record]) -> None:
        partition = failed.partition
        if self._contexts.get(partition.index) is failed:
            self.resigned(partition.index)
            self.elected(partition)

    def resigned(self, index: int) -> None:
        """Stop coordinating a partition."""
        context = self._contexts.pop(index, None)
        if context is not None:
            context.close()

    def close(self) -> None:
        """Resign from every partition, and ignore later elections."""
        self._closed = True
        for index in list(self._contexts):
            self.resigned(index)

    def state_of(self, index: int) -> CoordinatorState | None:
        """The state of a partition, or None if this broker does not coordinate it."""
        context = self._contexts.get(index)
        return None if context is None else context.state

    def context(self, index: int) -> CoordinatorContext[Shard, Record] | None:
        """The partition, or None if this broker does not coordinate it."""
        return self._contexts.get(index)

    def contexts(self) -> Iterator[CoordinatorContext[Shard, Record]]:
        """Every partition that this broker coordinates."""
        return iter(list(self._contexts.values()))

    def shard(self, index: int) -> Shard:
        """The partition's shard, whatever its state. Raises KafkaError NOT_COORDINATOR."""
        context = self._contexts.get(index)
        if context is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return context.shard

    def shards(self) -> Iterator[Shard]:
        """The shards of every partition that this broker coordinates."""
        return (context.shard for context in self.contexts())

    def listed_shards(self) -> list[Shard]:
        """All shards, for what adds up to a list: one that is left out would look as if its contents did not exist.

        Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS while one is loading, COORDINATOR_NOT_AVAILABLE while this
        broker may not act as the coordinator.
        """
        contexts = list(self.contexts())
        if any(context.is_loading for context in contexts):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if not all(context.partition.may_lead for context in contexts):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return [context.shard for context in contexts]
