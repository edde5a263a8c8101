"""Carries out what `RaftMachine` decides: its state and log on the disk, its requests over the network, its timer.

One step at a time, in the order that `effects` asks for. The log is synced in the disk's thread, beside the messages;
the vote before them, in this one: it changes with elections only.
Source: Kafka's `KafkaRaftClient`, `KafkaRaftClientDriver`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from odradek.api.services.controller_service import NotTheController
from odradek.broker.quorum.followed_leader import FollowedLeader
from odradek.broker.task_failures import logs_failure
from odradek.client.network.connections import retrieve_failure
from odradek.kraft.checkpoints import Checkpoint, CheckpointId
from odradek.kraft.control_records import encode_control_batch
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_log import encode_metadata_batch
from odradek.kraft.metadata_records import VersionedRecord
from odradek.kraft.raft.effects import (
    Answered,
    Effects,
    Event,
    InstallSnapshot,
    LeaderAndEpoch,
    Propose,
    Received,
    Resign,
    Send,
    SnapshotInstalled,
    SnapshotWritten,
    Synced,
    Tick,
    TruncateTo,
)
from odradek.kraft.raft.machine import RaftMachine
from odradek.kraft.raft.messages import (
    NO_NODE,
    Answer,
    Batch,
    FetchAnswer,
    Request,
    SnapshotAnswer,
    UpgradeVersionRequest,
)
from odradek.kraft.raft.quorum import NEVER
from odradek.kraft.raft.roles import Follower as RaftFollower
from odradek.kraft.raft.roles import Leader
from odradek.kraft.raft.wire_requests import FETCH_BYTES
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.metadata.kraft.quorum_state_file import save_quorum_state
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("odradek.broker.quorum")
_log_failure = logs_failure(logger, "the replica of the metadata log failed")

SYNC_LANE: Final = "metadata log"
"""The lane of `Disk.run` that syncs the log."""
_STOPS: Final = "This controller stops."


class Asked(NamedTuple):
    """The answer of a voter; None if the request failed."""

    answer: Answer | None
    is_refused: bool = False
    """No process listens at the voter's address."""


Ask = Callable[[int, Request], Awaitable[Asked]]
"""Sends a request to the voter with this id."""


class Follower(Protocol):
    """What follows the log of the replica. Calls come in the order of the changes, and do not wait."""

    def appended(self, batches: bytes | memoryview) -> None:
        """Batches were appended, which may never be committed."""
        ...

    def truncated(self, offset: int) -> None:
        """The records from the offset on are gone: they were never committed."""
        ...

    def installed(self, content: Checkpoint, end_offset: int) -> None:
        """A snapshot has replaced the log."""
        ...

    def committed(self, high_watermark: int) -> None:
        """The records below the offset are committed."""
        ...

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """The leader or the epoch is another."""
        ...

    def failed(self, error: BaseException) -> None:
        """The disk or the log is bad: the replica ends for good, right after this call at the latest."""
        ...


class Served(NamedTuple):
    """An answer, with the records that it has."""

    answer: Answer
    records: bytes = b""


class _Proposal(NamedTuple):
    """Records that wait to be committed. `ends` gets the offset after them once they are appended."""

    epoch: int
    records: Sequence[VersionedRecord]
    ends: list[int]
    done: asyncio.Future[None]


class RaftReplica:
    """`start`; then `receive` requests of other replicas, and `propose` records while it leads; `stop` ends it."""

    __slots__ = (
        "_ask",
        "_clock",
        "_disk",
        "_events",
        "_follower",
        "_is_stopped",
        "_is_syncing",
        "_log",
        "_machine",
        "_proposals",
        "_requests",
        "_sends",
        "_timer",
        "followed",
    )

    def __init__(self, machine: RaftMachine, log: DurableMetadataLog, disk: Disk, clock: Clock, ask: Ask) -> None:
        self._machine = machine
        self._log = log
        self._disk = disk
        self._clock = clock
        self._ask = ask
        self._follower: Follower | None = None
        self._events: deque[Event] = deque()
        self._is_stopped = True
        self._is_syncing = False
        self._timer: asyncio.TimerHandle | None = None
        self._sends: set[asyncio.Task[None]] = set()
        self._proposals: list[_Proposal] = []
        self._requests: dict[asyncio.Future[Served], None] = {}
        """Those that the machine has not answered, in their order."""
        self.followed = FollowedLeader(machine, clock)
        """Waits until a majority follows this leader."""

    # --- what it knows ---

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader of the newest epoch; -1 while it is not known, and once this replica takes part no longer."""
        quorum = self._machine.quorum
        return LeaderAndEpoch(NO_NODE if self._is_stopped else quorum.leader_id, quorum.epoch)

    @property
    def leads_since(self) -> int | None:
        """The offset of the first record of the epoch that this replica leads; None if it does not lead."""
        role = self._machine.quorum.role
        return role.epoch_start if isinstance(role, Leader) else None

    @property
    def known_high_watermark(self) -> int | None:
        """The high watermark, once this replica knows it from the leader of its epoch; None before."""
        quorum = self._machine.quorum
        role = quorum.role
        if isinstance(role, Leader):
            return quorum.high_watermark if role.has_committed else None
        return quorum.high_watermark if isinstance(role, RaftFollower) and role.has_fetched else None

    @property
    def machine(self) -> RaftMachine:
        """The state machine, to read."""
        return self._machine

    @property
    def next_offset(self) -> int:
        """The offset of the next record that this leader is passed."""
        waiting = sum(len(each.records) for each in self._proposals if not each.ends)
        return self._machine.quorum.log.end_offset + waiting

    # --- life ---

    def start(self, follower: Follower) -> None:
        """Take part in the quorum; the follower has all records that are in the log already."""
        self._follower = follower
        self._is_stopped = False
        self.submit(Tick())

    def resign(self) -> None:
        """Let another voter lead, as this process shuts down."""
        self.submit(Resign())

    async def flush(self) -> None:
        """Wait until the requests under way are answered or have failed."""
        if self._sends:
            await asyncio.wait(set(self._sends))

    def end(self) -> None:
        """Resign and take part no longer, without the disk; `flush` waits until the other voters know.

        The epoch that it leads has been on the disk since it voted for itself.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        self._cease()
        assert self._follower is not None, "it has started"
        # Even if the machine does not lead: a step that ended its leadership may have failed before the follower knew.
        self._follower.leader_changed(LeaderAndEpoch(NO_NODE, self._machine.quorum.epoch))
        try:
            if self.leads_since is not None:
                effects = self._machine.step(Resign(), self._now_ms())
                for send in effects.sends if effects.state is None else ():
                    self._begin_send(send)
                for reply in effects.replies:
                    if isinstance(reply.answer, FetchAnswer) and reply.answer.error is not ErrorCode.NONE:
                        self._reply(reply.token, reply.answer)
        finally:
            # Among them are requests that the failed step would have answered.
            for token in self._requests:
                if not token.done():
                    token.add_done_callback(retrieve_failure)
                    token.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, _STOPS))

    def stop(self) -> None:
        """Take part no longer, and give up the requests under way."""
        self._is_stopped = True
        self._cease()
        for task in self._sends:
            task.cancel()

    def _cease(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._reject_proposals(0)
        self.followed.close()

    # --- events ---

    def receive(self, request: Request | UpgradeVersionRequest) -> asyncio.Future[Served]:
        """The answer to a request of another replica, or of the controller; a fetch may wait for records."""
        if self._is_stopped:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, _STOPS)
        token: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
        self._requests[token] = None
        self.submit(Received(request, token))
        return token

    async def propose(self, epoch: int, records: Sequence[VersionedRecord]) -> None:
        """Return once the records are committed in this epoch; without records, once all earlier ones are.

        Raises NotTheController if this replica does not lead the epoch, or loses it: the records may be committed
        nevertheless.
        """
        await asyncio.shield(self.append(epoch, records))

    def append(self, epoch: int, records: Sequence[VersionedRecord]) -> asyncio.Future[None]:
        """Let records follow those of earlier calls; done as `propose` returns. It must not be cancelled."""
        if not records and self._proposals:
            return self._proposals[-1].done
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not records:
            done.set_result(None)
            return done
        if self.leads_since is None or self._machine.quorum.epoch != epoch or self._is_stopped:
            raise NotTheController(ErrorCode.NOT_CONTROLLER)
        done.add_done_callback(retrieve_failure)
        proposal = _Proposal(epoch, records, [], done)
        self._proposals.append(proposal)
        self.submit(Propose(epoch, len(records), proposal))
        return done

    def snapshot_written(self, snapshot: CheckpointId, size: int) -> None:
        """The log begins at a snapshot of committed records, which is durable."""
        self.submit(SnapshotWritten(snapshot, size))

    def submit(self, event: Event) -> None:
        """Let the machine take an event, after those that it takes already."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        failure: BaseException | None = RuntimeError("a step was not carried out completely")
        try:
            while self._events and not self._is_stopped:
                self._carry_out(self._machine.step(self._events[0], self._now_ms()))
                self._events.popleft()
            failure = None
        except (CorruptMetadata, KafkaError, OSError) as error:
            failure = error
        finally:
            # Half of a step may have left the vote, the log and the machine at odds: none of them counts any longer.
            self._events.clear()
            if failure is not None:
                self._fail(failure)

    def _fail(self, error: BaseException) -> None:
        if self._is_stopped:
            return
        logger.critical("the replica of the metadata log in %s failed: %s", self._log.directory, error)
        assert self._follower is not None, "events come after the start"
        try:
            self._follower.failed(error)  # before it is notified of the end of the leadership
        finally:
            self.end()

    # --- effects ---

    def _carry_out(self, effects: Effects) -> None:
        follower = self._follower
        assert follower is not None, "events come after the start"
        if effects.state is not None:
            save_quorum_state(self._disk, self._log.directory, effects.state, version=self._machine.quorum.version)
        for step in effects.log:
            self._change_log(step, follower)
        if effects.log:
            self._begin_sync()
        for send in effects.sends:
            self._begin_send(send)
        for reply in effects.replies:
            self._reply(reply.token, reply.answer)
        if effects.leader is not None or self.leads_since is None:
            self._reject_proposals(self._machine.quorum.epoch if self.leads_since is not None else NEVER)
        if effects.high_watermark is not None:
            self._accept_proposals(effects.high_watermark)
            follower.committed(effects.high_watermark)
        self.followed.look()
        if effects.leader is not None:
            logger.info("the quorum's leader in epoch %d is %d", effects.leader.epoch, effects.leader.leader_id)
            follower.leader_changed(effects.leader)
        self._set_timer(effects.deadline_ms)

    def _change_log(self, step: Any, follower: Follower) -> None:
        if isinstance(step, Batch):
            batches = self._encoded(step)
            self._log.append(batches)
            follower.appended(batches)
        elif isinstance(step, TruncateTo):
            self._log.truncate_to(step.offset)
            follower.truncated(step.offset)
        elif isinstance(step, InstallSnapshot):
            content = self._log.install_snapshot(step.snapshot)
            # The machine takes the voters of the snapshot before any other event; the event in progress is the first.
            self._events.insert(1, SnapshotInstalled(step.snapshot, tuple(content.controls)))
            follower.installed(content, step.snapshot.end_offset)
        else:
            self._log.write_snapshot(step.snapshot, step.position, step.data)

    def _encoded(self, batch: Batch) -> bytes | memoryview:
        """The bytes of a batch: as a leader sent them, or of the records that this one appends."""
        payload = batch.payload
        if isinstance(payload, bytes | memoryview):
            return payload
        now_ms = self._clock.now_ms()
        if not isinstance(payload, _Proposal):
            return encode_control_batch(
                payload, base_offset=batch.base_offset, leader_epoch=batch.epoch, timestamp_ms=now_ms
            )
        payload.ends.append(batch.base_offset + batch.record_count)
        return encode_metadata_batch(
            payload.records,
            base_offset=batch.base_offset,
            leader_epoch=batch.epoch,
            timestamp_ms=now_ms,
        )

    def _accept_proposals(self, high_watermark: int) -> None:
        kept = []
        for each in self._proposals:
            if each.ends and each.ends[0] <= high_watermark:
                if not each.done.done():
                    each.done.set_result(None)
            else:
                kept.append(each)
        self._proposals = kept

    def _reject_proposals(self, epoch: float) -> None:
        """Fail what was proposed in other epochs than this one; `epoch` 0 or infinity: all of it."""
        for each in self._proposals:
            if each.epoch != epoch and not each.done.done():
                each.done.set_exception(NotTheController(ErrorCode.NOT_CONTROLLER))
        self._proposals = [each for each in self._proposals if each.epoch == epoch]

    # --- messages ---

    def _begin_send(self, send: Send) -> None:
        task = asyncio.get_running_loop().create_task(self._send(send))
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)
        task.add_done_callback(_log_failure)

    async def _send(self, send: Send) -> None:
        asked = await self._ask(send.to, send.request)
        self.submit(Answered(send.request_id, asked.answer, asked.is_refused))

    def _reply(self, token: asyncio.Future[Served], answer: Answer) -> None:
        if not token.done():  # the connection has not ended
            records = b""
            if isinstance(answer, FetchAnswer) and answer.read_from >= 0:
                records = self._log.read(answer.read_from, FETCH_BYTES)
            elif isinstance(answer, SnapshotAnswer) and answer.size and answer.snapshot is not None:
                data, _size = self._log.read_snapshot(answer.snapshot, answer.position, FETCH_BYTES)
                answer = answer._replace(data=data)
            token.set_result(Served(answer, records))
        self._requests.pop(token, None)

    # --- the disk's thread ---

    def _begin_sync(self) -> None:
        if self._is_syncing:
            return  # it looks at the end of the log again
        self._is_syncing = True
        task = asyncio.get_running_loop().create_task(self._sync())
        task.add_done_callback(_log_failure)

    async def _sync(self) -> None:
        """Sync until nothing is left to sync, and let the machine know of each end."""
        try:
            synced = None
            while synced != self._log.log_end:
                synced = await self._log.sync_in_thread(SYNC_LANE)
                if self._is_stopped:
                    return
                if synced is not None:
                    self.submit(Synced(synced))
        except (KafkaError, OSError) as error:
            self._fail(error)
        finally:
            self._is_syncing = False

    # --- time ---

    def _set_timer(self, deadline_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms != NEVER and not self._is_stopped:
            seconds = max(0.0, deadline_ms - self._now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self.submit, Tick())

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000
