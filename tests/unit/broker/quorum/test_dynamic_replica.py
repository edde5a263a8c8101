"""A replica whose voters are those of its log: they are read at a start, and its vote names directories."""

from __future__ import annotations

import asyncio
from pathlib import Path

from odradek.broker.quorum.raft_replica import RaftReplica
from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.kraft.quorum_state import FILE_NAME, decode_quorum_state
from odradek.kraft.raft.machine import RaftMachine
from odradek.kraft.raft.quorum import Identity
from odradek.kraft.raft.settings import QuorumSettings
from odradek.kraft.raft.voters import Endpoint, Voter
from odradek.log.environment import LogEnvironment
from odradek.metadata.kraft.durable_log import DIRECTORY, DurableMetadataLog
from odradek.metadata.kraft.quorum_state_file import load_quorum_state
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.wire.messages.control_records import KRaftVersionRecord
from odradek.wire.messages.quorum_state import QuorumStateData
from tests.unit.broker.quorum.controllers_in_process import until
from tests.unit.broker.quorum.test_raft_replica import Notes, no_voter_answers
from tests.unit.kraft.raft.test_voters import key, voter, voters

FIRST = voter(1)


def format_with(directory: Path, *nodes: int) -> None:
    """Leave the snapshot that `storage format --initial-controllers` writes."""
    (directory / DIRECTORY).mkdir()
    found = CheckpointId(0, 0)
    controls = [KRaftVersionRecord(0, 1), voters(*nodes).to_record()]
    data = encode_checkpoint(found, [], controls=controls, timestamp_ms=0, last_timestamp_ms=0)
    (directory / DIRECTORY / found.file_name).write_bytes(data)


def replica(directory: Path, own: Voter = FIRST) -> tuple[RaftReplica, DurableMetadataLog]:
    """Node 1 on this directory, as it starts."""
    disk, clock = SystemDisk(), SystemClock()
    log = DurableMetadataLog.open(str(directory), LogEnvironment(disk, clock))
    state = load_quorum_state(disk, log.directory) or QuorumStateData()
    identity = Identity("cluster", 1, frozenset(), own.key.directory_id, own.endpoints)
    settings = QuorumSettings(append_linger_ms=0.0, election_timeout_ms=20.0)
    machine = RaftMachine(identity, settings, log.index(), state, lambda: 0.0, clock.monotonic() * 1000)
    return RaftReplica(machine, log, disk, clock, no_voter_answers), log


def test_formatted_replica_leads_and_writes_its_voters_to_the_log(tmp_path: Path) -> None:
    format_with(tmp_path, 1)

    async def scenario() -> None:
        own, log = replica(tmp_path)
        notes = Notes()
        own.start(notes)
        await until(lambda: notes.high_watermark == 3)
        assert log.index().history.voters_offset == 2
        state, version = decode_quorum_state((tmp_path / DIRECTORY / FILE_NAME).read_bytes())
        assert (state.voted_id, state.voted_directory_id, version) == (*key(1), 1)
        own.stop()
        log.close()

    asyncio.run(scenario())


def test_replica_knows_the_voters_of_its_log_after_a_restart(tmp_path: Path) -> None:
    format_with(tmp_path, 1)
    moved = voter(1)._replace(endpoints=(Endpoint("CONTROLLER", "elsewhere", 1),))

    async def move() -> None:
        own, log = replica(tmp_path, moved)
        notes = Notes()
        own.start(notes)
        await until(lambda: notes.high_watermark == 4)
        own.stop()
        log.close()

    asyncio.run(move())
    own, log = replica(tmp_path)
    assert own.machine.quorum.voters.find(1) == moved
    log.close()


def test_vote_with_static_voters_has_no_directory_on_the_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk, clock = SystemDisk(), SystemClock()
        log = DurableMetadataLog.open(str(tmp_path), LogEnvironment(disk, clock))
        identity = Identity("cluster", 1, frozenset((1,)), key(1).directory_id)
        machine = RaftMachine(identity, QuorumSettings(), log.index(), QuorumStateData(), lambda: 0.0, 0.0)
        own = RaftReplica(machine, log, disk, clock, no_voter_answers)
        own.start(Notes())
        _state, version = decode_quorum_state((tmp_path / DIRECTORY / FILE_NAME).read_bytes())
        assert version == 0
        own.stop()
        log.close()

    asyncio.run(scenario())
