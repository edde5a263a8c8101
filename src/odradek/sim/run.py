"""One seed from its first event to its verdict: safety with faults, then liveness without, then the checkers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from odradek.client.admin import Admin, NewTopic
from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.access import check_access, check_agreement
from odradek.sim.checkers.audit import check_audit
from odradek.sim.checkers.clients import Promises, check
from odradek.sim.checkers.heartbeats import judged_heartbeats
from odradek.sim.checkers.history import OK, READ_COMMITTED, READ_UNCOMMITTED, FinalLog, Reader, Send, Violation
from odradek.sim.checkers.quorum_brokers import see_logs_agree
from odradek.sim.checkers.replicas import (
    ALL_AT_ONCE,
    ClusterWatch,
    cluster_settings,
    sealed_end,
    see_replicas_agree,
    shape_of,
)
from odradek.sim.checkers.stories import story_of
from odradek.sim.checkers.turns import judged_turns
from odradek.sim.controllers.kraft_cluster import make_own_quorum, make_quorum, quorum_settings
from odradek.sim.faults.nemesis import PROFILES, Profile, heal, torment
from odradek.sim.quorum.run import QUORUM_PROFILES, run_quorum
from odradek.sim.workloads import (
    access,
    administration,
    audit,
    bit_rot,
    dead_members,
    handovers,
    librdkafka_producer,
    librdkafka_transactions,
    raw_clients,
    recreated_topics,
    spark_sink,
    wide_requests,
    witness,
)
from odradek.sim.workloads import clients as client_programs
from odradek.sim.workloads import cluster as cluster_programs
from odradek.sim.world.costs import charged
from odradek.sim.world.hosts import PORT, BrokerHost, ClientHost, World
from odradek.sim.world.loop import PROCESS, ProcessKilled, SimulationDeadlock, new_loop
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeatureUpdate,
    UpdateFeaturesResponse,
)

SAFETY_SECONDS = 40.0
LIVENESS_SECONDS = 90.0
TRANSACTION_SECONDS = 32.0
TOPICS = {"plain": 2, "flushed": 1, "short": 1, "ledger": 2, "accounts": 1, "in": 2, "out": 2, "table": 1}

Program = Callable[[ClientHost], Awaitable[None]]
Observe = Callable[[Callable[[str], None]], contextlib.AbstractContextManager[None]]


@dataclass(slots=True)
class SeedResult:
    """What a seed came to."""

    seed: str
    profile: str
    simulated_seconds: float = 0.0
    real_seconds: float = 0.0
    steps: int = 0
    digest: str = ""
    violation: str = ""
    story: str = ""
    events: list[str] = field(default_factory=list)
    """Those that belong to the violation."""
    trace: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    acked: int = 0
    transactions: int = 0
    read: int = 0


_LEFT_BEHIND: Final = " has later records: it is removed"
"""The end of the report of a segment that only early versions, or a failing disk, leave behind."""


class _Watcher(logging.Handler):
    """Records of the broker's log: exceptions are findings, repairs are coverage marks.

    A repair of what this version must not leave behind is a finding as well.
    """

    def __init__(self, world: World, profile: Profile) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self._removes_surely = profile.removes_surely
        self.complaints: list[str] = []
        self.left_behind: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("odradek.client."):
            return
        text = record.getMessage()
        process = PROCESS.get()
        if process is not None and not process.alive:
            return
        self._world.note(f"[{process.name if process else '-'}] {text}"[:240])
        if record.levelno >= logging.WARNING:
            self._world.mark("log " + _shape(text))
        if text.endswith(_LEFT_BEHIND) and self._removes_surely:
            self.left_behind.append(text)
        error = record.exc_info[1] if record.exc_info else None
        broken_disk = isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
        if error is not None and not broken_disk and not isinstance(error, OSError | ProcessKilled):
            frames = []
            trace = error.__traceback__
            while trace is not None:
                frames.append(f"{trace.tb_frame.f_code.co_filename.rpartition('odradek/')[2]}:{trace.tb_lineno}")
                trace = trace.tb_next
            self.complaints.append(f"{text}: {error!r} at {' < '.join(reversed(frames[-6:]))}")


@contextlib.contextmanager
def _unraised() -> Iterator[None]:
    """Ignore what coroutines of dead processes report when they are collected."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before


def _shape(text: str) -> str:
    """A message without its numbers and names, so that equal situations count as one."""
    words = [w for w in text.split() if not any(c.isdigit() or c == "/" for c in w)]
    return " ".join(words)[:80]


@contextlib.contextmanager
def _watched(world: World, profile: Profile) -> Iterator[_Watcher]:
    watcher = _Watcher(world, profile)
    logger = logging.getLogger("odradek")
    before = (logger.level, logger.propagate, logger.disabled)
    logger.addHandler(watcher)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield watcher
    finally:
        logger.removeHandler(watcher)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def run_seed(
    seed: int, profile_name: str, *, safety_seconds: float = SAFETY_SECONDS, observe: Observe | None = None
) -> SeedResult:
    """Run one seed. Never raises for what the product does wrong: the outcome names the violation.

    `observe` is a context manager around the run, given what counts a coverage mark.
    """
    name = f"{profile_name}-{seed}"
    if profile_name in QUORUM_PROFILES:
        return SeedResult(name, profile_name, **vars(run_quorum(seed, profile_name)))
    profile = PROFILES[profile_name]
    loop = new_loop(name)
    world = World(loop, name, profile)
    outcome = SeedResult(name, profile_name)
    started = time.process_time()
    collecting = gc.isenabled()
    gc.disable()
    try:
        with _watched(world, profile) as watcher:
            try:
                paying = charged(loop, world.serves) if profile.charges else contextlib.nullcontext()
                turns = judged_turns(world) if profile.charges else contextlib.nullcontext()
                judging = judged_heartbeats(world) if profile.has_own_quorum else contextlib.nullcontext()
                with contextlib.nullcontext() if observe is None else observe(world.mark), paying, turns, judging:
                    loop.run_until_complete(_live(world, profile, safety_seconds))
                check(world.history, _promises(world, profile))
                check_access(world.history.access)
                check_audit(world.history.audit, world.history.access)
                complaints = watcher.complaints + loop.failures
                if complaints:
                    outcome.violation, outcome.story = "no unexpected exceptions", complaints[0]
                elif watcher.left_behind:
                    outcome.violation, outcome.story = "no segment is left behind", watcher.left_behind[0]
            except Violation as violation:
                outcome.violation, outcome.story = violation.invariant, violation.story
                if watcher.complaints or loop.failures:
                    outcome.story += "\n    logged: " + "\n    ".join((watcher.complaints + loop.failures)[:3])
            except SimulationDeadlock as deadlock:
                outcome.violation, outcome.story = "no deadlock", str(deadlock)
            except Exception as error:  # noqa: BLE001 - whatever escapes from a client's call is a finding
                outcome.violation = "no unexpected exceptions"
                outcome.story = "".join(traceback.format_exception(error)[-12:])
            outcome.digest = loop.trace.digest()
            if outcome.violation:
                outcome.trace = list(loop.trace.lines)
                outcome.events = story_of(outcome.story, world.history, outcome.trace)
            with _unraised():
                loop.close()
    finally:
        if collecting:
            gc.enable()
    history = world.history
    outcome.simulated_seconds = loop.time()
    outcome.steps = loop.steps
    outcome.faults, outcome.marks = world.faults, world.marks
    outcome.acked = len(history.acked())
    outcome.transactions = sum(t.state in ("committed", "aborted") for t in history.transactions)
    outcome.read = sum(len(reader.seen) for reader in history.readers)
    with _unraised():
        del world, loop, history
        gc.collect()
    outcome.real_seconds = time.process_time() - started
    return outcome


def _promises(world: World, profile: Profile) -> Promises:
    loses = world.power == ALL_AT_ONCE or (not profile.flushes and profile.loses_power)
    return Promises(
        frozenset({"flushed"}),
        loses,
        frozenset({"table"}),
        {"short": 6.0},
        is_cluster=profile.brokers > 1,
        unclean=world.unclean_topics,
    )


def settings_of(rng: random.Random, *, flushes: bool, loses_power: bool = False) -> dict[str, str]:
    """A broker's configuration: small and quick, so that much happens in a minute, and varied."""
    settings = {
        "node.id": "1",
        "log.dirs": rng.choice(("/data/a", "/data/a,/data/b")),
        "listeners": f"PLAINTEXT://b1:{PORT}",
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "log.retention.check.interval.ms": "3000",
        "log.cleaner.backoff.ms": "1000",
        "log.flush.interval.messages": "1" if flushes else "9223372036854775807",
        "log.flush.offset.checkpoint.interval.ms": rng.choice(("1000", "5000")),
        "log.segment.delete.delay.ms": "1000",
        "log.index.interval.bytes": rng.choice(("0", "512", "4096")),
        "log.roll.ms": rng.choice(("1000", "2000", "4000") if loses_power else ("2000", "10000", "100000")),
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.initial.rebalance.delay.ms": "300",
        "auto.create.topics.enable": "false",
        "connections.max.idle.ms": rng.choice(("600000", "8000")),
    }
    # Virtual time does not pass within a slice: with 0 each partition of a request has one of its own.
    settings["odradek.loop.slice.ms"] = "0" if settings["log.index.interval.bytes"] == "0" else "4"
    return settings


def _settings(world: World, profile: Profile) -> dict[str, str]:
    settings = settings_of(world.rng, flushes=profile.flushes, loses_power=profile.loses_power)
    return settings if profile.brokers == 1 else cluster_settings(world, settings)


async def _live(world: World, profile: Profile, safety_seconds: float) -> None:
    world.keeps_producers = profile.flushes or not profile.loses_power
    watching = _make_brokers(world, profile)
    await _start_all(world)
    setup = world.client("setup")
    await setup.run(lambda client: _make_topics(client, tv1=world.rng.random() < 0.4))
    world.clients.remove(setup)
    running = [
        (client, asyncio.create_task(client.run(program), name=client.name))
        for client, program in _programs(world, profile)
    ]
    await torment(world, profile, safety_seconds)
    world.stopping = True
    await heal(world)
    healed_at = world.now()
    await _finish(world, running, healed_at)
    if "ghosts" in profile.workloads:
        await _with_bound(world, "undertaker", dead_members.see_them_gone)
    if "access" in profile.workloads:
        for user, address in access.USERS.items():
            await _with_bound(world, address, partial(access.see_agreement, user=user))
        check_agreement(world.history.access.final)
    if profile.audits:
        await _with_bound(world, "auditor", audit.read_topic)
    await _probe(world)
    # The longest transaction timeout of the workloads: what was left open is aborted now.
    await asyncio.sleep(TRANSACTION_SECONDS)
    await _final_reading(world)
    if watching:
        await see_replicas_agree(world)
        if world.controllers is not None:
            await see_logs_agree(world, world.controllers)
        watching.pop().cancel()
    for host in world.brokers:
        await host.stop()
    await _start_all(world)
    await _compare_after_restart(world)
    for host in world.brokers:
        await host.stop()


def _make_brokers(world: World, profile: Profile) -> list[asyncio.Task[None]]:
    """Their machines; of several brokers also a watch over them, the last of the tasks."""
    watching: list[asyncio.Task[None]] = []
    if profile.brokers > 1:
        shape_of(world)
    if profile.has_quorum:
        watching += make_own_quorum(world) if profile.has_own_quorum else make_quorum(world)
    settings = _settings(world, profile)
    if "access" in profile.workloads:
        world.client_options = access.CLIENT_OPTIONS
    for node_id in range(1, profile.brokers + 1):
        own = {**settings, "node.id": str(node_id), "listeners": f"PLAINTEXT://b{node_id}:{PORT}"}
        if "access" in profile.workloads:
            own.update(access.broker_settings(node_id))
        if profile.has_quorum:
            own.update(quorum_settings(world))
        if profile.audits:
            own.update(audit.broker_settings(world))
        if world.racks:
            own["broker.rack"] = world.racks[node_id % len(world.racks)]
        host = BrokerHost(world, node_id, own)
        world.brokers.append(host)
        if profile.audits:
            audit.watch(host)
        for path in ("/data", "/data/a", "/data/b"):
            host.volume.directories[path] = None
            host.volume.durable_names[path] = None
    if profile.brokers > 1:
        watching.append(asyncio.create_task(ClusterWatch(world, world.stored).run(), name="cluster watch"))
    return watching


async def _start_all(world: World) -> None:
    await asyncio.gather(*(host.start() for host in world.brokers))


async def _finish(world: World, running: list[tuple[ClientHost, asyncio.Task[None]]], healed_at: float) -> None:
    tasks = {task for _, task in running}
    done, _ = await asyncio.wait(tasks, timeout=LIVENESS_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    for _, task in running:
        if task in done:
            task.result()
    for client, task in running:
        if not task.done():
            raise Violation("liveness", f"{client.name} is not done {LIVENESS_SECONDS} s after all faults ended")
    world.note(f"all clients are done {world.now() - healed_at:.1f} s after the end of the faults")


def _programs(world: World, profile: Profile) -> list[tuple[ClientHost, Program]]:
    made: list[tuple[ClientHost, Program]] = []

    def add(name: str, program: Program) -> None:
        made.append((world.client(name), program))

    for name in profile.workloads if world.power != ALL_AT_ONCE else ("producers", "flushed"):
        for each, program in _WORKLOADS[name]:
            add(each, program)
    return made


_WORKLOADS: dict[str, tuple[tuple[str, Program], ...]] = {
    "spark": spark_sink.PROGRAMS,
    "producers": (
        ("producer-1", lambda h: client_programs.produce(h, "plain", 2)),
        ("producer-2", lambda h: client_programs.produce(h, "plain", 2)),
        ("reader-1", lambda h: client_programs.consume(h, "plain", 2, READ_UNCOMMITTED)),
    ),
    "foreign": (("foreign", lambda h: librdkafka_producer.foreign(h, "plain", 2)),),
    "flushed": (
        ("producer-3", lambda h: client_programs.produce(h, "flushed", 1)),
        ("reader-2", lambda h: client_programs.consume(h, "flushed", 1, READ_UNCOMMITTED)),
    ),
    "groups": tuple(
        (f"member-{index}", lambda h: client_programs.group_member(h, "workers", "plain", 2)) for index in range(3)
    ),
    "ghosts": (
        ("ghost-1", lambda h: dead_members.ghost(h, "plain")),
        ("ghost-2", lambda h: dead_members.modern_ghost(h, "plain")),
    ),
    "transactions": (
        ("bank-1", lambda h: client_programs.transact(h, {"ledger": 2, "accounts": 1}, "bank-1")),
        ("reader-3", lambda h: client_programs.consume(h, "ledger", 2, READ_COMMITTED)),
    ),
    "more transactions": (
        ("bank-2", lambda h: client_programs.transact(h, {"ledger": 2, "accounts": 1}, "bank-2")),
        ("bank-3", lambda h: client_programs.transact(h, {"ledger": 2}, "bank-2")),
        ("reader-4", lambda h: client_programs.consume(h, "accounts", 1, READ_COMMITTED)),
    ),
    "foreign transactions": tuple(
        (f"foreign-{index}", lambda h: librdkafka_transactions.transact(h, "ledger", 2, h.name)) for index in (1, 2, 3)
    ),
    "rpw": (
        ("source", lambda h: client_programs.produce(h, "in", 2, 0.8)),
        ("processor-1", lambda h: client_programs.read_process_write(h, "rpw", "in", "out", 2)),
        ("processor-2", lambda h: client_programs.read_process_write(h, "rpw", "in", "out", 2)),
    ),
    "modern groups": tuple(
        (f"modern-{index}", lambda h: raw_clients.modern_member(h, "modern", "plain")) for index in range(3)
    ),
    "moves": (("mover", lambda h: raw_clients.move_replicas(h, {"plain": 2, "ledger": 2, "table": 1, "short": 1})),),
    "witness": witness.PROGRAMS,
    "access": access.PROGRAMS,
    "observer": (("observer", lambda h: client_programs.observe(h, {"plain": 2, "ledger": 2}, "workers")),),
    "admin": (("admin", lambda h: administration.administrate(h, "fleeting")),),
    "reassignments": (("reassigner", cluster_programs.reassign),),
    "topics": (("topics", cluster_programs.topics_come_and_go),),
    "recreated": (("pilgrim", recreated_topics.commit_through_lives),),
    "handovers": (("administrator", handovers.hand_over),),
    "wide": (("widely", wide_requests.ask_widely),),
    "rotten": (("rotten-writer", bit_rot.write), ("rotten-reader", bit_rot.read)),
    "compaction": (
        ("producer-5", lambda h: client_programs.produce(h, "table", 1, 0.5, 7)),
        ("reader-6", lambda h: client_programs.consume(h, "table", 1, READ_UNCOMMITTED)),
    ),
    "retention": (
        ("producer-4", lambda h: client_programs.produce(h, "short", 1, 0.3)),
        ("reader-5", lambda h: client_programs.consume(h, "short", 1, READ_UNCOMMITTED)),
        ("observer-2", lambda h: client_programs.observe(h, {"short": 1}, None)),
    ),
}


async def _make_topics(client: ClientHost, *, tv1: bool) -> None:
    counts = TOPICS if "rotten" not in client.world.profile.workloads else {**TOPICS, bit_rot.TOPIC: 1}
    configs = {
        bit_rot.TOPIC: {"segment.ms": "4000"},
        "flushed": {"flush.messages": "1"},
        "short": {"retention.ms": "6000", "segment.ms": "2500", "max.message.bytes": "3000"},
        "table": {"cleanup.policy": "compact", "segment.ms": "1500", "min.cleanable.dirty.ratio": "0.01"},
    }
    for name in client.world.unclean_topics:
        configs.setdefault(name, {})["unclean.leader.election.enable"] = "true"
    async with Admin(**client.options()) as admin:
        made = await admin.create_topics(
            [NewTopic(n, c, min(3, len(client.world.brokers)), configs=configs.get(n, {})) for n, c in counts.items()]
        )
        for name, failure in made.items():
            if isinstance(failure, Exception):
                raise Violation("topics can be created", f"{name}: {failure!r}")
        if tv1:
            client.world.mark("transaction.version 1")
            connection = await admin.cluster.connections.get(await admin.cluster.controller())
            update = UpdateFeaturesRequestFeatureUpdate("transaction.version", upgrade_type=2, max_version_level=1)
            request = UpdateFeaturesRequest(feature_updates=[update])
            answer = await admin.cluster.ask(connection, request, UpdateFeaturesResponse)
            if answer.error_code:
                raise Violation("features can be downgraded", f"{answer!r}")


async def _probe(world: World) -> None:
    """After all faults every partition takes and gives back a record within a bound."""

    async def program(client: ClientHost) -> None:
        numbered = client_programs.Numbered(client, client_programs.app_random(client))
        options = client.options(delivery_timeout_ms=30_000, max_block_ms=30_000)
        async with Producer(clock=client.clock, **options) as producer:
            waiting: list[tuple[Send, object]] = []
            for topic, count in TOPICS.items():
                for index in range(count):
                    send = numbered.next(topic, index)
                    send.key = b"probe"
                    waiting.append((send, await producer.send(topic, send.value, send.key, partition=index)))
            await client_programs.note_outcomes(client, waiting)
        for send, _ in waiting:
            if send.state != OK:
                raise Violation("liveness", f"a healthy broker refuses {send}: {send.error}")

    await _with_bound(world, "probe", program)


async def _with_bound(world: World, name: str, program: Program) -> None:
    client = world.client(name)
    task = asyncio.create_task(client.run(program))
    await asyncio.wait({task}, timeout=LIVENESS_SECONDS)
    if not task.done():
        raise Violation("liveness", f"{name} is not done within {LIVENESS_SECONDS} s on a healthy broker")
    task.result()


async def _final_reading(world: World) -> None:
    """Read every partition from its start to its end, as one isolation level and as the other."""
    await _with_bound(world, "final", _read_everything)
    for key, log in world.history.final.items():
        log.sealed_end = sealed_end(world, key)
    for name in ("workers", "rpw"):
        await _with_bound(world, f"offsets of {name}", partial(_read_offsets, group=name))


def _keys() -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic, count in TOPICS.items() for index in range(count)]


async def _read_everything(client: ClientHost) -> None:
    keys = _keys()
    logs: dict[str, Reader] = {}
    stable: dict[TopicPartition, int] = {}
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        reader = logs[isolation] = Reader(f"final {isolation}", isolation)
        options = client.options(**client_programs.CONSUMER_OPTIONS, isolation_level=isolation)
        async with Consumer(**options) as consumer:
            found = await consumer.end_offsets(keys)
            if isolation == READ_COMMITTED:
                stable = found
                for _ in range(100):
                    if all(stable[key] >= ends[key] for key in keys):
                        break
                    await asyncio.sleep(0.2)
                    stable = await consumer.end_offsets(keys)
                found = stable
            else:
                ends = found
                starts = await consumer.beginning_offsets(keys)
            consumer.assign(keys)
            waiting = dict.fromkeys(keys)
            while waiting:
                client_programs.note_seen(client, reader, await consumer.poll(1000))
                for key in list(waiting):
                    if await consumer.position(key) >= found[key]:
                        del waiting[key]
    for key in keys:
        client.world.history.final[key.topic, key.partition] = FinalLog(
            starts[key],
            ends[key],
            [seen for _, seen in logs[READ_UNCOMMITTED].seen if seen.partition == key],
            [seen for _, seen in logs[READ_COMMITTED].seen if seen.partition == key],
            stable[key],
            client.world.now(),
        )


async def _read_offsets(client: ClientHost, group: str) -> None:
    async with Consumer(**client.options(group_id=group)) as consumer:
        found = await client_programs.look_committed(client, consumer, group, _keys())
    for key, offset in found.items():
        client.world.history.group_offsets[group, (key.topic, key.partition)] = offset


async def _compare_after_restart(world: World) -> None:
    """A clean stop and a start change nothing."""
    before = dict(world.history.final)
    await _with_bound(world, "after restart", _read_everything)
    for key, log in before.items():
        after = world.history.final[key]
        # Another leader may not know yet where retention let the log begin.
        start = max(log.start, after.start) if len(world.brokers) > 1 else after.start
        kept = [seen for seen in log.everything if seen.offset >= start]
        same = kept == [seen for seen in after.everything if seen.offset >= start]
        if after.end != log.end or not (same or key[0] == "table"):
            raise Violation(
                "a restart changes nothing", f"{key}: [{log.start}, {log.end}) became [{after.start}, {after.end})"
            )
    world.history.final = before
