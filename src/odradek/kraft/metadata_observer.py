"""An observer of the metadata log: which request comes next, and what an answer does to the log. Pure.

The driver sends the request of `poll`, passes the answer to `fetched` or `snapshot_fetched` (or calls `failed`), and
carries out the returned steps, in their order and durably, before it polls again. Records below `high_watermark` are
committed. An observer finds the leader by asking the bootstrap servers: each voter names the leader it knows.
Source: KIP-595, KIP-630, KIP-853; Kafka's `KafkaRaftClient` as an observer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.errors import CorruptMetadata
from odradek.records.batch import LOG_OVERHEAD, check_batch, split_batches
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import ErrorCode, error_code
from odradek.wire.messages import fetch, fetch_snapshot

_TOPIC: Final = "__cluster_metadata"
_TOPIC_ID: Final = bytes(15) + b"\x01"
_NO_LEADER: Final = -1
_UNKNOWN: Final = -1
"""The high watermark of a leader that has committed nothing yet."""
_FETCH_BYTES: Final = 8 << 20
_FETCH_WAIT_MS: Final = 500
_MAX_RETRY_FACTOR: Final = 10
_MOVED: Final = frozenset(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
)
"""Errors that are normal around an election: they name the leader, or ask for patience."""


class Server(NamedTuple):
    """Where a controller is reached."""

    host: str
    port: int


class LogEnd(NamedTuple):
    """The end offset of the log, and the leader epoch of its last record (0 without records)."""

    offset: int
    epoch: int


BEGINNING: Final = LogEnd(0, 0)
"""The end of an empty log."""


class Ask(NamedTuple):
    """Send the request to this server."""

    server: Server
    request: fetch.FetchRequest | fetch_snapshot.FetchSnapshotRequest


class Append(NamedTuple):
    """Append these batches, which are checked and follow the end of the log."""

    batches: memoryview


class TruncateTo(NamedTuple):
    """Remove the records from this offset on."""

    offset: int


class WriteSnapshot(NamedTuple):
    """Write bytes of a snapshot's file at this position; position 0 begins it."""

    id: CheckpointId
    position: int
    data: memoryview


class InstallSnapshot(NamedTuple):
    """The snapshot is complete: replace the log by it. The log then begins at the snapshot's end offset."""

    id: CheckpointId


Step = Append | TruncateTo | WriteSnapshot | InstallSnapshot


class ObserverIdentity(NamedTuple):
    """Who fetches; `directory_id` is that of the directory with the metadata log."""

    cluster_id: str
    node_id: int
    directory_id: bytes


def fetch_request(
    identity: ObserverIdentity,
    epoch: int,
    end: LogEnd,
    high_watermark: int = _UNKNOWN,
    max_wait_ms: int = _FETCH_WAIT_MS,
) -> fetch.FetchRequest:
    """Fetch from the leader of that epoch what follows this end, or a high watermark above the known one."""
    partition = fetch.FetchRequestPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        log_start_offset=-1,
        partition_max_bytes=_FETCH_BYTES,
        replica_directory_id=identity.directory_id,
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=identity.cluster_id,
        replica_state=fetch.FetchRequestReplicaState(identity.node_id, -1),
        max_wait_ms=max_wait_ms,
        max_bytes=_FETCH_BYTES,
        topics=[fetch.FetchRequestTopic(_TOPIC, _TOPIC_ID, [partition])],
    )


class MetadataObserver:
    """The position in the log, the leader, and the snapshot that is being fetched.

    `start` is the snapshot with which the log begins, `epochs` are the (epoch, first offset) of its records. Times
    are milliseconds of a monotonic clock; `retry_ms` is `controller.quorum.retry.backoff.ms`. A request without an
    answer within `controller.quorum.fetch.timeout.ms` has failed.
    """

    def __init__(
        self,
        identity: ObserverIdentity,
        bootstrap: Sequence[Server],
        *,
        start: LogEnd = BEGINNING,
        epochs: Sequence[tuple[int, int]] = (),
        end_offset: int = 0,
        retry_ms: float = 20.0,
    ) -> None:
        self.leader_id = _NO_LEADER
        self.epoch = epochs[-1][0] if epochs else start.epoch
        self.end_offset = max(end_offset, start.offset)
        self.high_watermark = start.offset
        """The end of the records that are known to be committed: those of a snapshot are, the rest the leader says."""
        self.problem = ""
        """Why the last request failed; empty after a success."""
        self._identity = identity
        self._bootstrap = list(bootstrap)
        self._start = start
        self._epochs = list(epochs)
        self._retry_ms = retry_ms
        self._leader_server: Server | None = None
        self._asked: Server | None = None
        self._turn = 0
        self._not_before_ms = 0.0
        self._failures = 0
        self._committed = _UNKNOWN
        self._snapshot: CheckpointId | None = None
        self._snapshot_bytes = 0

    @property
    def leader(self) -> Server | None:
        """Where the leader is reached; None while no answer has come from it."""
        return self._leader_server

    @property
    def is_caught_up(self) -> bool:
        """Whether the log has all that was committed when the leader last answered."""
        return self._leader_server is not None and 0 <= self._committed <= self.high_watermark

    @property
    def log_end(self) -> LogEnd:
        """The end of the log, as fetches name it."""
        return LogEnd(self.end_offset, self._epochs[-1][0] if self._epochs else self._start.epoch)

    def poll(self, now_ms: float) -> Ask | float:
        """The next request, or how many milliseconds to wait before the next call."""
        if now_ms < self._not_before_ms:
            return self._not_before_ms - now_ms
        server = self._leader_server
        if server is None:
            self._snapshot = None
            server = self._bootstrap[self._turn % len(self._bootstrap)]
            self._turn += 1
        self._asked = server
        return Ask(server, self._fetch() if self._snapshot is None else self._fetch_snapshot(self._snapshot))

    def failed(self, problem: str, now_ms: float) -> None:
        """No answer: ask another bootstrap server after a pause, which doubles up to ten times `retry_ms`.

        Until they elect, voters name a leader that has died, and every answer leads to it again.
        """
        self.problem = problem
        self._leader_server = None
        self._not_before_ms = now_ms + self._retry_ms * min(2 ** min(self._failures, 4), _MAX_RETRY_FACTOR)
        self._failures += 1

    def fetched(self, response: fetch.FetchResponse, now_ms: float) -> list[Step]:
        """Take the answer to a Fetch.

        Raises CorruptMetadata where the leader contradicts committed records: the broker must not continue.
        """
        problem = error_code(response.error_code)
        if problem is not ErrorCode.NONE or not response.responses or not response.responses[0].partitions:
            self.failed(f"a controller answers a Fetch with {problem.name}", now_ms)
            return []
        partition = response.responses[0].partitions[0]
        leader = partition.current_leader
        servers = {each.node_id: Server(each.host, each.port) for each in response.node_endpoints}
        if not self._follows(leader.leader_id, leader.leader_epoch, servers, error_code(partition.error_code), now_ms):
            return []
        snapshot, diverging = partition.snapshot_id, partition.diverging_epoch
        if snapshot.epoch >= 0:
            return self._begin_snapshot(CheckpointId(snapshot.end_offset, snapshot.epoch))
        if diverging.epoch >= 0:
            return [self._truncate(LogEnd(diverging.end_offset, diverging.epoch))]
        records = memoryview(partition.records or b"")
        try:
            steps: list[Step] = [Append(batches)] if (batches := self._checked(records)) else []
        except CorruptRecords as error:
            self.failed(f"the leader sent damaged records: {error}", now_ms)
            return []
        self._committed = partition.high_watermark
        self.high_watermark = max(self.high_watermark, min(self._committed, self.end_offset))
        return steps

    def snapshot_fetched(self, response: fetch_snapshot.FetchSnapshotResponse, now_ms: float) -> list[Step]:
        """Take the answer to a FetchSnapshot. What does not fit ends the snapshot, and a Fetch asks for the next."""
        problem = error_code(response.error_code)
        wanted = self._snapshot
        if problem is not ErrorCode.NONE or wanted is None or not response.topics or not response.topics[0].partitions:
            self._snapshot = None
            self.failed(f"a controller answers a FetchSnapshot with {problem.name}", now_ms)
            return []
        part = response.topics[0].partitions[0]
        leader = part.current_leader
        servers = {each.node_id: Server(each.host, each.port) for each in response.node_endpoints}
        error = error_code(part.error_code)
        if not self._follows(leader.leader_id, leader.leader_epoch, servers, error, now_ms):
            self._snapshot = None
            return []
        found = part.snapshot_id
        data = memoryview(part.unaligned_records)
        fits = (found.end_offset, found.epoch) == wanted and part.position == self._snapshot_bytes
        if not fits or self._snapshot_bytes + len(data) > part.size or (not data and part.size > self._snapshot_bytes):
            self._snapshot = None
            self.failed(f"the leader sent another part of the snapshot {wanted.file_name} than the next", now_ms)
            return []
        steps: list[Step] = [WriteSnapshot(wanted, self._snapshot_bytes, data)]
        self._snapshot_bytes += len(data)
        if self._snapshot_bytes == part.size:
            self._snapshot = None
            self._start, self._epochs = LogEnd(*wanted), []
            self.end_offset = self.high_watermark = wanted.end_offset
            steps.append(InstallSnapshot(wanted))
        return steps

    # --- the leader ---

    def _follows(self, leader: int, epoch: int, servers: dict[int, Server], error: ErrorCode, now_ms: float) -> bool:
        """Take the leader and the epoch that an answer names; whether its content counts."""
        if 0 <= epoch < self.epoch:
            self.failed(f"a controller is in the old epoch {epoch}", now_ms)
            return False
        if epoch == self.epoch and 0 <= leader != self.leader_id >= 0:
            self.failed(f"epoch {epoch} has the leaders {self.leader_id} and {leader}", now_ms)
            return False
        if epoch > self.epoch or (epoch == self.epoch and leader != self.leader_id and leader >= 0):
            self.epoch, self.leader_id = epoch, leader
            self._snapshot = self._leader_server = None
        known = servers.get(self.leader_id) if self.leader_id >= 0 else None
        if error is ErrorCode.NONE:
            self._leader_server = known or self._asked
            self.problem = ""
            self._failures = 0
            return True
        if error in _MOVED and known is not None and known != self._asked:
            self._leader_server = known
            self.problem = ""
        else:
            self.failed(f"a controller answers {error.name}", now_ms)
        return False

    # --- the log ---

    def _checked(self, records: memoryview) -> memoryview:
        """The complete batches, which `end_offset` and the epochs count from here on. Raises CorruptRecords."""
        offset, epochs, end = self.end_offset, list(self._epochs), 0
        for position, header in split_batches(records, allow_partial_tail=True):
            check_batch(records, position, from_client=False)
            if header.base_offset != offset:
                raise CorruptRecords(f"offset {header.base_offset} follows {offset}")
            epoch = header.partition_leader_epoch
            last = epochs[-1][0] if epochs else self._start.epoch
            if not last <= epoch <= self.epoch:
                raise CorruptRecords(f"epoch {epoch} of offset {offset} follows {last} in epoch {self.epoch}")
            if epoch > last or not epochs:
                epochs.append((epoch, offset))
            offset = header.next_offset
            end = position + header.batch_length + LOG_OVERHEAD
        self.end_offset, self._epochs = offset, epochs
        return records[:end]

    def _truncate(self, common: LogEnd) -> TruncateTo:
        """Truncate to what the leader may have, too: the end of the last epoch that is not after `common`."""
        end = self._start.offset if common.epoch >= self._start.epoch else 0
        kept = [(epoch, start) for epoch, start in self._epochs if epoch <= common.epoch]
        if kept:
            end = self._epochs[len(kept)][1] if len(kept) < len(self._epochs) else self.end_offset
        if common.epoch == (kept[-1][0] if kept else self._start.epoch):
            end = min(end, common.offset)
        if end < self.high_watermark:
            raise CorruptMetadata(
                f"leader {self.leader_id} of epoch {self.epoch} lacks committed records: its log ends at {end}, and "
                f"records are committed to offset {self.high_watermark}"
            )
        self._epochs = [(epoch, start) for epoch, start in kept if start < end]
        self.end_offset = end
        return TruncateTo(end)

    def _begin_snapshot(self, found: CheckpointId) -> list[Step]:
        if found.end_offset < self.high_watermark:
            raise CorruptMetadata(
                f"the leader {self.leader_id} offers the snapshot {found.file_name}, and records are committed to "
                f"offset {self.high_watermark}"
            )
        self._snapshot, self._snapshot_bytes = found, 0
        return []

    # --- requests ---

    def _fetch(self) -> fetch.FetchRequest:
        return fetch_request(self._identity, self.epoch, self.log_end, self.high_watermark)

    def _fetch_snapshot(self, wanted: CheckpointId) -> fetch_snapshot.FetchSnapshotRequest:
        identity = self._identity
        partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
            partition=0,
            current_leader_epoch=self.epoch,
            snapshot_id=fetch_snapshot.FetchSnapshotRequestSnapshotId(wanted.end_offset, wanted.epoch),
            position=self._snapshot_bytes,
            replica_directory_id=identity.directory_id,
        )
        return fetch_snapshot.FetchSnapshotRequest(
            cluster_id=identity.cluster_id,
            replica_id=identity.node_id,
            max_bytes=_FETCH_BYTES,
            topics=[fetch_snapshot.FetchSnapshotRequestTopicSnapshot(_TOPIC, [partition])],
        )
