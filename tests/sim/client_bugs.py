"""Bugs of clients, planted one at a time in ours, to prove that the application of `client_suite` would find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.client.model import LATEST
from odradek.client.offsets import Positions
from odradek.sim.planted.broker_bugs import Planted

BUGS: list[Planted] = []
"""Those that the application of `client_suite` finds."""
TABLE_BUGS: list[Planted] = []
"""Those that the readers and writers of `client_tables` find."""


def _bug(name: str, story: str, *targets: str, into: list[Planted] = BUGS) -> Callable[[Callable[[Any], Any]], None]:
    def register(make: Callable[[Any], Any]) -> None:
        into.append(Planted(name, story, "application", targets, make))

    return register


def _nothing(*_: Any, **__: Any) -> None:
    return None


@_bug("sequence reused", "the sequence of a batch that timed out, and may be written, goes to the next batch",
      "odradek.client.producer.sequences:Sequences.failed")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, batch, *, outcome_known: right(self, batch, outcome_known=True)


@_bug("renumbered on retry", "a batch that is sent again gets new sequence numbers",
      "odradek.client.producer.sender:Sender._landed")  # fmt: skip
def _(right: Any) -> Any:
    def landed(self: Any, batch: Any) -> None:
        right(self, batch)
        if not batch.done:
            self.sequences._to_renumber.add(batch.key)

    return landed


@_bug("retry without a sequence", "every batch has a producer id of its own, as without idempotence",
      "odradek.client.producer.sequences:Sequences.assign")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("committed before it is returned", "commits have the end of what was fetched",
      "odradek.client.consumer.fetcher:Fetcher.positions")  # fmt: skip
def _(right: Any) -> Any:
    def positions(self: Any) -> Any:
        found = right(self)
        fetched = {key: at._replace(offset=self.states[key].fetch_offset) for key, at in found.items()}
        return Positions(fetched, found.topic_ids)

    return positions


@_bug("position lost at rebalance", "a member begins at the end of its new partitions",
      "odradek.client.group.group_partitions:GroupPartitions.take_up")  # fmt: skip
def _(right: Any) -> Any:
    async def take_up(self: Any, fresh: Any) -> None:
        await right(self, fresh)
        for key in fresh:
            self._fetcher.states[key].want_reset(LATEST)

    return take_up


@_bug("commits without a generation", "an offset commit names no member",
      "odradek.client.group.group_consumer:GroupDriver.member")  # fmt: skip
def _(right: Any) -> Any:
    from odradek.client.offsets import Member

    return property(lambda self: Member())


@_bug("commit of a revoked partition", "a member commits the positions of partitions that it once had",
      "odradek.client.consumer.fetcher:Fetcher.positions")  # fmt: skip
def _(right: Any) -> Any:
    kept: dict[int, Positions] = {}

    def positions(self: Any) -> Any:
        found = right(self)
        before = kept.get(id(self), Positions({}, {}))
        kept[id(self)] = Positions({**before, **found}, {**before.topic_ids, **found.topic_ids})
        return kept[id(self)]

    return positions


@_bug("position reset on any error", "a fetch that fails sends the consumer to the end of the partition",
      "odradek.client.consumer.fetcher:Fetcher._take")  # fmt: skip
def _(right: Any) -> Any:
    def take(self: Any, node_id: Any, state: Any, answer: Any) -> None:
        right(self, node_id, state, answer)
        if answer.error_code:
            state.want_reset(LATEST)

    return take


@_bug("flush returns early", "flush sends the batches and does not wait for them",
      "odradek.client.producer.sender:Sender.flush")  # fmt: skip
def _(right: Any) -> Any:
    async def flush(self: Any, on_progress: Any = None) -> None:
        self.wake()

    return flush


@_bug("close loses the last batch", "close does not flush",
      "odradek.client.producer.producer:Producer.close")  # fmt: skip
def _(right: Any) -> Any:
    async def close(self: Any, *, flush: bool = True) -> None:
        await right(self, flush=False)

    return close


@_bug("old number of partitions", "keys are spread over the partitions that the topic had first",
      "odradek.client.producer.partitioners:DefaultPartitioner.partition")  # fmt: skip
def _(right: Any) -> Any:
    first: dict[int, int] = {}

    def partition(self: Any, topic: Any, key: Any, count: Any, available: Any) -> Any:
        return right(self, topic, key, first.setdefault(id(self), count), available)

    return partition


@_bug("loss reported as success", "a batch that was given up counts as acknowledged",
      "odradek.client.producer.sender:Sender._finish")  # fmt: skip
def _(right: Any) -> Any:
    def finish(self: Any, batch: Any, error: Any) -> None:
        if error is not None and not batch.done:
            batch.complete(-1, -1)
        right(self, batch, error)

    return finish


@_bug("metadata is not refreshed", "only the age of its metadata makes a client ask for a new leader, no failure",
      "odradek.client.network.cluster:Cluster._ask_metadata")  # fmt: skip
def _(right: Any) -> Any:
    async def ask_metadata(self: Any, topics: Any) -> Any:
        known = self.metadata.topics
        if topics and all(topic in known for topic in topics) and not self.metadata_is_old(self.loop.time()):
            return {}
        return await right(self, topics)

    return ask_metadata


@_bug("aborted rows are read", "a reader of committed records does not look at the list of aborted transactions",
      "odradek.client.consumer.positions:Chunk.__init__", into=TABLE_BUGS)  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, view, aborted, fetch_offset: right(self, view, None, fetch_offset)


@_bug("abort commits", "a transaction that is to be aborted is committed",
      "odradek.client.producer.transactions:TransactionalProducer._end_txn", into=TABLE_BUGS)  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, _: right(self, True)


@_bug("first row skipped", "a batch begins behind the first row that is wanted",
      "odradek.client.consumer.positions:PartitionState.take_batch", into=TABLE_BUGS)  # fmt: skip
def _(right: Any) -> Any:
    def take_batch(self: Any) -> Any:
        taken = right(self)
        return taken and (*taken[:3], taken[3] + 1)

    return take_batch


@_bug("tables lost at rebalance", "a member begins at the end of its new partitions",
      "odradek.client.group.group_partitions:GroupPartitions.take_up", into=TABLE_BUGS)  # fmt: skip
def _(right: Any) -> Any:
    async def take_up(self: Any, fresh: Any) -> None:
        await right(self, fresh)
        for key in fresh:
            self._fetcher.states[key].want_reset(LATEST)

    return take_up
