"""Whether a query with a new checkpoint begins where a database is: the check behind `SqlSink(resumed=True)`.

A micro-batch shows where it ends, not where it begins. So the starting offsets that the sink gives name the point, the
last recorded batch; our source keeps the name beside the offsets that it writes into Spark's offset log. Spark's own
connector keeps the offsets at which it began in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from odradek.records.topic_partition import TopicPartition
from odradek.spark.offset_log import SourceEnd, offsets_on
from odradek.spark.offsets import Offsets
from odradek.spark.stores.databases import StoreError

_ALL: Final = "*"


class Recorded(NamedTuple):
    """The last batch that a database holds of a query."""

    query_id: str
    batch_id: int
    ends: list[SourceEnd]

    def point(self, source: str | None) -> str:
        """The name of this state of the database, as one source of the query continues it, or as all do."""
        return f"{self.query_id}:{self.batch_id}:{_ALL if source is None else source}"


def check_resumed(
    name: str, recorded: Recorded, ends: Sequence[SourceEnd], begin_of: Callable[[str], Offsets | None]
) -> None:
    """Raise StoreError unless the sources of a new query, which end there, began where the database is.

    `begin_of` returns the offsets at which a source of Spark's own connector began.
    """
    before = recorded.ends
    if not before or not ends:
        raise StoreError(
            f"{name}: resumed=True needs the offsets of Kafka sources, to see that no row is written twice; "
            f"{'this query' if before else 'the database'} has none"
        )
    if back := _before_recorded(before, ends):
        raise StoreError(
            f"{name}: the new query is at offsets before those that the database has, in "
            f"{', '.join(map(str, back))}: start it at starting_offsets()"
        )
    pairs = [(was, now) for was in before for now in ends if _same_cluster(was, now) and shared_partitions(was, now)]
    continued = [(was, now) for was, now in pairs if _continues(recorded, was, now, begin_of)]
    # two sources may read the same partitions: each old one needs its successor, each new one its predecessor
    for side in (0, 1):
        done = [pair[side] for pair in continued]
        for pair in pairs:
            if pair[side] not in done:
                topics = sorted({key.topic for key in shared_partitions(*pair)})
                raise StoreError(
                    f"{name}: the source {pair[1].source} of the new query, which reads {', '.join(topics)}, did not "
                    f"begin where the database is, at the end of batch {recorded.batch_id} of query "
                    f"{recorded.query_id}, so rows could be written twice. Give it startingOffsets from "
                    "starting_offsets() and another new checkpoint"
                )


def shared_partitions(one: SourceEnd, other: SourceEnd) -> set[TopicPartition]:
    """The partitions that both sources read, by their names."""
    return one.offsets.keys() & other.offsets.keys()


def _before_recorded(before: Sequence[SourceEnd], ends: Sequence[SourceEnd]) -> list[TopicPartition]:
    back = set()
    for cluster in {each.cluster for each in before}:
        reached = offsets_on(cluster, ends)
        recorded = offsets_on(cluster, [each for each in before if each.cluster == cluster])
        back |= {key for key, offset in recorded.items() if reached.get(key, offset) < offset}
    # our source has noticed topics that were created again, and failOnDataLoss=false lets it begin with them
    again = {
        topic
        for was in before
        for now in ends
        if _same_cluster(was, now)
        for topic, topic_id in now.topic_ids.items()
        if was.topic_ids.get(topic, topic_id) != topic_id
    }
    return sorted(key for key in back if key.topic not in again)


def _same_cluster(one: SourceEnd, other: SourceEnd) -> bool:
    return None in (one.cluster, other.cluster) or one.cluster == other.cluster


def _continues(recorded: Recorded, was: SourceEnd, now: SourceEnd, begin_of: Callable[[str], Offsets | None]) -> bool:
    if now.resumed_from is not None:
        return now.resumed_from in (recorded.point(None), recorded.point(was.source))
    begin = begin_of(now.source)
    return begin is not None and all(begin.get(key, -1) >= was.offsets[key] for key in shared_partitions(was, now))
