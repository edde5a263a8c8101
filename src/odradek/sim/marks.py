"""Coverage marks: rare situations that a search has to reach, or it proves nothing about them.

With `--marks` functions of the product are wrapped for the time of a run by ones that count and change nothing: the
trace of a seed is the same with them and without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from odradek.sim.targets import replaced
from odradek.wire.errors import ErrorCode, KafkaError

Mark = Callable[[str], None]


class Situation(NamedTuple):
    """Reached when the function (`module:Class.attribute`) answers, or raises, what the test says."""

    name: str
    target: str
    holds: Callable[[Any], bool]


def _always(_: Any) -> bool:
    return True


def _refuses(code: ErrorCode) -> Callable[[Any], bool]:
    return lambda outcome: isinstance(outcome, KafkaError) and outcome.code is code


_PRODUCERS = "odradek.log.producers.state:ProducerStates"
_LOADER = "odradek.log.recovery:_Loader"
_LOG = "odradek.log.partition_log:PartitionLog"
_PARTITION = "odradek.replication.partition:Partition"

SITUATIONS: Final = (
    Situation("duplicate_batch_acknowledged", f"{_PRODUCERS}._duplicate", _always),
    Situation("sequence_gap_refused", f"{_PRODUCERS}.check", _refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)),
    Situation("fenced_zombie_producer", f"{_PRODUCERS}._check_epoch", _refuses(ErrorCode.INVALID_PRODUCER_EPOCH)),
    Situation("broken_snapshot_passed_over", f"{_PRODUCERS}.load", lambda outcome: isinstance(outcome, Exception)),
    Situation("truncated_after_torn_batch", f"{_LOADER}._cut_off", _always),
    Situation("segments_behind_a_cut_removed", f"{_LOADER}._drop", _always),
    Situation("segments_replaced_by_compaction", f"{_LOG}.replace_segments", lambda done: done is True),
    Situation("segments_deleted_by_retention", f"{_LOG}.delete_old_segments", lambda count: count not in (0, None)),
    Situation("write_queued_behind_the_loop", "odradek.log.durability:LogDurability.enqueue", _always),
    Situation("replica_moved_to_another_directory", f"{_PARTITION}.replace_log", _always),
    Situation("late_request_of_an_older_connection", "odradek.transactions.connections:NewestConnections.is_stale",
              lambda stale: stale is True),
    Situation("transaction_timed_out", "odradek.transactions.coordinator:TransactionCoordinator.expire",
              bool),
    Situation("member_session_expired", "odradek.groups.classic.rebalance:Rebalances._expire_session", _always),
    Situation("member_did_not_sync", "odradek.groups.classic.rebalance:Rebalances._expire_sync", _always),
    Situation("modern_member_expired", "odradek.groups.consumer.heartbeats:Heartbeats.expire", _always),
    Situation("follower_truncated", "odradek.replication.replicated_log:ReplicatedLog.truncate_to", _always),
    Situation("isr_shrunk", "odradek.replication.followers:lagging", bool),
    Situation("producer_began_a_new_epoch", "odradek.client.producer.sequences:Sequences.bump_epoch", _always),
    Situation("batch_split", "odradek.client.producer.sequences:Sequences.replaced", _always),
)  # fmt: skip


def _counting(situation: Situation, mark: Mark, right: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            outcome = right(*arguments, **named)
        except Exception as error:
            if situation.holds(error):
                mark(situation.name)
            raise
        if situation.holds(outcome):
            mark(situation.name)
        return outcome

    return call


@contextlib.contextmanager
def counted(mark: Mark) -> Iterator[None]:
    """Call `mark` with the name of each situation when it is reached."""
    with replaced((situation.target, partial(_counting, situation, mark)) for situation in SITUATIONS):
        yield
