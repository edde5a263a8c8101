"""Fetch sessions of followers (KIP-227), whose fetches cost in proportion to the changes.

Each partition of a session is notified of appends. Those with records that the follower has not asked for yet are in
`ready`, so neither an incremental fetch nor an append looks at any other partition. Time comes in as an argument.
Source: Kafka's FetchSession and `ReplicaManager.fetchMessages`, which go through all partitions at every fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final, NamedTuple, Protocol

from odradek.log.segments.reading import LogRead
from odradek.ports.randomness import Random
from odradek.replication.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, NO_SESSION
from odradek.replication.partition import NO_EPOCH, Partition
from odradek.replication.readers import MANY_BYTES
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.fetch import FetchPartition
from odradek.wire.produce import RequestedPartition, TopicKey

MOST_SESSIONS_OF_A_BROKER = 64
MOST_AT_ONCE = 256
"""Partitions whose records an answer has. Leader and follower serve no client while they handle an answer; the next
one follows at once."""
_NOTED_IN_A_STEP: Final = 64
_NOTHING = (-1, -1)
"""Reported offsets that differ from all others: the current ones have to be reported."""

Lookup = Callable[[TopicKey, int], Partition]


class LeaderThrottle(Protocol):
    """Delays records for followers outside the ISR (`leader.replication.throttled.rate`)."""

    def holds_back(self, partition: Partition, broker_id: int) -> bool:
        """Whether the partition must not be sent to that broker now."""
        ...

    def sent(self, partition: Partition, size: int) -> None:
        """Record the bytes of the partition that are sent to a follower, in sync or not."""
        ...


class Follower(NamedTuple):
    """The broker that fetches, and the epoch of its registration."""

    broker_id: int
    broker_epoch: int


class FollowedPartition:
    """One partition of a session: the follower's offset, and the offsets that were reported to it."""

    __slots__ = (
        "_session",
        "diverging",
        "error",
        "fetch_offset",
        "leader_epoch",
        "max_bytes",
        "partition",
        "place",
        "reported",
        "was_sent",
    )

    def __init__(self, session: ReplicaSession, place: RequestedPartition) -> None:
        self._session = session
        self.place = place
        self.partition: Partition | None = None
        self.error = ErrorCode.NONE
        self.diverging: tuple[int, int] | None = None
        self.leader_epoch = NO_EPOCH
        self.fetch_offset = 0
        self.max_bytes = 0
        self.reported = _NOTHING
        """(high watermark, log start offset) as sent to the follower last."""
        self.was_sent = False
        """Whether records, or an error, were sent since the fetch that named the partition: the follower is behind."""

    def appended(self, size: int) -> None:
        """As `SessionPartition.appended`: there are records for the follower."""
        session = self._session
        ready = session.ready
        if self not in ready:
            ready[self] = None
            if self.partition is not None and size < MANY_BYTES:
                self._was_caught_up(self.partition)
        session.grew(size)

    def refresh(self) -> None:
        """As `SessionPartition.refresh`."""
        if self.partition is not None and self not in self._session.ready:
            self._was_caught_up(self.partition)

    def _was_caught_up(self, partition: Partition) -> None:
        """The follower had all records: its last fetch, which did not name the partition, is a fetch of it, too."""
        if self.was_sent:
            # That fetch may have left the follower before the answer arrived.
            return
        progress = partition.followers.progress.get(self._session.follower.broker_id)
        if progress is not None and progress.fetched_ms < self._session.fetched_ms:
            progress.caught_up_ms = progress.fetched_ms = self._session.fetched_ms

    def committed(self) -> None:
        """As `SessionPartition.committed`: the high watermark has to be reported."""
        session = self._session
        session.changed[self] = None
        if session.reports_commits:
            session.grew(MANY_BYTES)

    def started_later(self) -> None:
        """As `SessionPartition.started_later`: the log start offset has to be reported at once."""
        session = self._session
        session.changed[self] = None
        session.urgent = True
        session.grew(MANY_BYTES)

    def asked(self, wanted: FetchPartition, lookup: Lookup) -> None:
        """Note a fetch that names the partition, and the follower's progress by its offset."""
        _, leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, max_bytes = wanted
        session = self._session
        was_unused = fetch_offset == self.fetch_offset or self.diverging is not None or self.error
        self.leader_epoch = leader_epoch
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.diverging = None
        self.error = ErrorCode.NONE
        self.was_sent = False
        try:
            partition = self._resolve(lookup)
            partition.check_fetched_leader(leader_epoch)
            self.diverging = partition.diverging_epoch(fetch_offset, last_fetched_epoch)
            if self.diverging is None:
                follower = session.follower
                partition.followers.fetched(
                    follower.broker_id, follower.broker_epoch, fetch_offset, log_start_offset, session.fetched_ms
                )
                if was_unused or log_start_offset < partition.log.log_start_offset:
                    # The follower may have got the offsets beside an error or a divergence, or in an answer that it did
                    # not use, or it still persists the log start offset. Report that until the follower has done so.
                    self.reported = _NOTHING
                    session.changed[self] = None
                if fetch_offset >= partition.log.end_offset:
                    session.ready.pop(self, None)
                    return
        except KafkaError as error:
            self.error = error.code
        session.ready[self] = None

    def _resolve(self, lookup: Lookup) -> Partition:
        # A topic that was deleted and made again has another object of its partition.
        partition = lookup(*self.place)
        if partition is not self.partition:
            self.forget()
            self.partition = partition
            partition.readers.join(self)
        return partition

    def read(self, max_bytes: int, *, min_one_batch: bool) -> LogRead | None:
        """Read the records for the follower; None if the answer is `error` or `diverging` instead."""
        partition = self.partition
        if self.error or self.diverging is not None or partition is None:
            return None
        try:
            partition.check_fetched_leader(self.leader_epoch)
            return partition.read_uncommitted(
                self.fetch_offset, min(self.max_bytes, max_bytes), min_one_batch=min_one_batch
            )
        except KafkaError as error:
            self.error = error.code
            return None

    def forget(self) -> None:
        """Leave the readers of the partition."""
        if self.partition is not None:
            self.partition.readers.leave(self)
            self.partition = None


Found = tuple[FollowedPartition, LogRead | None]


class ReplicaSession:
    """The partitions that one fetcher of a broker reads from this broker."""

    __slots__ = (
        "_interrupted",
        "_is_closed",
        "_served",
        "_wake",
        "changed",
        "epoch",
        "fetched_ms",
        "follower",
        "identifier",
        "lacking",
        "members",
        "ready",
        "reports_commits",
        "urgent",
    )

    def __init__(self, identifier: int, follower: Follower, *, reports_commits: bool) -> None:
        self.identifier = identifier
        self.follower = follower
        self.reports_commits = reports_commits
        """Whether the follower is answered as soon as a high watermark moves."""
        self.epoch = 1
        self.urgent = False
        """Whether an answer must report changed offsets even if there are no records to send."""
        self.fetched_ms = 0
        self.lacking = 0
        self.members: dict[RequestedPartition, FollowedPartition] = {}
        self.ready: dict[FollowedPartition, None] = {}
        """Those with something to send, longest waiting first."""
        self.changed: dict[FollowedPartition, None] = {}
        """Those whose offsets may differ from the ones reported last."""
        self._is_closed = False
        self._served: list[FollowedPartition] = []
        self._wake: Callable[[], None] | None = None
        self._interrupted: Callable[[], None] | None = None

    def fetched(
        self,
        wanted: Iterable[tuple[RequestedPartition, FetchPartition]],
        forgotten: Iterable[RequestedPartition],
        lookup: Lookup,
        now_ms: int,
    ) -> None:
        """Note a fetch, which names the partitions whose state differs from the fetch before."""
        for _ in self.noting(wanted, forgotten, lookup, now_ms):
            pass

    def noting(
        self,
        wanted: Iterable[tuple[RequestedPartition, FetchPartition]],
        forgotten: Iterable[RequestedPartition],
        lookup: Lookup,
        now_ms: int,
    ) -> Generator[None, None, None]:
        """As `fetched`, in steps of some partitions; after the end of the session there are no more."""
        self.fetched_ms = now_ms
        for place in forgotten:
            member = self.members.pop(place, None)
            if member is not None:
                self._drop(member)
        served, self._served = self._served, []
        for number, (place, asked) in enumerate(wanted, 1):
            if not number % _NOTED_IN_A_STEP:
                yield
                if self._is_closed:
                    return
            member = self.members.get(place)
            if member is None:
                member = self.members[place] = FollowedPartition(self, place)
                self.changed[member] = None
            member.asked(asked, lookup)
        for member in served:
            # A partition of the last answer that this fetch does not name is wanted from the same offset.
            if member.place in self.members and (
                member.error or member.diverging or member.partition is None
                or member.fetch_offset < member.partition.log.end_offset
            ):  # fmt: skip
                self.ready[member] = None

    def _drop(self, member: FollowedPartition) -> None:
        member.forget()
        self.ready.pop(member, None)
        self.changed.pop(member, None)

    def collect(self, max_bytes: int, throttle: LeaderThrottle | None) -> tuple[list[Found], int, bool]:
        """Return (partitions to answer, their bytes, whether to answer at once however few these are)."""
        found: list[Found] = []
        size = 0
        must = False
        for member in self.ready:
            if found and (size >= max_bytes or len(found) >= MOST_AT_ONCE):
                # The others are the first ones of the next answer.
                must = True
                break
            partition = member.partition
            if (
                throttle is not None
                and partition is not None
                and throttle.holds_back(partition, self.follower.broker_id)
            ):
                continue
            read = member.read(max_bytes - size, min_one_batch=not size)
            if read is None:
                must = True
            elif not read.size:
                continue
            else:
                size += read.size
            found.append((member, read))
        if self.urgent:
            must = True
        elif self.reports_commits and not must:
            must = any(
                member.partition is not None and _offsets(member.partition) != member.reported
                for member in self.changed
            )
        return found, size, must

    def answered(self, found: list[Found], throttle: LeaderThrottle | None = None) -> list[FollowedPartition]:
        """Note that the collected partitions are sent; return others, of which only the offsets have to be reported."""
        for member, read in found:
            if throttle is not None and read is not None and member.partition is not None:
                throttle.sent(member.partition, read.size)
            self.ready.pop(member, None)
            self.changed.pop(member, None)
            member.was_sent = True
            if member.partition is not None:
                member.reported = _offsets(member.partition)
        self.urgent = False
        self._served += [member for member, _ in found]
        others = []
        for member in self.changed:
            if member.partition is not None and member.reported != _offsets(member.partition):
                member.reported = _offsets(member.partition)
                others.append(member)
        self.changed.clear()
        return others

    # --- waiting ---

    def wait(self, lacking: int, wake: Callable[[], None], interrupted: Callable[[], None]) -> None:
        """Call `wake` once that number of bytes has been appended, about, `interrupted` if the next fetch arrives."""
        self.lacking = lacking
        self._wake = wake
        self._interrupted = interrupted

    def interrupt(self) -> None:
        """Answer a waiting fetch as it is: its follower has sent another one, to name more partitions."""
        interrupted = self._interrupted
        if interrupted is not None:
            self.stop_waiting()
            interrupted()

    def grew(self, size: int) -> None:
        """Count appended bytes, and wake the waiting fetch if it has enough."""
        wake = self._wake
        if wake is not None:
            self.lacking -= size
            if self.lacking <= 0:
                self._wake = None
                wake()

    def stop_waiting(self) -> None:
        """Drop the callbacks of the waiting fetch."""
        self._wake = self._interrupted = None

    def close(self) -> None:
        """Leave all partitions."""
        self._is_closed = True
        self.stop_waiting()
        for member in self.members.values():
            member.forget()
        self.members.clear()
        self.ready.clear()
        self.changed.clear()


def _offsets(partition: Partition) -> tuple[int, int]:
    return partition.high_watermark, partition.log.log_start_offset


class ReplicaSessions:
    """The sessions of all followers of a broker's partitions."""

    __slots__ = ("_random", "_reports_commits", "_sessions", "now_ms", "throttle")

    def __init__(self, random: Random, *, now_ms: Callable[[], int], reports_commits: bool = False) -> None:
        """`reports_commits`: answer followers as soon as a high watermark moves, since consumers read from them."""
        self._random = random
        self._reports_commits = reports_commits
        self.now_ms = now_ms
        """Milliseconds of the monotonic clock."""
        self.throttle: LeaderThrottle | None = None
        self._sessions: dict[int, ReplicaSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def apply_throttle(self, throttle: LeaderThrottle | None) -> None:
        """Ask this throttle before records are sent; None while nothing is throttled, which costs nothing then."""
        self.throttle = throttle

    def continued(self, session_id: int, epoch: int, follower: Follower) -> ReplicaSession:
        """The session that a fetch belongs to: a new one for epoch 0, one for this fetch only for epoch -1.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self.end(session_id)
            if epoch == FINAL_EPOCH:
                return ReplicaSession(NO_SESSION, follower, reports_commits=self._reports_commits)
            return self._begin(follower)
        session = self._sessions.get(session_id)
        if session is None or session.follower != follower:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        return session

    def _begin(self, follower: Follower) -> ReplicaSession:
        others = [each for each in self._sessions.values() if each.follower.broker_id == follower.broker_id]
        # Sessions of an earlier registration of that broker are dead; of the others the longest unused one ends.
        dead = [each for each in others if each.follower != follower]
        living = sorted((each for each in others if each.follower == follower), key=lambda each: each.fetched_ms)
        for each in (*dead, *living[: max(0, len(living) + 1 - MOST_SESSIONS_OF_A_BROKER)]):
            self.end(each.identifier)
        identifier = NO_SESSION
        while identifier == NO_SESSION or identifier in self._sessions:
            identifier = self._random.randrange(MAX_EPOCH)
        session = self._sessions[identifier] = ReplicaSession(
            identifier, follower, reports_commits=self._reports_commits
        )
        return session

    def end(self, session_id: int) -> None:
        """Close the session, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def end_idle(self, since_ms: int) -> None:
        """End the sessions without a fetch since then: their connections are gone."""
        for session in [each for each in self._sessions.values() if each.fetched_ms < since_ms]:
            self.end(session.identifier)
