"""The clients that work while faults are done: librdkafka's and ours, all noting into one history.

The programs of `odradek.sim.workloads.clients` run here as they run in the simulator, on a host that is made of real
sockets and clocks; what the simulator has no librdkafka for is below.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from odradek.client.producer.producer import Producer as OurProducer
from odradek.ports.clock import SystemClock
from odradek.sim.checkers.history import (
    ABORTED,
    COMMITTED,
    OK,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    UNKNOWN,
    Committed,
    History,
    Reader,
    Seen,
    Send,
    Transaction,
)
from odradek.sim.workloads import clients as workloads

PACE_SECONDS: Final = 0.01
REQUEST_TIMEOUT_MS: Final = 5000
"""Of producers: how long a client waits for a broker that is silent without being dead."""
LIBRDKAFKA: Final[dict[str, Any]] = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 1000,
    "socket.timeout.ms": 10000,
}
FORSAKEN: Final = "Failed to fetch committed offsets for 0 partition(s)"
"""What librdkafka (2.16) reports when a former coordinator answered OffsetFetch: an error for the group and no
partitions, as Apache Kafka does. It does not ask again, and reads these partitions no more."""
_NOTES: Final = 20_000
_NOTES_TOLD: Final = 12
STEADY_TIMEOUT_MS: Final = 2500
"""How long the producers that gaps are measured with wait for an answer: less than a session, so that a gap is not
their patience with a silent broker. librdkafka waits for `socket.timeout.ms`, the broker for `request.timeout.ms`."""
OURS: Final[dict[str, Any]] = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "retry_backoff_ms": 50}


class Place:
    """What the simulator's programs take for the world, and all clients share."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.bootstrap = bootstrap
        self.seed = seed
        self.history = History()
        self.marks: Counter[str] = Counter()
        self.racks: tuple[str, ...] = ()
        self.stopping = False
        self.failures: list[str] = []
        self.notes: deque[str] = deque(maxlen=_NOTES)
        self.begun = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self.begun

    def note(self, what: str) -> None:
        """The simulator keeps a trace; here the last of it, for programs that do not end."""
        self.notes.append(f"{self.now():.3f} {what}")

    def last_notes(self, name: str) -> list[str]:
        """Of the program of this name."""
        return [note for note in self.notes if f" {name}: " in note][-_NOTES_TOLD:]

    def mark(self, name: str) -> None:
        self.marks[name] += 1

    def is_stopping(self) -> bool:
        return self.stopping


class Host:
    """What the simulator's programs take for a machine."""

    def __init__(self, world: Place, name: str) -> None:
        self.world = world
        self.name = name
        self.restarts = 1
        self.clock = SystemClock()

    def options(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap_servers": self.world.bootstrap, "client_id": self.name, **OURS, **more}


Program = Callable[[Any], Awaitable[None]]


class Ours(threading.Thread):
    """Programs of our client, on one event loop; `finish` waits for their end."""

    def __init__(self, place: Place, programs: dict[str, Program]) -> None:
        super().__init__(name="our clients", daemon=True)
        self.place = place
        self.programs = programs
        self.unfinished: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def run(self) -> None:
        import uvloop

        uvloop.run(self._run())

    async def _run(self) -> None:
        self.unfinished = set(self.programs)
        self._tasks = {
            name: asyncio.create_task(self._one(name, program), name=name) for name, program in self.programs.items()
        }
        await asyncio.gather(*self._tasks.values())

    def where(self, name: str) -> str:
        """What a program that does not end waits for, from the outermost call on."""
        found = []
        waiting: Any = self._tasks[name].get_coro()
        while waiting is not None:
            frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
            if frame is not None:
                found.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
            waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
        return " > ".join(found)

    async def _one(self, name: str, program: Program) -> None:
        try:
            await program(Host(self.place, name))
        except Exception as error:
            self.place.failures.append(f"{name}: {type(error).__name__}: {error}")
        self.unfinished.discard(name)


async def steady(host: Any, topic: str, partitions: int) -> None:
    """A record to every partition, again and again: what write gaps are measured with."""
    place: Place = host.world
    patience = {"request_timeout_ms": STEADY_TIMEOUT_MS, "delivery_timeout_ms": 120_000, "max_block_ms": 120_000}
    options = host.options(linger_ms=0, **patience)
    waiting: set[asyncio.Task[None]] = set()
    number = 0
    async with OurProducer(clock=host.clock, **options) as producer:
        while not place.is_stopping():
            for partition in range(partitions):
                number += 1
                value = f"{host.name}:{number}:{'x' * (number % 90)}".encode()
                send = place.history.send(Send(value, host.name, (topic, partition), number, place.now()))
                delivery = await producer.send(topic, value, partition=partition)
                task = asyncio.create_task(workloads.note_outcomes(host, [(send, delivery)]))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            await asyncio.sleep(PACE_SECONDS)
        await asyncio.gather(*waiting)


class Worker(threading.Thread):
    """A thread with a librdkafka client."""

    def __init__(self, place: Place, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.place = place

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.place.failures.append(f"{self.name}: {type(error).__name__}: {error}")

    def work(self) -> None:
        raise NotImplementedError


def _noted(place: Place, send: Send) -> Callable[[KafkaError | None, Message], None]:
    def note(error: KafkaError | None, message: Message) -> None:
        now = place.now()
        if error:
            send.state, send.error = UNKNOWN, str(error)
        else:
            # None for a batch that was written before and of which only that is known.
            offset = message.offset()
            send.state, send.offset, send.acked_at = OK, -1 if offset is None else offset, now
        send.outcome_at = now

    return note


class LibrdkafkaSteady(Worker):
    """As `steady`, by librdkafka's idempotent producer."""

    def __init__(self, place: Place, name: str, topic: str, partitions: int) -> None:
        super().__init__(place, name)
        self.topic = topic
        self.partitions = partitions

    def work(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.place.bootstrap,
                "client.id": self.name,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "request.timeout.ms": STEADY_TIMEOUT_MS,
                "message.timeout.ms": 120_000,
                **LIBRDKAFKA,
                "socket.timeout.ms": STEADY_TIMEOUT_MS,
            }
        )
        number = 0
        while not self.place.stopping:
            for partition in range(self.partitions):
                number += 1
                value = f"{self.name}:{number}:{'x' * (number % 90)}".encode()
                send = self.place.history.send(
                    Send(value, self.name, (self.topic, partition), number, self.place.now())
                )
                producer.produce(self.topic, value, partition=partition, on_delivery=_noted(self.place, send))
            producer.poll(PACE_SECONDS)
            time.sleep(PACE_SECONDS / 2)
        left = producer.flush(120)
        if left:
            self.place.failures.append(f"{self.name}: {left} records are neither acknowledged nor given up")


class LibrdkafkaTransactions(Worker):
    """Transactions of some records to several partitions; a third is aborted."""

    def __init__(self, place: Place, name: str, topics: dict[str, int]) -> None:
        super().__init__(place, name)
        self.topics = topics
        self.chance = random.Random(f"{place.seed}:{name}")
        self._instances = 0
        self._number = 0

    def _producer(self) -> Producer:
        """Made until the coordinator has answered: it may be away for long."""
        deadline = time.monotonic() + 150
        while True:
            producer = Producer(
                {
                    "bootstrap.servers": self.place.bootstrap,
                    "client.id": self.name,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": 20_000,
                    "message.timeout.ms": 15_000,
                    "request.timeout.ms": REQUEST_TIMEOUT_MS,
                    "linger.ms": 0,
                    **LIBRDKAFKA,
                }
            )
            self._instances += 1
            try:
                producer.init_transactions(20)
                return producer
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def work(self) -> None:
        producer = self._producer()
        while not self.place.stopping:
            if not self._transaction(producer):
                producer = self._producer()
            time.sleep(self.chance.expovariate(20))

    def _transaction(self, producer: Producer) -> bool:
        """Whether the producer can continue."""
        place, chance = self.place, self.chance
        commit = chance.random() < 0.65
        instance = f"{self.name}/{self._instances}"
        transaction = Transaction(instance, len(place.history.transactions), place.now())
        try:
            producer.begin_transaction()
            place.history.transactions.append(transaction)
            for _ in range(chance.choice((1, 2, 3, 6))):
                self._number += 1
                topic = chance.choice(sorted(self.topics))
                partition = chance.randrange(self.topics[topic])
                value = f"{instance}:{self._number}:{'x' * chance.choice((0, 50, 400))}".encode()
                send = place.history.send(
                    Send(value, instance, (topic, partition), self._number, place.now(), transaction)
                )
                producer.produce(topic, value, partition=partition, on_delivery=_noted(place, send))
                producer.poll(0)
            if commit:
                producer.flush(20)
                transaction.commit_asked_at = place.now()
                _insist(lambda: producer.commit_transaction(20))
                transaction.state = COMMITTED
            else:
                producer.flush(20)
                _insist(lambda: producer.abort_transaction(20))
                transaction.state = ABORTED
        except KafkaException as refused:
            error = refused.args[0]
            place.mark(f"librdkafka transaction {error.name()}")
            self._suspect(transaction, error)
            if not error.txn_requires_abort():
                # Committed or not: the next producer with the id completes it.
                transaction.state = UNKNOWN if transaction.commit_asked_at is not None else ABORTED
                transaction.ended_at = place.now()
                return False
            transaction.commit_asked_at = None
            try:
                _insist(lambda: producer.abort_transaction(20))
            except KafkaException:
                transaction.state, transaction.ended_at = ABORTED, place.now()
                return False
            transaction.state = ABORTED
        transaction.ended_at = place.now()
        return True

    def _suspect(self, transaction: Transaction, error: KafkaError) -> None:
        """An acknowledged record says that the coordinator had the transaction: it may not have forgotten it."""
        known = [send for send in transaction.sends if send.state == OK]
        if error.code() == KafkaError.INVALID_TXN_STATE and known:
            asked = "commit" if transaction.commit_asked_at is not None else "abort"
            self.place.failures.append(
                f"{self.name} at {self.place.now():.3f}: {asked} of {transaction}, begun {transaction.began_at:.3f}, "
                f"is refused with {error.name()}, though {known[0]}"
            )


def _insist(call: Callable[[], object]) -> None:
    deadline = time.monotonic() + 100
    while True:
        try:
            call()
            return
        except KafkaException as refused:
            if not refused.args[0].retriable() or time.monotonic() > deadline:
                raise


class LibrdkafkaMember(Worker):
    """A member of a group that reads and commits; at the end it reads on until `caught_up` is set.

    It restarts at the committed offsets when librdkafka has reported that it is FORSAKEN.
    """

    def __init__(self, place: Place, name: str, group: str, topic: str, *, modern: bool = False) -> None:
        super().__init__(place, name)
        self.group = group
        self.topic = topic
        self.modern = modern
        self.reader = Reader(name, READ_UNCOMMITTED)
        self._doing, self._since = "starting", place.now()
        self._statistics = "{}"
        self._forsaken = False
        self.caught_up = threading.Event()
        place.history.readers.append(self.reader)

    def _changed(self, *_: object) -> None:
        self.reader.jumped.append(len(self.reader.seen))

    def _counted(self, statistics: str) -> None:
        self._statistics = statistics

    def _does(self, what: str) -> None:
        self._doing, self._since = what, self.place.now()

    def where(self) -> str:
        """What it has been doing for how long, and what librdkafka said last of its partitions and brokers."""
        statistics = json.loads(self._statistics)
        partitions = [
            f"{topic}-{index} {state['fetch_state']}, at {state['app_offset']}, leader {state['leader']}, "
            f"asks {state['broker']}"
            for topic, found in statistics.get("topics", {}).items()
            for index, state in found["partitions"].items()
            if state["fetch_state"] != "none"
        ]
        brokers = [f"{name} {state['state']}" for name, state in statistics.get("brokers", {}).items()]
        group = statistics.get("cgrp", {})
        return (
            f"{self.name} has been in {self._doing} for {self.place.now() - self._since:.1f} s; "
            f"group {group.get('state')}, {group.get('join_state')}; {'; '.join(partitions)}; {'; '.join(brokers)}"
        )

    def work(self) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": self.place.bootstrap,
            "group.id": self.group,
            "statistics.interval.ms": 2000,
            "stats_cb": self._counted,
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": READ_UNCOMMITTED,
            **LIBRDKAFKA,
        }
        config |= {"group.protocol": "consumer"} if self.modern else {"session.timeout.ms": 6000}
        while not self.caught_up.is_set():
            self._forsaken = False
            self._consume(Consumer(config))

    def _consume(self, consumer: Consumer) -> None:
        try:
            consumer.subscribe([self.topic], on_assign=self._changed, on_revoke=self._changed, on_lost=self._changed)
            while not self.caught_up.is_set() and not self._forsaken:
                self._does("consume")
                self._take(consumer.consume(500, 0.2))
                self._does("commit")
                self._commit(consumer)
        finally:
            self._does("close")
            consumer.close()

    def _take(self, messages: Sequence[Message]) -> None:
        history, now = self.place.history, self.place.now()
        for message in messages:
            error = message.error()
            if error:
                self.place.mark(f"librdkafka consumer {error.name()}")
                self._forsaken = self._forsaken or FORSAKEN in error.str()
                continue
            value = message.value() or b""
            known = history.sends.get(value)  # one object for a value, however often it is read
            place = (message.topic() or "", message.partition() or 0)
            self.reader.seen.append((now, Seen(place, message.offset() or 0, known.value if known else value)))

    def _commit(self, consumer: Consumer) -> None:
        asked = self.place.now()
        try:
            done = consumer.commit(asynchronous=False)
        except KafkaException as refused:
            self.place.mark(f"librdkafka commit {refused.args[0].name()}")
            return
        for each in done or ():
            if each.error is None and each.offset >= 0:  # less: nothing was read of it, nothing committed
                self.place.history.commits.append(
                    Committed(
                        asked,
                        self.place.now(),
                        self.group,
                        (each.topic, each.partition),
                        each.offset,
                        self.name,
                        -1,
                        OK,
                    )
                )


class Crowd(NamedTuple):
    """All clients of a run."""

    place: Place
    ours: Ours
    workers: list[Worker]

    def members(self) -> list[LibrdkafkaMember]:
        return [worker for worker in self.workers if isinstance(worker, LibrdkafkaMember)]

    def start(self) -> None:
        self.ours.start()
        for worker in self.workers:
            worker.start()

    def finish(self, ends: Callable[[], dict[tuple[str, int], int]], seconds: float = 180) -> None:
        """No more is written; everything under way ends, everything written is read. Failures go to the place."""
        place = self.place
        place.stopping = True
        deadline = time.monotonic() + seconds
        for worker in self.workers:
            if not isinstance(worker, LibrdkafkaMember):
                worker.join(max(0.0, deadline - time.monotonic()))
        self.ours.join(max(0.0, deadline - time.monotonic()))
        wanted = ends()
        while (behind := self._behind(wanted)) and time.monotonic() < deadline:
            time.sleep(0.1)
        place.failures += [
            "\n    ".join(
                (
                    f"group {group} never came to {wanted[key]} of {key}",
                    *(member.where() for member in self.members() if member.group == group),
                )
            )
            for group, key in behind
        ]
        for member in self.members():
            member.caught_up.set()
        for worker in self.members():
            worker.join(30)
        place.failures += [
            "\n    ".join(
                (
                    f"{name} is not done {seconds:g} s after the faults; it is in {self.ours.where(name)}",
                    *place.last_notes(name),
                )
            )
            for name in sorted(self.ours.unfinished)
        ]
        place.failures += [f"{worker.name} does not end" for worker in self.workers if worker.is_alive()]

    def _behind(self, wanted: dict[tuple[str, int], int]) -> list[tuple[str, tuple[str, int]]]:
        reached: dict[tuple[str, tuple[str, int]], int] = {}
        for commit in list(self.place.history.commits):
            reached[commit.group, commit.partition] = max(
                commit.offset, reached.get((commit.group, commit.partition), 0)
            )
        groups = {(member.group, member.topic) for member in self.members()}
        return [
            (group, key)
            for group, topic in sorted(groups)
            for key, end in wanted.items()
            if key[0] == topic and reached.get((group, key), 0) < end
        ]


def crowd(place: Place, *, groups: bool = True) -> Crowd:
    """Producers with and without transactions, readers of both isolation levels, groups, exactly-once processors."""
    ledger = {"ledger": 2, "accounts": 1}
    programs: dict[str, Program] = {
        "our-steady": lambda h: steady(h, "steady", 3),
        "producer-1": lambda h: workloads.produce(h, "plain", 2),
        "producer-2": lambda h: workloads.produce(h, "plain", 2),
        "reader-1": lambda h: workloads.consume(h, "plain", 2, READ_UNCOMMITTED),
        "bank-1": lambda h: workloads.transact(h, ledger, "bank-1"),
        "bank-2": lambda h: workloads.transact(h, ledger, "bank-2"),
        "reader-2": lambda h: workloads.consume(h, "ledger", 2, READ_COMMITTED),
    }
    workers: list[Worker] = [
        LibrdkafkaSteady(place, "librdkafka-steady", "steady", 3),
        LibrdkafkaTransactions(place, "librdkafka-bank-1", ledger),
        LibrdkafkaTransactions(place, "librdkafka-bank-2", ledger),
    ]
    if groups:
        programs |= {
            "member-1": lambda h: workloads.group_member(h, "workers", "plain", 2),
            "member-2": lambda h: workloads.group_member(h, "workers", "plain", 2),
            "source": lambda h: workloads.produce(h, "in", 2, 0.8),
            "processor-1": lambda h: workloads.read_process_write(h, "rpw", "in", "out", 2),
            "processor-2": lambda h: workloads.read_process_write(h, "rpw", "in", "out", 2),
            "observer": lambda h: workloads.observe(h, {"plain": 2, "ledger": 2}, "workers"),
        }
        for number in (1, 2):
            workers.append(LibrdkafkaMember(place, f"classic-{number}", "classic", "steady"))
            workers.append(LibrdkafkaMember(place, f"modern-{number}", "modern", "steady", modern=True))
    return Crowd(place, Ours(place, programs), workers)
