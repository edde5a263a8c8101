"""Replicas of one partition in one process: real logs, real Fetch bytes, and a controller of a few lines.

Nothing happens by itself: who fetches, what is delivered and who dies is up to the test.
"""

from __future__ import annotations

from pathlib import Path

from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import NO_LEADER, PartitionState
from odradek.ports.disk import FileRange, SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.records.batch import split_batches
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.record import decode_records
from odradek.replication.follower import FollowedLog, Next
from odradek.replication.in_sync import IsrProposal
from odradek.replication.partition import Partition, PartitionEnvironment
from odradek.replication.replica_sessions import Follower, ReplicaSessions
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.fetch import FetchedPartition, decode_request, encode_response
from odradek.wire.replica_fetch import FetchedReplica, ReplicaFetchRequest, ReplicaFetchResponse
from tests.unit.log.support import NOW, log_environment

TOPIC_ID = b"replicated-topic"
VERSION = 17
Place = tuple[bytes, int]


class Replica:
    """A broker as far as one partition needs it."""

    def __init__(self, broker_id: int, path: Path, cluster: Cluster) -> None:
        self.id = broker_id
        self.path = path
        self.cluster = cluster
        self.reported: list[PartitionState] = []
        """What the controller has said and this broker has not heard yet."""
        self.alive = False
        self.epoch = 0
        path.mkdir()

    def start(self, log_start_offset: int = 0) -> None:
        self.alive = True
        self.cluster.registrations += 1
        self.epoch = self.cluster.registrations
        environment = log_environment(SystemDisk())
        log = PartitionLog.open(
            "t", 0, str(self.path), self.cluster.config, environment, log_start_offset=log_start_offset
        )
        self.proposals: list[tuple[IsrProposal, PartitionState]] = []
        self.persists_starts = True
        around = PartitionEnvironment(
            now_ms=lambda: self.cluster.now_ms,
            is_eligible=self.cluster.is_eligible,
            propose=self._propose,
            persist_start=self._persist_start,
        )
        self.partition = Partition("t", TOPIC_ID, 0, self.id, log, around)
        self.sessions = ReplicaSessions(SeededRandom(self.epoch), now_ms=around.now_ms)
        self.followed: FollowedLog | None = None
        self.session: tuple[int, int, int, int] | None = None

    def _persist_start(self, partition: Partition, offset: int) -> None:
        if self.persists_starts:
            partition.replicated.start_persisted(offset)

    def _propose(self, partition: Partition) -> None:
        assert partition.followers.proposal is not None
        known = PartitionState(
            partition.leader, partition.leader_epoch, partition.replicas, partition.isr, partition.partition_epoch
        )
        self.proposals.append((partition.followers.proposal, known))

    def crash(self) -> None:
        """The process dies; what it wrote stays in its files."""
        self.alive = False
        self.reported.clear()

    def apply_next(self) -> None:
        """Take over what the controller said first of what is not heard yet."""
        self.partition.apply_state(self.reported.pop(0))

    def hear_the_sum(self) -> None:
        """Take over the last state alone: the controller sends differences, however many changes they sum up."""
        self.reported[:-1] = ()
        self.apply_next()

    def records(self, upper_offset: int | None = None) -> list[tuple[int, bytes]]:
        log = self.partition.log
        upper = log.end_offset if upper_offset is None else upper_offset
        found: list[tuple[int, bytes]] = []
        for view in log.reader.read_batches(log.log_start_offset, upper):
            for position, header in split_batches(view):
                found += [(r.offset, bytes(r.value or b"")) for r in decode_records(view, header, position)]
        return [each for each in found if each[0] < upper]

    # --- follower ---

    def ask(self) -> tuple[int, bytes] | None:
        """The bytes of the next fetch, and the leader that they go to."""
        partition = self.partition
        if partition.is_leader or partition.leader == NO_LEADER:
            return None
        if self.followed is None or not self.followed.is_current:
            self.followed = FollowedLog(partition)
            self.session = None
        request = ReplicaFetchRequest(self.id, self.epoch, 0, 1, 1 << 20)
        if self.session is not None and self.session[:2] == (partition.leader, partition.leader_epoch):
            request.session_id, request.session_epoch = self.session[2:]
            self.session = (*self.session[:3], self.session[3] + 1)
        row = self.followed.row(self.cluster.fetch_bytes)
        self.row = row[1], row[2]
        request.topics = [(TOPIC_ID, [row])]
        out = bytearray()
        request.encode(out, VERSION)
        return partition.leader, bytes(out)

    def take(self, leader_id: int, answer: bytes, row: tuple[int, int] | None = None) -> Next | None:
        """Take an answer to the request with that leader epoch and offset, unless it is not of now."""
        response, _ = ReplicaFetchResponse.decode(memoryview(bytearray(answer)), 9, VERSION)
        followed = self.followed
        if followed is not None and row not in (None, (followed.leader_epoch, self.partition.log.end_offset)):
            return None
        if response.error_code or followed is None:
            self.session = None
            return None
        if self.session is None:
            self.session = (leader_id, followed.leader_epoch, response.session_id, 1)
        following = None
        for fetched in response.partitions:
            following = self._take(leader_id, followed, fetched)
        return following

    def _take(self, leader_id: int, followed: FollowedLog, fetched: FetchedReplica) -> Next:
        following = followed.received(fetched, NOW)
        if following is Next.OFFSETS:
            leader = self.cluster.replicas[leader_id]
            if leader.alive and leader.partition.is_leader and leader.partition.leader_epoch == followed.leader_epoch:
                log = leader.partition.log
                following = followed.offsets_known(log.log_start_offset, log.end_offset)
        if following is Next.FETCH and not fetched.error_code and fetched.diverging_epoch is None:
            assert self.partition.high_watermark <= max(fetched.high_watermark, 0)
        return following

    # --- leader ---

    def serve(self, data: bytes) -> bytes:
        request, _ = decode_request(memoryview(data), 0, VERSION)
        follower = Follower(request.replica_id, request.replica_epoch)
        try:
            session = self.sessions.continued(request.session_id, request.session_epoch, follower)
        except KafkaError as error:
            return joined(encode_response(VERSION, 1, [], error_code=error.code))
        wanted = [((topic, entry[0]), entry) for topic, entries in request.topics for entry in entries]
        session.fetched(wanted, (), lambda _topic, _index: self.partition, self.cluster.now_ms)
        found, _, _ = session.collect(request.max_bytes, None)
        reported = session.answered(found)
        rows = []
        for member, read in found:
            high_watermark, start = member.reported
            if read is None:
                rows.append(FetchedPartition(0, member.error, high_watermark, diverging_epoch=member.diverging))
            else:
                rows.append(FetchedPartition(0, 0, high_watermark, -1, start, read.ranges, read.size))
        rows += [FetchedPartition(0, 0, member.reported[0], -1, member.reported[1]) for member in reported]
        return joined(encode_response(VERSION, 1, [(TOPIC_ID, rows)], session_id=session.identifier))


def joined(parts: object) -> bytes:
    return b"".join(
        part.file.read(part.position, part.size) if isinstance(part, FileRange) else bytes(part)
        for part in parts  # type: ignore[attr-defined]
    )


class Cluster:
    """The replicas and a controller that elects from the ISR only."""

    def __init__(self, path: Path, brokers: int = 3, **settings: int) -> None:
        self.config = LogConfig(**settings)  # type: ignore[arg-type]
        self.now_ms = 1_000_000
        self.fetch_bytes = 1 << 20
        self.registrations = 0
        self.sent = 0
        self.acked: list[tuple[int, bytes]] = []
        ids = tuple(range(1, brokers + 1))
        self.state = PartitionState(1, 0, ids, ids)
        self.replicas = {broker_id: Replica(broker_id, path / f"{broker_id}", self) for broker_id in ids}
        for replica in self.replicas.values():
            replica.start()
            replica.reported.append(self.state)

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        replica = self.replicas[broker_id]
        return replica.alive and broker_epoch == replica.epoch

    # --- controller ---

    def change(self, **fields: object) -> None:
        state = self.state
        self.state = state._replace(partition_epoch=state.partition_epoch + 1, **fields)  # type: ignore[arg-type]
        for replica in self.replicas.values():
            if replica.alive:
                replica.reported.append(self.state)

    def elect(self, broker_id: int) -> None:
        self.change(leader=broker_id, leader_epoch=self.state.leader_epoch + 1)

    def crash(self, broker_id: int) -> None:
        """A broker dies and the controller notices: out of the ISR unless it is the last of it."""
        self.replicas[broker_id].crash()
        state = self.state
        isr = tuple(i for i in state.isr if i != broker_id) or state.isr
        leader = state.leader
        if leader == broker_id:
            leader = next((i for i in isr if self.replicas[i].alive), NO_LEADER)
        if leader != state.leader:
            self.change(isr=isr, leader=leader, leader_epoch=state.leader_epoch + 1)
        elif isr != state.isr:
            self.change(isr=isr)

    def restart(self, broker_id: int) -> None:
        replica = self.replicas[broker_id]
        replica.start()
        if self.state.leader == NO_LEADER and broker_id in self.state.isr:
            self.elect(broker_id)
        replica.reported[:] = [self.state]

    def alter(self, leader_id: int, *, lose_answer: bool = False) -> None:
        """The controller decides about the leader's oldest proposal."""
        leader = self.replicas[leader_id]
        proposal, known = leader.proposals.pop(0)
        epochs = dict(leader.partition.followers.isr_with_epochs(proposal, leader.epoch))
        if (known.leader, known.leader_epoch) != (self.state.leader, self.state.leader_epoch):
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif proposal.partition_epoch != self.state.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif not all(
            self.replicas[i].alive and self.replicas[i].epoch == epochs.get(i, -1)
            for i in proposal.isr
            if i not in self.state.isr
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            error = ErrorCode.NONE
            self.change(isr=proposal.isr)
        if not lose_answer:
            leader.partition.followers.proposal_answered(proposal, error, None if error else self.state)
        elif leader.partition.followers.proposal is proposal:
            leader.proposals.append((proposal, known))

    # --- clients and the passing of time ---

    def leader(self) -> Replica | None:
        """Who leads as the controller has it, and knows."""
        found = self.replicas.get(self.state.leader)
        if found is None or not found.alive:
            return None
        partition = found.partition
        return found if partition.is_leader and partition.leader_epoch == self.state.leader_epoch else None

    def produce(self, broker_id: int, *, acks_all: bool = True, records: int = 1) -> bool:
        """Write to whoever takes itself for the leader; remembers what is acknowledged."""
        replica = self.replicas[broker_id]
        self.sent += 1
        values = [b"%d-%d" % (self.sent, i) for i in range(records)]
        data = memoryview(encode_batch([(NOW, b"k", value, ()) for value in values], BatchFields()))
        partition = replica.partition
        try:
            result = partition.append(data, now_ms=NOW, all_in_sync=acks_all)
        except KafkaError:
            return False
        written = list(zip(range(result.first_offset, result.last_offset + 1), values, strict=True))

        def committed() -> None:
            last = result.last_offset
            if partition.commit_error(last, ErrorCode.NOT_LEADER_OR_FOLLOWER) in (
                ErrorCode.NONE,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ):
                self.acked.extend(written)

        partition.when_committed(result.last_offset, committed)
        return True

    def fetch(self, broker_id: int) -> Next | None:
        """One fetch of a follower, there and back."""
        replica = self.replicas[broker_id]
        asked = replica.ask()
        if asked is None or not self.replicas[asked[0]].alive:
            return None
        return replica.take(asked[0], self.replicas[asked[0]].serve(asked[1]))

    def leave_behind(self, broker_id: int) -> None:
        """A follower falls silent, and the leader has it taken out of the ISR."""
        leader = self.leader()
        if leader is None or leader.id == broker_id:
            return
        self.now_ms += 40_000
        for replica in self.replicas.values():
            if replica.alive and replica.id != broker_id:
                self.fetch(replica.id)
        leader.partition.followers.shrink_isr()
        while leader.proposals:
            self.alter(leader.id)

    def run_rounds(self, rounds: int = 30) -> None:
        """All replicas are alive and receive everything, until no replica changes."""
        for replica in self.replicas.values():
            if not replica.alive:
                self.restart(replica.id)
        for _ in range(rounds):
            for replica in self.replicas.values():
                while replica.reported:
                    replica.apply_next()
            for replica in self.replicas.values():
                self.fetch(replica.id)
                while replica.proposals:
                    self.alter(replica.id)
            self.now_ms += 100
