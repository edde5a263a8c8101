"""One or three simulated controllers that replicate a metadata log.

The model is small and honest to brokers: only a majority commits, a new leader's log is as complete as a majority's and
may keep or lose records that were not committed, a deposed leader answers until it notices, and records are fetched
before they are committed. Elections are atomic: `odradek.sim.quorum` is where Raft itself is tested.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from odradek.kraft.control_records import encode_control_batch
from odradek.metadata.features import ELR_VERSION, GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.difference import difference
from odradek.sim.checkers.history import Violation
from odradek.sim.controllers.model_log import ModelBatch, ModelLog, encode_batch_of
from odradek.sim.world.loop import Process, SimulatedLoop
from odradek.wire.messages.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from odradek.wire.messages.control_records import LeaderChangeMessage

if TYPE_CHECKING:
    from odradek.sim.world.network import SimulatedNetwork

CONTROLLER_PORT: Final = 9093
FETCH_TIMEOUT_SECONDS: Final = 2.0
"""A follower without its leader for that long seeks election (`controller.quorum.fetch.timeout.ms`)."""
CHECK_QUORUM_SECONDS: Final = 1.5 * FETCH_TIMEOUT_SECONDS
"""A leader that no majority has fetched from for that long resigns."""
CLUSTER_ID: Final = "sim-cluster-of-kraft-w"
_TICK_SECONDS: Final = 0.1
_FIRST_NODE_ID: Final = 101
_UNKNOWN: Final = -1


class Deposed(Exception):
    """The controller leads no longer; its records may never be committed."""


class Leading(Protocol):
    """The controller's decisions while it leads."""

    def tick(self) -> None:
        """Look at sessions of brokers."""
        ...


class ModelController:
    """A controller's process and its log."""

    def __init__(self, quorum: ModelQuorum, node_id: int) -> None:
        self.quorum = quorum
        self.node_id = node_id
        self.host = f"c{node_id}"
        self.log = ModelLog(quorum.first_image)
        self.epoch = 0
        self.leader_id = -1
        self.high_watermark = _UNKNOWN
        self.heard_at = 0.0
        """When a follower last received from its leader."""
        self.process: Process | None = None
        self.active: Leading | None = None
        """Its decisions, once a record of its epoch is committed."""
        self.acked: dict[int, tuple[int, float]] = {}
        """Of a leader: the end of each follower's log, and when it was learned."""
        self.followed_at: dict[int, float] = {}
        """Of a leader: when it sent what each follower has acknowledged last."""
        self.slow_until = 0.0
        """Until then its records are not replicated."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._follow_waits: list[tuple[float, asyncio.Future[None]]] = []
        self._changed: list[asyncio.Future[None]] = []
        self._incarnation = 0

    @property
    def is_up(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.alive

    @property
    def is_awake(self) -> bool:
        """Whether the process lives and does not stand still."""
        return self.process is not None and self.process.alive and self.process.paused_until <= self.quorum.loop.time()

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self.leader_id == self.node_id

    # --- life ---

    def start(self) -> None:
        """Start the process: it knows its log and its epoch, and no leader."""
        self._incarnation += 1
        process = self.process = Process(f"{self.host}.{self._incarnation}", self.host)
        self.leader_id, self.high_watermark, self.active = -1, self.log.start.offset or _UNKNOWN, None
        self.heard_at = self.quorum.loop.time()
        self.quorum.serve(self, process)

    def kill(self) -> None:
        """kill -9: the log stays."""
        if self.process is not None and self.process.alive:
            self.quorum.note(f"{self.host} is killed")
            self._waiting.clear()
            self._follow_waits.clear()
            self._changed.clear()
            self.quorum.loop.kill(self.process)

    # --- the log ---

    def append(self, batch: ModelBatch) -> None:
        """Of a leader: append, and replicate soon."""
        self.log.batches.append(batch)
        self.wake()
        self.quorum.replicate(self)

    async def append_records(self, records: Sequence[Any], image: ClusterImage, *, as_one: bool) -> None:
        """Append a decision, and wait until all that precedes it is committed. Raises Deposed.

        Unless it shall be one batch, it may become a metadata transaction of several.
        """
        if records:
            now_ms = self.quorum.now_ms()
            before, base = self.log.image, self.log.end.offset
            parts = [list(records)]
            if not as_one and len(records) > 1 and self.quorum.rng.random() < 0.3:
                middle = len(records) // 2
                begun = BeginTransactionRecord("sim")
                parts = [[begun, *records[:middle]], [*records[middle:]], [EndTransactionRecord()]]
            for index, part in enumerate(parts):
                is_last = index == len(parts) - 1
                after = image if is_last else before
                self.append(encode_batch_of(part, base, self.epoch, now_ms, after, is_open=not is_last))
                base += len(part)
        end = self.log.end.offset
        if self.high_watermark >= end:
            return
        done = self.quorum.loop.create_future()
        self._waiting.append((end, done))
        await done

    async def wait_until_followed(self) -> None:
        """Of a leader: wait until a majority was in its epoch half a fetch timeout ago or later. Raises Deposed.

        Apache's controllers do so, too: they answer once all records before are committed, and write a no-op each half
        second (`metadata.max.idle.interval.ms`).
        """
        since = self.quorum.loop.time() - FETCH_TIMEOUT_SECONDS / 2
        if self._majority_followed_at() >= since:
            return
        done = self.quorum.loop.create_future()
        self._follow_waits.append((since, done))
        await done

    def _majority_followed_at(self) -> float:
        others = [self.followed_at.get(each.node_id, -1.0) for each in self.quorum.controllers if each is not self]
        return sorted([*others, float("inf")], reverse=True)[len(self.quorum.controllers) // 2]

    def acknowledged(self, node_id: int, end: int, sent_at: float) -> None:
        """Of a leader: a follower has its log to this offset, as it was sent then."""
        known = self.acked.get(node_id, (_UNKNOWN, 0.0))[0]
        self.acked[node_id] = max(known, end), self.quorum.loop.time()
        self.followed_at[node_id] = max(self.followed_at.get(node_id, sent_at), sent_at)
        followed_at = self._majority_followed_at()
        ready = [done for since, done in self._follow_waits if since <= followed_at]
        self._follow_waits = [each for each in self._follow_waits if each[0] > followed_at]
        for done in ready:
            if not done.done():
                done.set_result(None)

    async def wait_for_change(self, seconds: float) -> None:
        """Wait until the log grows, its high watermark advances, or the leader changes."""
        changed = self.quorum.loop.create_future()
        self._changed.append(changed)
        try:
            async with asyncio.timeout(seconds):
                await changed
        except TimeoutError:
            return

    def wake(self) -> None:
        """Answer fetches that wait."""
        waiting, self._changed = self._changed, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def commit(self, offset: int) -> None:
        """Advance the high watermark, of a leader or a follower."""
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        if self.is_leader:
            self.quorum.committed(self, offset)
            ready = [done for end, done in self._waiting if end <= offset]
            self._waiting = [each for each in self._waiting if each[0] > offset]
            for done in ready:
                if not done.done():
                    done.set_result(None)
        self.wake()

    def follow(self, leader_id: int, epoch: int) -> None:
        """Take part in an epoch; whatever was led before is over."""
        if (leader_id, epoch) == (self.leader_id, self.epoch):
            return
        was_leader = self.is_leader
        self.leader_id, self.epoch, self.active = leader_id, epoch, None
        if was_leader:
            waiting = [*self._waiting, *self._follow_waits]
            self._waiting, self._follow_waits = [], []
            for _, done in waiting:
                if not done.done():
                    done.set_exception(Deposed())
                    done.exception()
        self.wake()


class Parts(NamedTuple):
    """The parts of a world that its quorum calls."""

    activate: Callable[[ModelController, ClusterImage], Leading]
    """Makes the decisions of a controller that has become active."""
    serve: Callable[[ModelController, Process], None]
    """Opens the listener of a controller's process."""
    committed: Callable[[ModelBatch], None]
    """Called with each committed batch, in their order."""
    reported: Callable[[Any], None]
    """Called with each registration and heartbeat that is accepted."""
    note: Callable[[str], None]
    """Adds a line to the trace."""


class ModelQuorum:
    """All controllers of a world."""

    def __init__(
        self, loop: SimulatedLoop, network: SimulatedNetwork, seed: str, size: int, now_ms: Callable[[], int]
    ) -> None:
        self.loop = loop
        self.network = network
        self.now_ms = now_ms
        self.rng = random.Random(f"{seed}:quorum")
        levels = {METADATA_VERSION: 30, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
        if self.rng.random() < 0.5:
            levels[ELR_VERSION] = 1
        self.first_image = ClusterImage(CLUSTER_ID)
        self._bootstrap = self.first_image.with_features(levels, 0)
        self.committed_batches: dict[int, ModelBatch] = {}
        """By the offset after them: what no controller may ever contradict."""
        self.committed_end = 0
        self.images: dict[int, ClusterImage] = {0: self.first_image}
        """By the offset after them: the images that brokers may have."""
        self.controllers = [ModelController(self, _FIRST_NODE_ID + index) for index in range(size)]
        self.reported_at: dict[int, float] = {}
        """When a controller last took a heartbeat of each broker."""
        self.unfenced_at: dict[tuple[int, int], float] = {}
        """See `CommittedLog`."""
        self._parts = Parts(_unset, _unset, _ignored, _ignored, _ignored)
        self.elections = 0

    def connect(self, parts: Parts) -> None:
        """Connect the quorum with its world, before it runs."""
        self._parts = parts

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self._parts.note(text)

    def reported(self, request: Any) -> None:
        """A controller accepts a registration or a heartbeat."""
        self._parts.reported(request)

    def serve(self, controller: ModelController, process: Process) -> None:
        """Open the listener of a controller's process."""
        self._parts.serve(controller, process)

    @property
    def bootstrap_servers(self) -> str:
        """`controller.quorum.bootstrap.servers`."""
        return ",".join(f"{each.host}:{CONTROLLER_PORT}" for each in self.controllers)

    @property
    def image(self) -> ClusterImage:
        """The image after all committed records."""
        return self.images[self.committed_end]

    @property
    def leader(self) -> ModelController | None:
        """The active controller of the newest epoch, if it is awake."""
        found = [each for each in self.controllers if each.is_awake and each.active is not None]
        return max(found, key=lambda each: each.epoch, default=None)

    async def run(self) -> None:
        """Elections, replication and sessions, until the run ends."""
        for each in self.controllers:
            each.start()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._tick()

    def spawn(self, controller: ModelController, work: Coroutine[Any, Any, Any]) -> None:
        """Run work of a controller in its process; it ends where the controller is deposed."""
        assert controller.process is not None
        self.loop.create_task(_until_deposed(work), context=controller.process.context)

    def heal(self) -> None:
        """The end of all faults."""
        for each in self.controllers:
            each.slow_until = 0.0
            if not each.is_up:
                each.start()

    # --- elections ---

    def _tick(self) -> None:
        now = self.loop.time()
        for each in self.controllers:
            if not each.is_awake:
                continue
            if each.is_leader:
                self._check_quorum(each, now)
            elif now - each.heard_at > FETCH_TIMEOUT_SECONDS and self.rng.random() < 0.5:
                self._stand(each, now)
            if each.is_leader:
                self.replicate(each)
                if each.active is not None:
                    each.active.tick()

    def _check_quorum(self, leader: ModelController, now: float) -> None:
        reached = [at for _, at in leader.acked.values() if now - at <= CHECK_QUORUM_SECONDS]
        if 2 * (len(reached) + 1) <= len(self.controllers):
            self.note(f"{leader.host} resigns in epoch {leader.epoch}")
            leader.follow(-1, leader.epoch)
            leader.heard_at = now

    def _stand(self, candidate: ModelController, now: float) -> None:
        """Seek votes, as after a pre-vote: followers of a working leader reject it."""
        voters = [
            each
            for each in self.controllers
            if each is candidate
            or (
                each.is_awake
                and self._reach_each_other(candidate, each)
                and not each.is_leader
                and now - each.heard_at > FETCH_TIMEOUT_SECONDS
                and each.log.order <= candidate.log.order
            )
        ]
        if 2 * len(voters) > len(self.controllers):
            self.elect(candidate, voters)

    def elect(self, candidate: ModelController, voters: Sequence[ModelController]) -> None:
        """Let it lead the next epoch."""
        now = self.loop.time()
        epoch = max(each.epoch for each in self.controllers) + 1
        self.elections += 1
        self.note(f"{candidate.host} is elected in epoch {epoch} by {len(voters)}")
        for each in voters:
            each.follow(-1, epoch)
            each.heard_at = now
        candidate.high_watermark = _UNKNOWN
        candidate.follow(candidate.node_id, epoch)
        candidate.acked = {each.node_id: (_UNKNOWN, now) for each in voters if each is not candidate}
        candidate.followed_at = dict.fromkeys(candidate.acked, now)
        change = LeaderChangeMessage(0, candidate.node_id, [], [])
        base = candidate.log.end.offset
        data = encode_control_batch([change], base_offset=base, leader_epoch=epoch, timestamp_ms=self.now_ms())
        last = candidate.log.batches[-1] if candidate.log.batches else None
        is_open = last is not None and last.is_open
        candidate.append(ModelBatch(base, base + 1, epoch, data, candidate.log.image, is_open))

    def _reach_each_other(self, one: ModelController, other: ModelController) -> bool:
        return not (self.is_cut(one.host, other.host) or self.is_cut(other.host, one.host))

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from one host to the other now."""
        return self.network.link(source, target).cut_until > self.loop.time()

    # --- replication ---

    def replicate(self, leader: ModelController) -> None:
        """Bring the log to the followers, each after a while."""
        if leader.slow_until > self.loop.time():
            return
        self._count(leader)
        for each in self.controllers:
            if each is not leader and not self.is_cut(leader.host, each.host):
                delay = self.rng.uniform(0.0005, 0.004)
                sent = leader, each, leader.epoch, self.loop.time()
                self.loop.call_later(delay, self._deliver, *sent, context=self.network.context)

    def _deliver(self, leader: ModelController, follower: ModelController, epoch: int, sent_at: float) -> None:
        is_over = leader.epoch != epoch or not leader.is_leader or not leader.is_up
        if is_over or not follower.is_awake or follower.epoch > epoch:
            return
        follower.follow(leader.node_id, epoch)
        follower.heard_at = self.loop.time()
        before = follower.log.end.offset
        follower.log.copy(leader.log)
        if follower.log.batches and follower.log.batches[-1].base >= before and self.rng.random() < 0.2:
            # A part of what the leader has appended at once; never less than what was acknowledged.
            follower.log.batches.pop()
        follower.commit(min(leader.high_watermark, follower.log.end.offset))
        if not self.is_cut(follower.host, leader.host):
            delay, acked = self.rng.uniform(0.0005, 0.004), (follower.node_id, follower.log.end.offset, sent_at)
            self.loop.call_later(delay, self._acknowledge, leader, epoch, *acked, context=self.network.context)

    def _acknowledge(self, leader: ModelController, epoch: int, follower_id: int, end: int, sent_at: float) -> None:
        if not leader.is_awake or leader.epoch != epoch or not leader.is_leader:
            return
        leader.acknowledged(follower_id, end, sent_at)
        self._count(leader)

    def _count(self, leader: ModelController) -> None:
        """Commit what a majority has, once a record of this epoch is among it."""
        ends = sorted([leader.log.end.offset, *(end for end, _ in leader.acked.values())], reverse=True)
        majority = len(self.controllers) // 2
        if majority >= len(ends):
            return
        first = next((each.base for each in leader.log.batches if each.epoch == leader.epoch), None)
        if first is None and leader.log.start.epoch != leader.epoch:
            return
        if first is None or ends[majority] > first:
            leader.commit(ends[majority])
        if leader.active is None and leader.high_watermark > (first or 0):
            self._begin(leader)

    def _begin(self, leader: ModelController) -> None:
        image = leader.log.replayed()
        if leader.log.batches and leader.log.batches[-1].is_open:
            # The former leader has died in a metadata transaction.
            end = leader.log.end.offset
            leader.append(encode_batch_of([AbortTransactionRecord()], end, leader.epoch, self.now_ms(), image))
        if not image.features:
            first = difference(self.first_image, self._bootstrap)
            image = self._bootstrap
            leader.append(encode_batch_of(first, leader.log.end.offset, leader.epoch, self.now_ms(), image))
        leader.active = self._parts.activate(leader, image)

    def committed(self, leader: ModelController, offset: int) -> None:
        """Note what is committed; the run ends where two leaders have committed different records."""
        for batch in leader.log.batches:
            if batch.end > offset:
                break
            known = self.committed_batches.get(batch.end)
            if known is not None and known.data != batch.data:
                self.loop.broken = Violation("the model of the quorum commits one log", f"offset {batch.base} twice")
                return
            if known is None and batch.base >= self.committed_end:
                self.committed_batches[batch.end] = batch
                self.images[batch.end] = batch.image
                self.committed_end = batch.end
                self._parts.committed(batch)


async def _until_deposed(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except Deposed:
        return


def _unset(*_: Any) -> Any:
    raise AssertionError("the world connects it")


def _ignored(_: Any) -> None:
    return None
