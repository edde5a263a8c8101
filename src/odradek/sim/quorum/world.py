"""Replicas of a quorum in virtual time: hosts, the network between them, and the queue of what will happen."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.effects import (
    Answered,
    Effects,
    Event,
    InstallSnapshot,
    LogStep,
    Propose,
    Received,
    Reply,
    SnapshotInstalled,
    SnapshotWritten,
    Synced,
    Tick,
    TruncateTo,
    WriteSnapshot,
)
from odradek.kraft.raft.machine import RaftMachine
from odradek.kraft.raft.messages import (
    AddVoterRequest,
    Answer,
    Batch,
    FetchAnswer,
    SnapshotAnswer,
    VoteAnswer,
    VoteRequest,
)
from odradek.kraft.raft.quorum import BOOTSTRAP_NODE, Identity
from odradek.kraft.raft.roles import Leader
from odradek.kraft.raft.settings import QuorumSettings
from odradek.kraft.raft.voters import ReplicaKey
from odradek.sim.quorum.checkers import QuorumChecker, Violation
from odradek.sim.quorum.disk import Entry, QuorumDisk
from odradek.sim.quorum.voter_records import replica_key, simulated_voter, to_control, to_value, voter_set
from odradek.wire.messages.control_records import KRaftVersionRecord

SETTINGS: Final = QuorumSettings(200.0, 400.0, 200.0, 400.0, 10.0, 5.0, 100.0)
_CHUNK_BYTES: Final = 256


class Host:
    """A machine with a disk, and a process while `machine` is set."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.disk = QuorumDisk()
        self.machine: RaftMachine | None = None
        self.life = 0
        self.clock_ms = 0.0
        """What its clock adds to the time of the world."""
        self.frozen_until_ms = 0.0
        self.operations_left = -1
        """The process dies after this number of operations; -1: it does not."""
        self.tick_ms = 0.0
        self.waiting: dict[int, str] = {}
        """Values of clients by offset, appended in the present epoch."""
        self.asked_ms = float("-inf")
        """When it last asked to be added to the voters."""

    @property
    def key(self) -> ReplicaKey:
        """The replica on its disk."""
        return replica_key(self.node, self.disk.directory)


_REFUSED: Final = 0.5
"""The share of requests to a dead process that are refused; others are lost."""


class _Killed(Exception):
    """The process died between two operations."""


class QuorumWorld:
    """All hosts, and what is going to happen, in the order of its time."""

    def __init__(self, seed: int, voters: int, observers: int, *, is_dynamic: bool = False) -> None:
        """`is_dynamic`: the voters are those of the log, with which their directories are formatted."""
        self.random = Random(seed)
        self.now_ms = 0.0
        self.voters = tuple(range(1, voters + 1))
        self.is_dynamic = is_dynamic
        self.directories = voters + observers
        """The number of directories that there have been; a number names each."""
        self.hosts = {node: Host(node) for node in range(1, voters + observers + 1)}
        if is_dynamic:
            first = voter_set(replica_key(each, each) for each in self.voters)
            formatted = tuple(to_value(each, 0) for each in (KRaftVersionRecord(0, 1), first.to_record()))
            for node, host in self.hosts.items():
                host.disk = QuorumDisk(node, formatted if node in self.voters else ())
        self.checker = QuorumChecker({node: host.disk for node, host in self.hosts.items()}, self.voters)
        self.cuts: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.acked: set[str] = set()
        self.faults: Counter[str] = Counter()
        self.trace: list[str] = []
        self.steps = 0
        self.sent = 0
        self.fetch_records = self.random.choice((1, 3, 20))
        """Records in an answer to a Fetch."""
        self.slowest_sync_ms = self.random.choice((15.0, 60.0))
        self.jitter = self.random.choice((1.0, 0.02))
        """The share of an election timeout by which elections of several voters begin at different times."""
        self.settings = SETTINGS._replace(auto_join=is_dynamic and self.random.random() < 0.5)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    # --- time ---

    def at(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do this after a delay."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, action))

    def run_until(self, time_ms: float) -> None:
        """Do all that happens before this time. Raises Violation."""
        while self._queue and self._queue[0][0] <= time_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        self.now_ms = time_ms

    # --- processes ---

    def start(self, host: Host) -> None:
        """Start the process of a host from what its disk holds."""
        host.life += 1
        host.operations_left = -1
        host.waiting.clear()
        self.checker.forget_process(host.node)
        identity = self._identity(host)
        log = host.disk.open(len(self._snapshot_bytes(host)))
        try:
            host.machine = RaftMachine(identity, self.settings, log, host.disk.state, self._jitter, self._clock(host))
        except CorruptMetadata as error:
            raise Violation("NoIllegalState", f"{host.node}: {error}") from error
        self.note(f"{host.node} starts in epoch {host.machine.quorum.epoch} at {log.end}")
        self.step(host, Tick())

    def _identity(self, host: Host) -> Identity:
        if not self.is_dynamic:
            return Identity("cluster", host.node, frozenset(self.voters))
        own = simulated_voter(host.key)
        return Identity("cluster", host.node, frozenset(), own.key.directory_id, own.endpoints, len(self.hosts))

    def replace_disk(self, host: Host) -> None:
        """End the process, and give the host an empty disk, which has another directory id."""
        self.kill(host, loses_power=True)
        self.directories += 1
        host.disk = QuorumDisk(self.directories)
        self.checker.replace_disk(host.node, host.disk)

    def kill(self, host: Host, *, loses_power: bool) -> None:
        """End the process; a power loss takes unsynced records, too."""
        host.machine = None
        host.life += 1
        if loses_power:
            host.disk.lose_power(self.random)
        self.note(f"{host.node} {'loses power' if loses_power else 'is killed'}, its log ends at {host.disk.end}")

    def step(self, host: Host, event: Event) -> None:
        """Let a process take an event, and carry out its effects."""
        machine = host.machine
        if machine is None:
            return
        if self.now_ms < host.frozen_until_ms:
            life = host.life
            self.at(host.frozen_until_ms - self.now_ms, lambda: self._step_if_alive(host, life, event))
            return
        self.steps += 1
        try:
            effects = machine.step(event, self._clock(host))
        except (CorruptMetadata, AssertionError) as error:
            raise Violation("NoIllegalState", f"{host.node}: {error}") from error
        try:
            self._carry_out(host, machine, effects)
        except _Killed:
            self.faults["kill between operations"] += 1
            self.kill(host, loses_power=self.random.random() < 0.5)
            self.start_later(host)
            return
        installed = [each.snapshot for each in effects.log if isinstance(each, InstallSnapshot)]
        if installed and self.is_dynamic:
            controls = [to_control(each.value) for each in host.disk.snapshot]
            self.step(host, SnapshotInstalled(installed[-1], tuple(controls)))

    def start_later(self, host: Host) -> None:
        """Start a process after a short or a long time."""
        self.at(self.random.choice((3, self.random.uniform(20, 1500))), lambda: self.start_if_dead(host))

    def _jitter(self) -> float:
        return self.random.random() * self.jitter

    def start_if_dead(self, host: Host) -> None:
        """Start a process where there is none."""
        if host.machine is None:
            self.start(host)

    def _step_if_alive(self, host: Host, life: int, event: Event) -> None:
        if host.life == life:
            self.step(host, event)

    def _clock(self, host: Host) -> float:
        return self.now_ms + host.clock_ms

    def _operation(self, host: Host) -> None:
        if host.operations_left == 0:
            raise _Killed
        host.operations_left -= host.operations_left > 0

    # --- effects ---

    def _carry_out(self, host: Host, machine: RaftMachine, effects: Effects) -> None:
        life = host.life
        self._operation(host)
        if effects.state is not None:
            host.disk.state = effects.state
            self._operation(host)
        for step in effects.log:
            self._change_log(host, step)
            self._operation(host)
        if effects.log:
            end = host.disk.end
            self.at(self.random.uniform(0.5, self.slowest_sync_ms), lambda: self._synced(host, life, end))
        self.checker.check_step(host.node, machine, effects)
        self._acknowledge(host, machine, effects)
        if effects.leader is not None:
            self.note(f"{host.node} follows {effects.leader.leader_id} in epoch {effects.leader.epoch}")
        for send in effects.sends:
            self._operation(host)
            if isinstance(send.request, AddVoterRequest):
                host.asked_ms = self.now_ms
            received = self._on_request(host, life, send.to, send.request_id, send.request)
            self._deliver(host.node, send.to, received)
        for reply in effects.replies:
            self._operation(host)
            self._reply(host, reply)
        self._set_timer(host, effects.deadline_ms)

    def _set_timer(self, host: Host, deadline_ms: float) -> None:
        if deadline_ms == float("inf"):
            return
        due = max(self.now_ms + 0.5, deadline_ms - host.clock_ms)
        host.tick_ms = due
        life = host.life

        def tick() -> None:
            if host.life == life and host.tick_ms == due:
                self.step(host, Tick())

        self.at(due - self.now_ms, tick)

    def _change_log(self, host: Host, step: LogStep) -> None:
        disk = host.disk
        if isinstance(step, Batch):
            values = step.payload
            if isinstance(values, tuple):
                values = [to_value(each, step.epoch) for each in values]
            if host.machine is not None and isinstance(host.machine.quorum.role, Leader):
                host.waiting.update(enumerate(values, step.base_offset))
            disk.entries += [Entry(step.epoch, value) for value in values]
        elif isinstance(step, TruncateTo):
            self.faults["truncation"] += 1
            disk.truncate_to(step.offset)
        elif isinstance(step, WriteSnapshot):
            disk.part = disk.part[: step.position] + step.data
        else:
            assert isinstance(step, InstallSnapshot)
            self.faults["snapshot installed"] += 1
            try:
                content = tuple(Entry(epoch, value) for epoch, value in json.loads(disk.part))
            except ValueError as error:
                raise Violation("SnapshotIsComplete", f"{host.node} installs {step.snapshot}: {error}") from error
            disk.install(step.snapshot, content)

    def _synced(self, host: Host, life: int, end: LogEnd) -> None:
        if host.life == life:
            host.disk.sync(end)
            self.step(host, Synced(end))

    def _acknowledge(self, host: Host, machine: RaftMachine, effects: Effects) -> None:
        quorum = machine.quorum
        if not isinstance(quorum.role, Leader):
            host.waiting.clear()
        elif effects.high_watermark is not None:
            for offset in [each for each in host.waiting if each < effects.high_watermark]:
                self.acked.add(host.waiting.pop(offset))

    # --- network ---

    def _deliver(self, sender: int, receiver: int, action: Callable[[], None]) -> None:
        self.sent += 1
        random = self.random
        copies = 1 + (self.loss > 0 and random.random() < 0.03)
        for _ in range(copies):
            if (sender, receiver) in self.cuts or random.random() < self.loss:
                self.faults["message lost"] += 1
                continue
            delay = random.uniform(0.3, 6.0)
            if self.loss and random.random() < 0.02:
                delay += random.uniform(50, 1500)
                self.faults["message late"] += 1
            self.at(delay, action)

    def _on_request(self, host: Host, life: int, to: int, request_id: int, request: Any) -> Callable[[], None]:
        peer = self.hosts[BOOTSTRAP_NODE - to + 1 if to <= BOOTSTRAP_NODE else to]
        token = (host.node, life, request_id, request)

        def arrive() -> None:
            if peer.machine is not None:
                self.step(peer, Received(request, token))
            elif self.random.random() < _REFUSED:
                # The machine of the host runs, and says that no process listens.
                refused = Answered(request_id, None, is_refused=True)
                self._deliver(to, host.node, lambda: self._step_if_alive(host, life, refused))

        return arrive

    def _reply(self, host: Host, reply: Reply) -> None:
        if reply.token is None:
            return  # the request of an operator
        node, life, request_id, request = reply.token
        asker = self.hosts[node]
        answer = self._filled(host, reply.answer)
        if isinstance(request, VoteRequest) and isinstance(answer, VoteAnswer) and not request.is_pre_vote:
            self.checker.check_vote(host.node, request, answer)
        self._deliver(host.node, node, lambda: self._step_if_alive(asker, life, Answered(request_id, answer)))

    def _filled(self, host: Host, answer: Answer) -> Answer:
        """The answer with the records or the bytes that the driver of a leader reads."""
        disk = host.disk
        if isinstance(answer, FetchAnswer) and answer.read_from >= 0:
            batches = []
            for offset in range(answer.read_from, min(answer.read_from + self.fetch_records, disk.end.offset)):
                entry = disk.entry(offset)
                control = to_control(entry.value)
                controls = () if control is None else (control,)
                batches.append(Batch(offset, entry.epoch, 1, [entry.value], controls))
            return answer._replace(batches=tuple(batches))
        if isinstance(answer, SnapshotAnswer) and answer.size:
            data = self._snapshot_bytes(host)[answer.position : answer.position + _CHUNK_BYTES]
            return answer._replace(data=data)
        return answer

    # --- clients ---

    def propose(self, value: str) -> None:
        """Pass a value to every process that believes that it leads."""
        for host in self.hosts.values():
            if host.machine is not None and isinstance(host.machine.quorum.role, Leader):
                self.step(host, Propose(host.machine.quorum.epoch, 1, [value]))

    def compact_to_snapshot(self, host: Host) -> None:
        """Write a snapshot of committed records, and begin the log at its end."""
        machine = host.machine
        is_frozen = self.now_ms < host.frozen_until_ms
        if machine is None or is_frozen or machine.quorum.high_watermark <= host.disk.start.offset:
            return
        end = self.random.randint(host.disk.start.offset + 1, machine.quorum.high_watermark)
        snapshot = CheckpointId(end, machine.quorum.log.epoch_at(end))
        host.disk.begin_at(snapshot)
        self.faults["snapshot written"] += 1
        self.step(host, SnapshotWritten(snapshot, len(self._snapshot_bytes(host))))

    def _snapshot_bytes(self, host: Host) -> bytes:
        return json.dumps(host.disk.snapshot).encode()

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now_ms:9.1f} {line}")
