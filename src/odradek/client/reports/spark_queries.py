"""Spark queries that write exactly once, as far as the cluster knows them: by the markers of their batches.

A query commits the number of its last batch in the batch's own transaction, as an offset of a group that is named for
its transactional id. The offset's metadata has the query's id and the number of records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.client.model import OffsetAndMetadata
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.admin.transactions import TransactionDescription
    from odradek.records.topic_partition import TopicPartition

MARKER_PREFIX: Final = "__eos-"
"""Beginning of the names of groups that keep batch numbers."""


def marker_group(transactional_id: str) -> str:
    """The consumer group in which a transactional id records its last batch."""
    return f"{MARKER_PREFIX}{transactional_id}"


class WritingQuery(NamedTuple):
    """A query by its transactional id. None: the marker does not say, or the coordinator does not know the id.

    `state` and `open_since_ms` (since the epoch) are those of its transaction; `topic` is an output of the last batch.
    """

    transactional_id: str
    batch: int
    query_id: str | None
    records: int | None
    topic: str
    state: str | None
    open_since_ms: int | None


def query_of(
    group: str, place: TopicPartition, at: OffsetAndMetadata, described: TransactionDescription | None
) -> WritingQuery:
    """A query from its marker, and its transactional id as the coordinator describes it. Pure."""
    content: Any = None
    with suppress(ValueError, RecursionError):
        content = json.loads(at.metadata or "{}")
    found = content if isinstance(content, dict) else {}
    query_id, records = found.get("query"), found.get("records")
    return WritingQuery(
        group.removeprefix(MARKER_PREFIX),
        at.offset,
        query_id if isinstance(query_id, str) and query_id else None,
        records if isinstance(records, int) else None,
        place.topic,
        None if described is None else str(described.state),
        None if described is None else described.start_time_ms,
    )


async def writing_queries(admin: Admin, groups: Iterable[str]) -> list[WritingQuery]:
    """The queries behind groups of markers; those without a marker are left out. Raises KafkaError, ClientError."""
    markers = {}
    for group in groups:
        committed = await admin.groups.offsets(group)
        if committed:
            markers[group] = max(committed.items(), key=lambda each: each[1].offset)
    described = await admin.transactions.describe([each.removeprefix(MARKER_PREFIX) for each in markers])
    known = {name: each for name, each in described.items() if not isinstance(each, KafkaError)}
    return [
        query_of(group, place, at, known.get(group.removeprefix(MARKER_PREFIX)))
        for group, (place, at) in markers.items()
    ]
