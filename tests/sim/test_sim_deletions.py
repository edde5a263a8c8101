"""What clients that delete records may expect of a cluster whose leader changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.client.model import EARLIEST, OffsetAndTimestamp
from odradek.metadata.image import PartitionState
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.history import Deletion, History
from odradek.sim.checkers.replicas import _starts
from odradek.sim.workloads.deletions import delete_records
from odradek.wire.errors import ErrorCode, KafkaError

PLAIN = TopicPartition("plain", 1)


class OneLog:
    """An administrator of one partition that has the offsets from 10 to 30."""

    def __init__(self, answer: int | KafkaError, meanwhile: Callable[[], None]) -> None:
        self.answer = answer
        self.meanwhile = meanwhile

    async def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {key: OffsetAndTimestamp(10 if at == EARLIEST else 30, -1, 0) for key, at in wanted.items()}

    async def delete_records(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        assert wanted == {PLAIN: 20}
        self.meanwhile()
        return {PLAIN: self.answer}


@pytest.mark.parametrize(
    ("answer", "epochs", "eligible", "kept"),
    [
        (20, (4, 4), ((), ()), (7.0, 4)),
        # A replica that was away, and does not know of the deletion, may lead next.
        (20, (4, 4), ((), (3,)), (None, -1)),
        (20, (4, 4), ((3,), ()), (None, -1)),
        # A leader that was deposed unnoticed may have answered.
        (20, (3, 4), ((), ()), (None, -1)),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), (4, 4), ((), ()), (None, -1)),
    ],
)
def test_deletion_counts_if_each_possible_leader_knows_of_it(
    answer: int | KafkaError,
    epochs: tuple[int, int],
    eligible: tuple[tuple[int, ...], tuple[int, ...]],
    kept: tuple[float | None, int],
) -> None:
    history = History()
    before, after = (PartitionState(1, e, (1, 2, 3), (1, 2), elr=elr) for e, elr in zip(epochs, eligible, strict=True))
    stored = SimpleNamespace(states={("plain", 1): before})
    world = SimpleNamespace(history=history, stored=stored, now=lambda: 7.0, mark=lambda _: None, note=lambda _: None)
    host: Any = SimpleNamespace(world=world, name="admin")
    admin: Any = OneLog(answer, lambda: stored.states.update({("plain", 1): after}))
    asyncio.run(delete_records(host, admin, PLAIN, 0.5))
    (deletion,) = history.deletions
    assert (deletion.partition, deletion.offset) == (("plain", 1), 20)
    assert (deletion.kept_since, deletion.epoch) == kept


@pytest.mark.parametrize(
    ("leader", "follower", "deletion", "agree"),
    [
        (2, 2, None, True),
        (0, 2, None, False),
        (0, 2, Deletion(("plain", 1), 2, 1.0), True),
        (0, 2, Deletion(("plain", 1), 2, 1.0, 1.1, 0), False),
        (2, 0, Deletion(("plain", 1), 2, 1.0), False),
    ],
)
def test_replicas_start_with_their_leader_unless_a_deletion_was_missed(
    leader: int, follower: int, deletion: Deletion | None, agree: bool
) -> None:
    history = History()
    history.deletions += [] if deletion is None else [deletion]
    brokers = []
    for node, start in enumerate((leader, follower), 1):
        log = SimpleNamespace(log_start_offset=start)
        replica = SimpleNamespace(topic="plain", index=1, local_id=node, is_leader=node == 1, log=log)
        partitions = SimpleNamespace(opened=lambda replica=replica: [replica])
        inspected = SimpleNamespace(partitions=partitions)
        brokers.append(SimpleNamespace(is_up=True, inspect=lambda inspected=inspected: inspected))
    world: Any = SimpleNamespace(history=history, brokers=brokers)
    assert (_starts(world) == "") is agree
