"""Carrying out what the state machine of a quorum decides: order, failures, and proposals that are never committed."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from odradek.api.services.controller_service import NotTheController
from odradek.broker.quorum import raft_replica
from odradek.broker.quorum.raft_replica import Ask, Asked, RaftReplica
from odradek.kraft.checkpoints import Checkpoint
from odradek.kraft.metadata_log import read_entries
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.metadata_records import VersionedRecord
from odradek.kraft.raft.effects import LeaderAndEpoch
from odradek.kraft.raft.machine import RaftMachine
from odradek.kraft.raft.messages import (
    BeginEpochRequest,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    Request,
    VoteAnswer,
    VoteRequest,
)
from odradek.kraft.raft.quorum import Identity
from odradek.kraft.raft.settings import QuorumSettings
from odradek.log.environment import LogEnvironment
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.metadata.kraft.quorum_state_file import load_quorum_state
from odradek.ports.clock import Clock, SystemClock
from odradek.ports.disk import SystemDisk
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.cluster_metadata import NoOpRecord
from odradek.wire.messages.quorum_state import QuorumStateData
from tests.unit.broker.quorum.controllers_in_process import until

NO_OP = VersionedRecord(NoOpRecord(), 0)


class Notes:
    """Implements `Follower`."""

    def __init__(self) -> None:
        self.high_watermark = 0
        self.leaders: list[LeaderAndEpoch] = []
        self.failures: list[BaseException] = []
        self.appended_at: list[int] = []

    def appended(self, batches: bytes | memoryview) -> None:
        self.appended_at += [each.offset for each in read_entries(bytes(batches), whole=True)]

    def truncated(self, offset: int) -> None:
        raise AssertionError(f"no other leader truncates to {offset}")

    def installed(self, content: Checkpoint, end_offset: int) -> None:
        raise AssertionError(f"no other leader has a snapshot {content} of {end_offset}")

    def committed(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)


async def no_voter_answers(_to: int, _request: Request) -> Asked:
    return Asked(None)


async def voters_elect_whoever_asks(_to: int, request: Request) -> Asked:
    if isinstance(request, VoteRequest):
        return Asked(VoteAnswer(ErrorCode.NONE, -1, request.epoch, True))
    return Asked(EpochAnswer(ErrorCode.NONE, 1, request.epoch))


class MovingClock(SystemClock):
    """The machine's, and as much further as a test says."""

    __slots__ = ("ahead",)

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return SystemClock.monotonic() + self.ahead


def replica(
    directory: Path, voters: frozenset[int] = frozenset((1,)), ask: Ask = no_voter_answers, clock: Clock | None = None
) -> tuple[RaftReplica, DurableMetadataLog]:
    disk, clock = SystemDisk(), clock or SystemClock()
    log = DurableMetadataLog.open(str(directory), LogEnvironment(disk, clock))
    state = load_quorum_state(disk, log.directory) or QuorumStateData()
    settings = QuorumSettings(append_linger_ms=0.0, election_timeout_ms=20.0)
    identity = Identity("cluster", 1, voters)
    machine = RaftMachine(identity, settings, log.index(), state, lambda: 0.0, clock.monotonic() * 1000)
    return RaftReplica(machine, log, disk, clock, ask), log


def test_sole_voter_commits_what_is_synced(tmp_path: Path) -> None:
    async def scenario() -> None:
        own, log = replica(tmp_path)
        notes = Notes()
        own.start(notes)
        epoch = own.leader.epoch
        assert own.leader.leader_id == 1
        await asyncio.gather(*(own.propose(epoch, [NO_OP, NO_OP]) for _ in range(10)))
        assert (notes.high_watermark, log.log_end.offset) == (21, 21)
        assert notes.appended_at == list(range(21))
        own.stop()
        log.close()

    asyncio.run(scenario())


def test_vote_is_on_the_disk_before_the_replica_leads(tmp_path: Path) -> None:
    async def scenario() -> None:
        own, log = replica(tmp_path)
        own.start(Notes())
        state = load_quorum_state(SystemDisk(), log.directory)
        assert state is not None
        assert (state.voted_id, state.leader_id, state.leader_epoch) == (1, 1, own.leader.epoch)
        own.stop()

    asyncio.run(scenario())


def test_proposal_without_a_majority_is_rejected_when_the_replica_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        own, _log = replica(tmp_path, frozenset((1, 2, 3)))
        own.start(Notes())
        with pytest.raises(NotTheController):
            await own.propose(1, [NO_OP])
        own.stop()

    asyncio.run(scenario())


def test_stop_rejects_what_is_not_committed(tmp_path: Path) -> None:
    async def scenario() -> None:
        own, _log = replica(tmp_path)
        own.start(Notes())
        waiting = asyncio.ensure_future(own.propose(own.leader.epoch, [NO_OP]))
        await asyncio.sleep(0)
        own.stop()
        with pytest.raises(NotTheController):
            await waiting

    asyncio.run(scenario())


def test_failed_proposal_without_a_waiting_caller_is_not_logged(tmp_path: Path) -> None:
    """As when the client that asked for it has gone."""
    complaints: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        own, _log = replica(tmp_path)
        own.start(Notes())
        failed = own.append(own.leader.epoch, [NO_OP])
        own.stop()
        await asyncio.wait({failed})
        del failed
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(scenario())
    gc.collect()
    assert complaints == []


def test_requests_that_ended_are_not_kept(tmp_path: Path) -> None:
    """A controller sends many requests in its life."""

    async def scenario() -> None:
        own, _log = replica(tmp_path, frozenset((1, 2, 3)), voters_elect_whoever_asks)
        own.start(Notes())
        await until(lambda: own.leads_since is not None)
        await own.flush()
        await until(lambda: not own._sends)
        own.stop()

    asyncio.run(scenario())


def test_deadline_that_has_passed_is_met_at_once(tmp_path: Path) -> None:
    delays: list[float] = []

    async def scenario() -> None:
        clock = MovingClock()
        own, _log = replica(tmp_path, frozenset((1, 2, 3)), clock=clock)
        own.start(Notes())
        now_ms = clock.monotonic() * 1000
        loop: Any = asyncio.get_running_loop()
        loop.call_later = lambda delay, *_: delays.append(delay)
        own._set_timer(now_ms - 5.0)
        own.stop()

    asyncio.run(scenario())
    assert delays == [0.0]


def test_failing_disk_ends_the_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        own, log = replica(tmp_path)
        notes = Notes()
        own.start(notes)
        await until(lambda: notes.high_watermark == 1)

        def fail(_batches: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(log, "append", fail)
        with pytest.raises(NotTheController):
            await own.propose(own.leader.epoch, [NO_OP])
        assert [type(each) for each in notes.failures] == [OSError]

    asyncio.run(scenario())


def test_step_that_a_mistake_interrupts_ends_the_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        own, log = replica(tmp_path)
        notes = Notes()
        own.start(notes)
        await until(lambda: notes.high_watermark == 1)

        def fail(_batches: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(log, "append", fail)
        with pytest.raises(ZeroDivisionError):
            await own.propose(own.leader.epoch, [NO_OP])
        assert len(notes.failures) == 1

    asyncio.run(scenario())


def test_leader_whose_machine_fails_gives_up_its_leadership(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine cannot resign either."""

    async def scenario() -> None:
        own, _ = replica(tmp_path)
        notes = Notes()
        own.start(notes)
        await until(lambda: notes.high_watermark == 1)

        def fail(_event: object, _now_ms: float) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(own.machine, "step", fail)
        with pytest.raises(ZeroDivisionError):
            own.receive(FetchRequest("cluster", 2, 1, LogEnd(0, 0), 0, 0.0))
        assert len(notes.failures) == 1
        assert notes.leaders[-1] == own.leader == LeaderAndEpoch(-1, 1)

    asyncio.run(scenario())


# --- leaders that are followed ---


class Followed:
    """Replica 1 as the leader of voters 1, 2 and 3, whose clock a test moves."""

    def __init__(self, directory: Path) -> None:
        self.clock = MovingClock()
        self.notes = Notes()
        self.own, self._log = replica(directory, frozenset((1, 2, 3)), voters_elect_whoever_asks, self.clock)

    @property
    def log_end(self) -> LogEnd:
        """The end of the leader's log, where a follower waits for records."""
        return self._log.log_end

    async def begin(self) -> int:
        """Lead; the epoch."""
        self.own.start(self.notes)
        await until(lambda: self.own.leads_since is not None)
        return self.own.leader.epoch

    async def fetch(self, connection: int = 7) -> None:
        """A fetch of voter 2, which is answered at once."""
        request = FetchRequest("cluster", 2, self.own.leader.epoch, LogEnd(0, 0), 0, 0.0, connection=connection)
        await self.own.receive(request)


def test_leader_without_followers_waits_until_a_majority_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = Followed(tmp_path)
        epoch = await world.begin()
        waiting = asyncio.ensure_future(world.own.followed.wait(epoch))
        await world.fetch()
        await asyncio.sleep(0.01)
        assert not waiting.done(), "this fetch may have been sent before"
        await world.fetch()
        await waiting
        await world.own.followed.wait(epoch)
        world.own.stop()

    asyncio.run(scenario())


def test_fetch_that_was_sent_before_the_leader_stood_still_ends_no_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = Followed(tmp_path)
        epoch = await world.begin()
        await world.fetch()
        await world.fetch()
        world.clock.ahead = 0.9
        await world.own.followed.wait(epoch)
        world.clock.ahead = 1.1  # half a fetch timeout is one second
        waiting = asyncio.ensure_future(world.own.followed.wait(epoch))
        await world.fetch()
        await asyncio.sleep(0.01)
        assert not waiting.done(), "it follows the answer of 1.1 s ago"
        await world.fetch()
        await waiting
        world.own.stop()

    asyncio.run(scenario())


def test_leader_that_is_deposed_waits_no_longer(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = Followed(tmp_path)
        epoch = await world.begin()
        waiting = asyncio.ensure_future(world.own.followed.wait(epoch))
        given_up = asyncio.ensure_future(world.own.followed.wait(epoch))
        await asyncio.sleep(0)
        given_up.cancel()
        await world.own.receive(BeginEpochRequest("cluster", 1, epoch + 1, 2))
        with pytest.raises(NotTheController):
            await waiting
        assert given_up.cancelled()
        with pytest.raises(NotTheController):
            await world.own.followed.wait(epoch)
        world.own.stop()

    asyncio.run(scenario())


def test_leader_that_stops_waits_no_longer(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = Followed(tmp_path)
        epoch = await world.begin()
        waiting = asyncio.ensure_future(world.own.followed.wait(epoch))
        await asyncio.sleep(0)
        world.own.stop()
        with pytest.raises(NotTheController):
            await waiting

    asyncio.run(scenario())


def test_leader_that_ends_answers_waiting_fetches(tmp_path: Path) -> None:
    """Followers would notice the end by the timeout of their fetches only."""

    async def scenario() -> None:
        world = Followed(tmp_path)
        epoch = await world.begin()
        # As of a follower that knows of all commits: others are answered once the leader's log is synced.
        fetch = FetchRequest("cluster", 2, epoch, world.log_end, world.log_end.offset, 60_000.0, connection=7)
        waiting = world.own.receive(fetch)
        assert not waiting.done()
        world.own.end()
        served = await asyncio.wait_for(waiting, 30)
        assert isinstance(served.answer, FetchAnswer)
        assert served.answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await world.own.flush()

    asyncio.run(scenario())


def test_leader_that_cannot_write_the_next_epoch_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has entered that epoch already, in which it leads no longer; its answers are lost with the step."""

    async def scenario() -> None:
        world = Followed(tmp_path)
        epoch = await world.begin()
        # As of a follower that knows of all commits: others are answered once the leader's log is synced.
        fetch = FetchRequest("cluster", 2, epoch, world.log_end, world.log_end.offset, 60_000.0, connection=7)
        waiting = world.own.receive(fetch)

        def fail(*_state: object, version: int) -> None:
            raise OSError(5, f"Input/output error in version {version}")

        monkeypatch.setattr(raft_replica, "save_quorum_state", fail)
        vote = world.own.receive(VoteRequest("cluster", 1, epoch + 1, 2, LogEnd(0, 0), is_pre_vote=False))
        for each in (waiting, vote):
            with pytest.raises(KafkaError, match="This controller stops") as raised:
                await asyncio.wait_for(each, 30)
            assert raised.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        assert [type(each) for each in world.notes.failures] == [OSError]
        assert world.notes.leaders[-1] == world.own.leader == LeaderAndEpoch(-1, epoch + 1)
        await world.own.flush()

    asyncio.run(scenario())


def test_fetch_of_records_that_cannot_be_read_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = Followed(tmp_path)
        await world.begin()

        def fail(_log: object, _offset: int, _size: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(DurableMetadataLog, "read", fail)
        with pytest.raises(KafkaError, match="This controller stops"):
            await asyncio.wait_for(world.fetch(), 30)
        assert [type(each) for each in world.notes.failures] == [OSError]
        await world.own.flush()

    asyncio.run(scenario())


def test_sole_voter_does_not_wait_for_followers(tmp_path: Path) -> None:
    async def scenario() -> None:
        own, log = replica(tmp_path)
        own.start(Notes())
        await own.followed.wait(own.leader.epoch)
        with pytest.raises(NotTheController):
            await own.followed.wait(own.leader.epoch - 1)
        own.stop()
        log.close()

    asyncio.run(scenario())
