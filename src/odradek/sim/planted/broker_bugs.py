"""Bugs that are planted on purpose, one at a time, to prove that the search would find them.

Each is a function put in the place of one of the product's for the duration of a run. Nothing of this is in the
product: what is planted is planted from here.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final, NamedTuple

from odradek.records.batch import parse_header
from odradek.sim.planted.access_bugs import ACCESS_BUGS
from odradek.sim.planted.audit_bugs import AUDIT_BUGS
from odradek.sim.planted.cluster_bugs import CLUSTER_BUGS
from odradek.sim.planted.controller_bugs import CONTROLLER_BUGS
from odradek.sim.planted.hold_bugs import HOLD_BUGS
from odradek.sim.planted.kraft_bugs import KRAFT_BUGS
from odradek.sim.planted.mistakes import watched
from odradek.sim.planted.quorum_bugs import QUORUM_BUGS
from odradek.sim.run import run_seed
from odradek.sim.targets import replaced
from odradek.wire.errors import KafkaError

SEED_LIMIT: Final = 100
"""Within so many seeds every planted bug has to be found."""

KNOWN_SEEDS: Final = {
    "promises not kept": 66,
    "promises of a majority": 46,
    "promises for later partitions": 1795384657,
    "zombies not fenced": 54,
    "silent brokers not fenced": 98,
    "lease ignores deposed controllers": 11,
    "snapshot continued at another leader": 129,
}
"""The seeds that found rare bugs last: tried first, as the search from seed 1 on takes minutes.

A change of traces makes them seeds like any other; the search then continues from seed 1.
"""


class Planted(NamedTuple):
    """A bug: its name, what it stands for, the profile in which it is searched, where it goes and what goes there."""

    name: str
    story: str
    profile: str
    targets: tuple[str, ...]
    make: Callable[[Any], Any]


BUGS: Final[list[Planted]] = [
    Planted(*row)
    for rows in (CLUSTER_BUGS, ACCESS_BUGS, AUDIT_BUGS, HOLD_BUGS, QUORUM_BUGS, KRAFT_BUGS, CONTROLLER_BUGS)
    for row in rows
]


def _bug(name: str, story: str, profile: str, *targets: str) -> Callable[[Callable[[Any], Any]], None]:
    """Register what makes the wrong function from each right one; a target is `module:Class.attribute`."""

    def register(make: Callable[[Any], Any]) -> None:
        BUGS.append(Planted(name, story, profile, targets, make))

    return register


@contextlib.contextmanager
def planted(bug: Planted) -> Iterator[list[str]]:
    """Put the bug in, and take it out again. The list receives the mistakes of the planted code (`mistakes.py`)."""
    mistakes: list[str] = []
    with replaced((target, lambda right: watched(bug.make(right), mistakes)) for target in bug.targets):
        yield mistakes


def _nothing(*_: Any, **__: Any) -> None:
    return None


# --- the log: producers ---


@_bug("duplicate appended", "a leader appends a repeated batch instead of answering it", "network",
      "odradek.log.producers.state:ProducerStates._duplicate")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, entry, header, crc_at: None


@_bug("sequence off by one", "a leader accepts a gap of one in the sequence", "network",
      "odradek.log.producers.state:ProducerStates.check")  # fmt: skip
def _(right: Any) -> Any:
    def check(self: Any, header: Any, *, from_client: bool, **more: Any) -> Any:
        entry = self.producers.get(header[9])
        if entry is not None and entry.batches and header[10] == entry.epoch and header[11] == entry.last_sequence:
            return None
        if entry is not None and entry.batches and header[11] + header[6] == entry.last_sequence:
            return None
        return right(self, header, from_client=from_client, **more)

    return check


@_bug("rejected batch skipped", "a leader appends the batch after one that it has rejected", "crash",
      "odradek.replication.refused_batches:RefusedBatches.check")  # fmt: skip
def _(right: Any) -> Any:
    def check(self: Any, batches: memoryview, producers: Any, now_ms: int) -> None:
        try:
            right(self, batches, producers, now_ms)
        except KafkaError:
            header = parse_header(batches)
            entry = producers.producers.get(header.producer_id)
            if entry is not None and entry.batches:
                entry.batches[-1] = entry.batches[-1]._replace(last_sequence=header.base_sequence - 1)

    return check


@_bug("duplicates unknown after restart", "a restart does not load the snapshot's producers", "crash",
      "odradek.log.producers.state:ProducerStates.load")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, data: self.clear()


@_bug("open transactions forgotten", "after a restart the broker does not know which transactions are open", "txn",
      "odradek.log.producers.state:ProducerStates.load")  # fmt: skip
def _(right: Any) -> Any:
    def load(self: Any, data: bytes) -> None:
        right(self, data)
        self._ongoing.clear()

    return load


@_bug("zombies not fenced", "a leader accepts a batch of an older producer epoch", "network",
      "odradek.log.producers.state:ProducerStates._check_epoch")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("stable offset ignores open transactions", "the last stable offset is the high watermark", "txn",
      "odradek.log.history:LogHistory.last_stable_offset")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, high_watermark: high_watermark


@_bug("stable offset ignores the oldest transaction", "of several open transactions the newest holds readers back",
      "txn", "odradek.log.producers.state:ProducerStates.first_unstable_offset")  # fmt: skip
def _(right: Any) -> Any:
    return property(lambda self: max(self._ongoing, default=None))


@_bug("aborted transactions not indexed", "aborted transactions are missing in the index for readers", "txn",
      "odradek.log.segments.transaction_index:TransactionIndex.add")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("aborted transactions lost at restart", "recovery does not write the transaction index again", "txn",
      "odradek.log.recovery:_replay_batch")  # fmt: skip
def _(right: Any) -> Any:
    def replay(segment: Any, at: Any, producers: Any) -> None:
        index = segment.transactions.__class__
        keep, index.add = index.add, _nothing
        try:
            right(segment, at, producers)
        finally:
            index.add = keep

    return replay


@_bug("aborted list short", "a fetch names only the first aborted transaction of its range", "txn",
      "odradek.log.reader:LogReader.aborted_transactions")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, start_offset, upper_offset: right(self, start_offset, upper_offset)[:1]


@_bug("marker not replayed", "recovery passes over transaction markers", "txn", "odradek.log.recovery:_replay_batch")
def _(right: Any) -> Any:
    def replay(segment: Any, at: Any, producers: Any) -> None:
        if not at.header.is_control:
            right(segment, at, producers)

    return replay


# --- the log: files ---


@_bug("acknowledged before written", "a leader acknowledges one batch in forty and never writes it", "crash",
      "odradek.log.durability:LogDurability.write")  # fmt: skip
def _(right: Any) -> Any:
    def write(self: Any, segment: Any, data: memoryview, last_offset: int) -> Any:
        if self._state.end_offset % 40 == 7 and not self._state.name.startswith("__"):
            data = memoryview(bytes(len(data)))
        return right(self, segment, data, last_offset)

    return write


@_bug(
    "flush not synced",
    "a leader answers flush.messages without a sync",
    "power",
    "odradek.log.writing.flush_plan:FlushPlan.sync",
)
def _(right: Any) -> Any:
    return _nothing


@_bug("directory not synced", "files are synced, the directory that names them is not", "power",
      "odradek.sim.world.disk:SimulatedDisk.sync_directory")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("clean marker without sync", "a stop marks the logs as clean without syncing them", "power",
      "odradek.log.directories.flusher:LogFlusher._close_each")  # fmt: skip
def _(right: Any) -> Any:
    async def close(self: Any, logs: Any, lane: str) -> None:
        for log in logs:
            if not log.is_offline and (plan := log.prepare_close()) is not None:
                log.durability.finish_flush(plan)

    return close


@_bug("recovery point too high", "a sync of the older segments counts for the whole log", "power",
      "odradek.log.durability:LogDurability.finish_flush")  # fmt: skip
def _(right: Any) -> Any:
    def finish(self: Any, plan: Any) -> None:
        self.recovery_point = self._state.end_offset

    return finish


@_bug("crc not checked in recovery", "recovery after a crash checks the headers only", "power",
      "odradek.log.recovery:check_batch")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("torn end kept", "recovery keeps bytes that it cannot read", "power",
      "odradek.sim.world.disk:SimulatedFile.truncate")  # fmt: skip
def _(right: Any) -> Any:
    def truncate(self: Any, size: int) -> None:
        if size or not self.path.endswith(".log"):
            right(self, size)

    return truncate


@_bug("recovery cuts too much", "recovery removes the last complete batch before a crash", "crash",
      "odradek.log.recovery:_Loader._recover_segment")  # fmt: skip
def _(right: Any) -> Any:
    def recover(self: Any, index: int, recovery_point: int) -> Any:
        segment = self.segments[index]
        last = next(iter(deque(segment.scan(0), maxlen=1)), None)
        if last is not None and last.position and last.header.base_offset >= recovery_point:
            segment.file().truncate(last.position)
            segment.size = last.position
        return right(self, index, recovery_point)

    return recover


@_bug("index past the batch", "an index entry points behind the batch that it names", "crash",
      "odradek.log.segments.indexes:OffsetIndex.append")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, last_offset, position: right(self, last_offset - 1, position)


@_bug("crash not noticed", "every start counts as one after a clean stop", "power",
      "odradek.log.directories.startup:DirectoriesStartup._load_directory")  # fmt: skip
def _(right: Any) -> Any:
    def load(self: Any, directory: Any, own: Any) -> None:
        right(self, directory, own)
        directory.unrecovered.clear()

    return load


@_bug("retention takes young segments", "a segment counts as older than it is", "disk",
      "odradek.log.segments.local_log:LocalLog._newest_ms")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, segment: right(self, segment) - 20_000


@_bug("retention does not delete", "the periodic check of retention does nothing", "disk",
      "odradek.broker.storage.background:BackgroundJobs.delete_old_segments")  # fmt: skip
def _(right: Any) -> Any:
    async def delete_old_segments(self: Any) -> None:
        return None

    return delete_old_segments


@_bug("compaction does not run", "the log cleaner finds nothing to do", "crash",
      "odradek.broker.storage.compaction:CompactionJob.clean_one")  # fmt: skip
def _(right: Any) -> Any:
    async def clean_one(self: Any, lane: int = 0) -> bool:
        return False

    return clean_one


@_bug("old topic's records come back", "a new topic takes over the directory of a deleted one of its name", "store",
      "odradek.log.directories.log_directories:LogDirectories.delete")  # fmt: skip
def _(right: Any) -> Any:
    def delete(self: Any, topic: str, partition: int, delay_ms: int = 60_000) -> None:
        directory = self._where.pop((topic, partition), None)
        self._logs.pop((topic, partition), None)
        if directory is not None:
            directory.forget((topic, partition))
            self._disk.remove(f"{directory.path}/{topic}-{partition}/partition.metadata")

    return delete


@_bug("compaction loses the latest", "compaction sometimes removes the last record of a key", "crash",
      "odradek.log.cleaner.batch_filter:Retention._select")  # fmt: skip
def _(right: Any) -> Any:
    def select(self: Any, walked: Any, base_offset: int, horizon: int | None) -> Any:
        kept = right(self, walked, base_offset, horizon)
        return [record for record in kept if (base_offset + record[4]) % 5 or base_offset + record[4] > self._latest]

    return select


@_bug("deleted records come back", "readers see a log start before it is on the disk", "flush",
      "odradek.log.directories.offset_checkpoints:OffsetCheckpoints.advance_starts")  # fmt: skip
def _(right: Any) -> Any:
    async def advance(self: Any, starts: Any, advance: Any) -> None:
        advance()

    return advance


# --- transactions ---


@_bug("commits answered as aborts", "a commit writes abort markers to the second partition", "txn",
      "odradek.broker.coordinators.markers:MarkerWriter.write")  # fmt: skip
def _(right: Any) -> Any:
    def write(self: Any, marker: Any, completed: Any) -> None:
        if marker.topic == "ledger" and marker.partition == 1:
            marker = marker._replace(commit=False)
        right(self, marker, completed)

    return write


@_bug("markers not resumed", "after a restart decided transactions get no markers", "txn",
      "odradek.transactions.coordinator:TransactionCoordinator.loaded")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, now_ms, **_: []


@_bug("transactions never time out", "the coordinator waits for ever for a dead producer", "txn",
      "odradek.transactions.coordinator:TransactionCoordinator.next_deadline_ms")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("zombie's end accepted", "EndTxn does not look at the epoch", "txn",
      "odradek.transactions.coordinator:TransactionCoordinator.end")  # fmt: skip
def _(right: Any) -> Any:
    def end(self: Any, request: Any, now_ms: int) -> Any:
        transaction = self.transactions.get(request.transactional_id)
        if transaction is not None:
            request = request._replace(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
        return right(self, request, now_ms)

    return end


@_bug("epoch not bumped", "InitProducerId hands out the epoch that is in use", "txn",
      "odradek.transactions.coordinator:_initialized")  # fmt: skip
def _(right: Any) -> Any:
    def initialized(request: Any, transaction: Any) -> Any:
        epoch = max(0, transaction.producer_epoch - 1)
        return right(request, transaction._replace(producer_epoch=epoch))

    return initialized


@_bug("producer ids twice", "a restarted broker hands out the same block of producer ids", "crash",
      "odradek.broker.cluster.controller:Controller._next_producer_id_block")  # fmt: skip
def _(right: Any) -> Any:
    async def block(self: Any, broker_id: int | None) -> range:
        await right(self, broker_id)
        return range(1000)

    return block


# --- groups ---


@_bug("offset commit not stored", "a coordinator answers one offset commit in ten and does not write it", "crash",
      "odradek.groups.offsets.committed:Offsets.apply")  # fmt: skip
def _(right: Any) -> Any:
    def apply(self: Any, record: Any, record_offset: int, producer_id: int = -1) -> None:
        if record_offset % 10 != 3:
            right(self, record, record_offset, producer_id)

    return apply


@_bug("offsets lost at reload", "a coordinator loads the last segment of its log only", "crash",
      "odradek.broker.coordinators.context:CoordinatorContext._replay_batch")  # fmt: skip
def _(right: Any) -> Any:
    def replay(self: Any, header: Any, records: Any) -> None:
        if self._environment.name != "group" or header.base_offset >= self.partition.log.active_base_offset:
            right(self, header, records)

    return replay


@_bug("pending offsets visible", "offsets of a transaction count before it is committed", "all",
      "odradek.groups.offsets.committed:Offsets.apply")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, record, record_offset, producer_id=-1: right(self, record, record_offset)


@_bug("aborted offsets kept", "an abort marker makes a transaction's offsets valid", "all",
      "odradek.groups.offsets.committed:Offsets.end_transaction")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, producer_id, *, committed: right(self, producer_id, committed=True)


@_bug("pending offsets dropped", "a commit marker does not make a transaction's offsets valid", "all",
      "odradek.groups.offsets.committed:Offsets.end_transaction")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, producer_id, *, committed: right(self, producer_id, committed=False)


@_bug("unstable offsets answered", "a fetch of offsets does not wait for open transactions", "all",
      "odradek.groups.offsets.committed:Offsets.fetch")  # fmt: skip
def _(right: Any) -> Any:
    return lambda *args, stable, **rest: right(*args, stable=False, **rest)


@_bug("generation not bumped", "a rebalance keeps the generation", "network",
      "odradek.groups.classic.group:ClassicGroup.begin_generation")  # fmt: skip
def _(right: Any) -> Any:
    def begin(self: Any, now_ms: int) -> None:
        right(self, now_ms)
        self.generation_id = max(1, self.generation_id - 1)

    return begin


@_bug("stale commits accepted", "a coordinator does not check the member and generation of offset commits", "network",
      "odradek.groups.classic.group:ClassicGroup.check_commit")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("sessions never expire", "dead members stay in the group", "network",
      "odradek.groups.classic.rebalance:Rebalances._schedule_session")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("sessions of the new protocol never expire", "dead members stay in a group of KIP-848", "network",
      "odradek.groups.consumer.membership:Memberships.touch")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("deadlines left over", "what passes with more deadlines than a coordinator acts on at once is never acted on",
      "network", "odradek.groups.coordinator:DEADLINES_AT_ONCE", "odradek.groups.coordinator:GroupCoordinator.expire",
      "odradek.groups.coordinator:GroupCoordinator.next_deadline_ms")  # fmt: skip
def _(right: Any) -> Any:
    def expire(self: Any, now_ms: int) -> Any:
        outcome = right(self, now_ms)
        self._timers = _LeftOver(self._timers, now_ms)
        return outcome

    def next_deadline_ms(self: Any) -> int | None:
        deadline: int | None = right(self)
        passed_ms = self._timers.passed_ms if isinstance(self._timers, _LeftOver) else -1
        return None if deadline is not None and deadline <= passed_ms else deadline

    return 1 if isinstance(right, int) else expire if right.__name__ == "expire" else next_deadline_ms


class _LeftOver:
    """Timers that know when they were looked at last."""

    def __init__(self, timers: Any, passed_ms: int) -> None:
        self._timers: Any = timers._timers if isinstance(timers, _LeftOver) else timers
        self.passed_ms = passed_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timers, name)


# --- replicas ---


@_bug("committed before it is replicated", "the high watermark is the end of the leader's log", "cluster",
      "odradek.replication.partition:Partition._commit_with_followers")  # fmt: skip
def _(right: Any) -> Any:
    def commit(self: Any) -> bool:
        moved = bool(self.log.end_offset > self.high_watermark)
        self.high_watermark = self.log.end_offset
        return moved

    return commit


@_bug("divergence not reported", "a leader does not report to a follower where its history diverges", "cluster",
      "odradek.replication.partition:Partition.diverging_epoch")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("followers keep their tail", "a follower does not truncate records that the leader lacks", "cluster",
      "odradek.replication.replicated_log:ReplicatedLog.truncate_to")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("in sync too early", "a follower joins the ISR before it has all committed records", "cluster",
      "odradek.replication.followers:Followers._expand_isr")  # fmt: skip
def _(right: Any) -> Any:
    def expand(self: Any, follower: Any) -> None:
        if self.proposal is None and self.is_eligible(follower.broker_id, follower.broker_epoch):
            self._propose((*self._partition.isr, follower.broker_id))

    return expand


# --- network and clients ---


@_bug("answers overtake", "answers leave a connection as they are ready, not in the order of requests", "network",
      "odradek.broker.network.connection:InboundConnection._release",
      "odradek.broker.network.connection:InboundConnection.answered")  # fmt: skip
def _(right: Any) -> Any:
    def release(self: Any) -> None:
        for pending in [each for each in self._order if each.ready]:
            self._order.remove(pending)
            self._out.extend(pending.parts or [])

    def answered(self: Any, pending: Any) -> None:
        if not self.closed:
            self._release()
        right(self, pending)

    return release if right.__name__ == "_release" else answered


@_bug("segment left behind", "a segment stays that a broker without descriptors could not begin", "descriptors",
      "odradek.log.segments.local_log:LocalLog._take_back")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("consumer does not check", "a consumer accepts batches whose CRC is wrong", "rot",
      "odradek.client.consumer.positions:verify_crc")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("client forgets in-flight order", "a producer retries its batches in reverse order", "store",
      "odradek.client.producer.sequences:Sequences.may_send",
      "odradek.client.producer.accumulator:Queue.put_back")  # fmt: skip
def _(right: Any) -> Any:
    if right.__name__ == "may_send":
        return lambda self, batch: self.identity.valid
    return lambda self, batch: self.batches.insert(0, batch)


@_bug("client renumbers on every retry", "a producer gives a retried batch new sequence numbers", "network",
      "odradek.client.producer.sender:Sender._landed")  # fmt: skip
def _(right: Any) -> Any:
    def landed(self: Any, batch: Any) -> None:
        right(self, batch)
        if self.sequences is not None and not self.sequences.transactional and not batch.done and batch.attempts > 1:
            self.sequences._to_renumber.add(batch.key)

    return landed


class Hunt(NamedTuple):
    """How a search went; no violation means that the bug was not found."""

    bug: str
    seeds: int
    """The number of seeds that ran."""
    seed: int
    """The one that found it, or the last."""
    violation: str
    story: str
    seconds: float
    """Processor time of the search."""
    mistake: str = ""
    """Of the planted code: what was found is not the bug."""


def search(bug: Planted, limit: int = SEED_LIMIT) -> Hunt:
    """The known seed, then seeds from 1 on until the bug is found or the limit is reached."""
    known = KNOWN_SEEDS.get(bug.name)
    seeds = [*([] if known is None else [known]), *range(1, limit + 1)]
    seconds = 0.0
    with planted(bug) as mistakes:
        for tried, seed in enumerate(seeds, 1):
            outcome = run_seed(seed, bug.profile)
            seconds += outcome.real_seconds
            if mistakes:
                return Hunt(bug.name, tried, seed, "", "", seconds, mistakes[0])
            if outcome.violation:
                return Hunt(bug.name, tried, seed, outcome.violation, outcome.story, seconds)
    return Hunt(bug.name, len(seeds), limit, "", "", seconds)


def _search_by_name(name: str) -> Hunt:
    return search(next(bug for bug in BUGS if bug.name == name))


def hunt(arguments: argparse.Namespace) -> int:
    """Search every bug; prints a table for docs/reliability/simulator.md. 1 if one was not found.

    Nor is one found whose planted code raises by mistake.
    """
    wanted = [each for each in BUGS if arguments.only in each.name and arguments.profile in (each.profile, "every")]
    missed = []
    print("| planted bug | what it does | profile | seed | s | found as |\n|---|---|---|---|---|---|", flush=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, context) as pool:
        for bug, found in zip(wanted, pool.map(_search_by_name, [bug.name for bug in wanted]), strict=True):
            seed = str(found.seed) if found.violation else found.mistake or f"**not within {found.seeds}**"
            row = (bug.name, bug.story, bug.profile, seed, f"{found.seconds:.0f}", found.violation)
            print(f"| {' | '.join(row)} |", flush=True)
            if arguments.verbose and found.violation:
                print(f"    {found.story[:300]}", flush=True)
            if not found.violation:
                missed.append(bug.name)
    print(f"\n{len(wanted)} planted, {len(missed)} missed" + (": " + ", ".join(missed) if missed else ""))
    return 1 if missed else 0
