"""Metrics of a controller's part in its quorum: leader, epoch, ends of the metadata log, elections.

Names are those of Kafka's `KafkaRaftMetrics` as the rules of the JMX exporter render them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from odradek.metrics.definition import Family, Metric, counter, gauge, label, single


def _raft(name: str, meaning: str, labels: tuple[str, ...] = ()) -> Metric:
    counterpart = f"kafka.server:type=raft-metrics,name={name}"
    return gauge(f"kafka_server_raftmetrics_{name.replace('-', '_')}", meaning, counterpart, labels)


STATE: Final = _raft("current-state", "Always 1; the label is the role of this replica", ("current_state",))
LEADER: Final = _raft("current-leader", "The leader of the quorum that this controller knows; -1 without one")
VOTE: Final = _raft("current-vote", "The voter for which this one has voted in its epoch; -1 for none")
EPOCH: Final = _raft("current-epoch", "The newest epoch that this controller knows")
HIGH_WATERMARK: Final = _raft("high-watermark", "The offset after the last committed record; -1 if it is not known")
LOG_END: Final = _raft("log-end-offset", "The offset after the last record of this controller's metadata log")
LOG_END_EPOCH: Final = _raft("log-end-epoch", "The epoch of that record")
VOTERS: Final = _raft("number-of-voters", "Voters of the quorum, on the leader; 0 on others")
OBSERVERS: Final = _raft("number-of-observers", "Replicas that fetch from the leader and do not vote; 0 on others")
LATENCY: Final = _raft(
    "election-latency-avg", "Milliseconds from the loss of a leader to the next one, on average since the start"
)
LONGEST: Final = _raft("election-latency-max", "The longest of these")
ELECTIONS: Final = counter("odradek_quorum_elections", "Leaders of the quorum that this controller has learned of")
ABSENT: Final = gauge(
    "odradek_quorum_absent_voters", "Voters that have not fetched from the leader in the last seconds; 0 on others"
)
UNCOMMITTED: Final = gauge("odradek_quorum_uncommitted_records", "Records of this controller's log that may be lost")
REPLAYED: Final = gauge(
    "kafka_controller_kafkacontroller_lastappliedrecordoffset",
    "The offset of the last record in the controller's image",
    "kafka.controller:type=KafkaController,name=LastAppliedRecordOffset",
)
COMMITTED: Final = gauge(
    "kafka_controller_kafkacontroller_lastcommittedrecordoffset",
    "The offset of the last committed record",
    "kafka.controller:type=KafkaController,name=LastCommittedRecordOffset",
)


class QuorumFigures(NamedTuple):
    """A replica of the quorum at a moment; offsets and ids are -1 where they are not known."""

    role: str
    leader_id: int
    voted_id: int
    epoch: int
    high_watermark: int
    end_offset: int
    end_epoch: int
    replayed_offset: int
    """The offset after the last replayed record."""
    voters: int
    observers: int
    absent: tuple[int, ...]
    """Voters that do not fetch, as the leader knows."""
    elections: int
    mean_election_ms: float
    longest_election_ms: float


class QuorumMetrics:
    """Reads a replica of the quorum."""

    __slots__ = ("_figures",)

    metrics = (
        STATE,
        LEADER,
        VOTE,
        EPOCH,
        HIGH_WATERMARK,
        LOG_END,
        LOG_END_EPOCH,
        VOTERS,
        OBSERVERS,
        LATENCY,
        LONGEST,
        ELECTIONS,
        ABSENT,
        UNCOMMITTED,
        REPLAYED,
        COMMITTED,
    )
    """See `Collector`."""

    def __init__(self, figures: Callable[[], QuorumFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        found = self._figures()
        yield single(STATE, 1, label("current_state", found.role))
        for metric, value in (
            (LEADER, found.leader_id),
            (VOTE, found.voted_id),
            (EPOCH, found.epoch),
            (HIGH_WATERMARK, found.high_watermark),
            (LOG_END, found.end_offset),
            (LOG_END_EPOCH, found.end_epoch),
            (VOTERS, found.voters),
            (OBSERVERS, found.observers),
            (LATENCY, found.mean_election_ms),
            (LONGEST, found.longest_election_ms),
            (ELECTIONS, found.elections),
            (ABSENT, len(found.absent)),
            (UNCOMMITTED, found.end_offset - max(found.high_watermark, 0)),
            (REPLAYED, found.replayed_offset - 1),
            (COMMITTED, found.high_watermark - 1 if found.high_watermark > 0 else -1),
        ):
            yield single(metric, value)
