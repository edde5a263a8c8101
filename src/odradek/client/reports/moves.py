"""Starting and cancelling reassignments: which rejections are retried, and which moves remain rejected (KIP-455)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.records.topic_partition import TopicPartition

TRIES: Final = 10
RETRY_SECONDS: Final = 0.5


async def request_moves(
    admin: Admin, targets: Mapping[TopicPartition, Sequence[int] | None], *, retry_seconds: float = RETRY_SECONDS
) -> dict[TopicPartition, KafkaError]:
    """Start reassignments, or cancel those whose target is None; returns the rejected ones with their errors.

    A move with a retriable error is sent again every `retry_seconds`, `TRIES` times in all, and so is a request that
    the controller rejected as a whole. Both are safe: to start or to cancel a move a second time changes nothing.
    Raises KafkaError where the controller rejects the first request as a whole with a lasting error, ClientError.
    """
    rejected: dict[TopicPartition, KafkaError] = {}
    wanted = dict(targets)
    outcome: Mapping[TopicPartition, KafkaError | None]
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(retry_seconds)
        try:
            outcome = await admin.replicas.reassign(wanted)
        except KafkaError as failure:
            if not attempt and not failure.retriable:
                raise
            outcome = dict.fromkeys(wanted, failure)
        for place in wanted:
            error = outcome.get(place)
            if error is None or _is_cancelled_before(error, attempt):
                rejected.pop(place, None)
            else:
                rejected[place] = error
        wanted = {place: targets[place] for place, error in rejected.items() if error.retriable}
        if not wanted:
            break
    return rejected


def _is_cancelled_before(error: KafkaError, attempt: int) -> bool:
    """An earlier attempt cancelled the move, and its answer was lost."""
    return attempt > 0 and error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def listed(rejected: Mapping[TopicPartition, KafkaError]) -> str:
    """`PARTITION: ERROR` of every rejected move."""
    return "; ".join(f"{place}: {error}" for place, error in sorted(rejected.items()))
