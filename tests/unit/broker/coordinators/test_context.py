"""One partition of a coordinator: what it does while its log rejects writes, and when its log cannot be read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from odradek.broker.coordinators.context import (
    REJECTED_BACKOFF_MS,
    UNENCODABLE_BACKOFF_MS,
    CoordinatorContext,
    CoordinatorEnvironment,
)
from odradek.broker.coordinators.shard import CoordinatorState, Operation, RecordCodec
from odradek.broker.coordinators.timers import CoordinatorClock
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import EncodeError

UNENCODABLE = "too long"


class Decided(NamedTuple):
    records: tuple[str, ...] = ()


class Time:
    """Stands still."""

    def now_ms(self) -> int:
        return 50_000

    def monotonic(self) -> float:
        return 0.0


class Loop:
    """Notes what is to be called later."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.soon: list[Callable[[], None]] = []
        self.later: Callable[[], None] = lambda: None

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> asyncio.Handle:
        self.delays.append(delay)
        self.later = lambda: callback(*args)
        return asyncio.Handle(callback, args, self)  # type: ignore[arg-type]

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self.soon.append(lambda: callback(*args))

    def get_debug(self) -> bool:
        return False


class Written(NamedTuple):
    first_offset: int
    last_offset: int


class Log:
    """An empty log."""

    log_start_offset = next_offset = end_offset = 0
    is_offline = False

    def __init__(self) -> None:
        self.unreadable: KafkaError | None = None
        self.durability = self.reader = self

    def when_written(self, _offset: int, callback: Callable[[], None]) -> None:
        callback()

    def read_batches(self, _offset: int, _end_offset: int) -> Iterator[memoryview]:
        if self.unreadable is not None:
            raise self.unreadable
        yield from ()


class Place:
    """A partition that rejects writes with `error`."""

    topic, index, leader_epoch = "__some_state", 3, 0

    def __init__(self) -> None:
        self.log = Log()
        self.error: ErrorCode | None = None
        self.written = 0

    def append(self, _batch: memoryview, **_: Any) -> Written:
        if self.error is not None:
            raise KafkaError(self.error)
        self.written += 1
        return Written(self.written - 1, self.written - 1)

    def is_committed(self, _offset: int) -> bool:
        return True

    def when_committed(self, _offset: int, _callback: Callable[[], None], *, is_client: bool) -> None:
        assert is_client, "only what is written later waits"


class Shard:
    """Notes what the context asks of it."""

    def __init__(self) -> None:
        self.replayed: list[str] = []
        self.completed: list[ErrorCode | None] = []
        self.deadline_ms: int | None = None
        self.loaded = False
        self.on_expire: Callable[[], None] = lambda: None

    def replay(self, record: str, _offset: int, _producer_id: int) -> None:
        self.replayed.append(record)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        self.replayed.append(f"{producer_id} {committed}")

    def on_loading(self) -> None: ...

    def on_loaded(self) -> None:
        self.loaded = True

    def on_closed(self) -> None: ...

    def expire(self) -> None:
        self.on_expire()

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def halves(self, decision: Decided) -> tuple[Decided, Decided] | None:
        middle = len(decision.records) // 2
        return Decided(decision.records[:middle]), Decided(decision.records[middle:])

    def complete(self, operations: Sequence[Operation], error: ErrorCode | None, _delay: float | None) -> None:
        self.completed += [error] * len(operations)


def _encoded(record: str) -> tuple[bytes, bytes | None]:
    if record == UNENCODABLE:
        raise EncodeError("a string is too long")
    return record.encode(), b""


class Running:
    """A context with everything around it."""

    def __init__(self) -> None:
        self.loop, self.place, self.shard, self.failed = Loop(), Place(), Shard(), False
        codec: RecordCodec[str] = RecordCodec(_encoded, lambda key, _: bytes(key).decode())
        environment = CoordinatorEnvironment(
            "some",
            logging.getLogger("odradek.groups"),
            CoordinatorClock(Time()),
            self.loop,  # type: ignore[arg-type]
        )
        self.context: CoordinatorContext[Any, str] = CoordinatorContext(
            self.place,  # type: ignore[arg-type]
            codec,
            lambda _: self.shard,
            environment,
            self._fail,
        )

    def _fail(self, _context: CoordinatorContext[Any, str]) -> None:
        self.failed = True

    def write(self, *records: str) -> None:
        operation = self.context.encode(Decided(records))
        if operation is not None:
            self.context.write([operation])

    def expires(self, record: str) -> None:
        """A deadline that is over decides a record, which the timer writes now."""
        self.shard.deadline_ms = 10
        self.shard.on_expire = lambda: self.write(record)
        self.context.arm_timer()
        self.loop.later()

    def last_delay_ms(self) -> float:
        return self.loop.delays[-1] * 1000


@pytest.fixture
def running() -> Running:
    found = Running()
    found.context.load()
    return found


def test_timer_fires_at_once_for_a_deadline_that_is_over(running: Running) -> None:
    running.shard.deadline_ms = 10
    running.context.arm_timer()
    assert running.last_delay_ms() == 1


def test_timer_backs_off_while_the_log_rejects_writes(running: Running) -> None:
    running.place.error = ErrorCode.NOT_ENOUGH_REPLICAS
    running.write("record")
    running.shard.deadline_ms = 10
    running.context.arm_timer()
    assert running.last_delay_ms() == REJECTED_BACKOFF_MS


def test_timer_fires_at_once_again_after_a_write(running: Running) -> None:
    running.place.error = ErrorCode.NOT_ENOUGH_REPLICAS
    running.write("record")
    running.place.error = None
    running.write("record")
    running.shard.deadline_ms = 10
    running.context.arm_timer()
    assert running.last_delay_ms() == 1


def test_deadline_whose_record_is_rejected_is_tried_after_a_pause(running: Running) -> None:
    """Expiry itself meets the log that rejects writes: without the pause the timer would fire every millisecond."""
    running.place.error = ErrorCode.NOT_ENOUGH_REPLICAS
    running.expires("record")
    assert running.last_delay_ms() == REJECTED_BACKOFF_MS
    running.loop.later()
    assert running.last_delay_ms() == REJECTED_BACKOFF_MS
    running.place.error = None
    running.loop.later()
    assert running.shard.replayed == ["record"]
    assert running.last_delay_ms() == 1


def test_deadline_whose_record_cannot_be_encoded_is_tried_after_a_pause(running: Running) -> None:
    running.expires(UNENCODABLE)
    assert running.last_delay_ms() == UNENCODABLE_BACKOFF_MS
    running.loop.later()
    assert running.last_delay_ms() == UNENCODABLE_BACKOFF_MS
    assert running.shard.completed == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


def test_deadline_that_can_be_encoded_again_ends_the_pause(running: Running) -> None:
    running.expires(UNENCODABLE)
    running.shard.on_expire = lambda: running.write("record")
    running.loop.later()
    assert running.last_delay_ms() == 1


def test_request_that_cannot_be_encoded_does_not_delay_deadlines(running: Running) -> None:
    running.write(UNENCODABLE)
    running.shard.deadline_ms = 10
    running.context.arm_timer()
    assert running.last_delay_ms() == 1


def test_rejected_record_is_not_replayed(running: Running) -> None:
    running.place.error = ErrorCode.NOT_ENOUGH_REPLICAS
    running.write("record")
    assert running.shard.replayed == []
    assert running.shard.completed == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_loaded_context_is_active(running: Running) -> None:
    assert running.context.state is CoordinatorState.ACTIVE
    assert running.shard.loaded


def test_context_fails_when_its_log_is_unreadable() -> None:
    running = Running()
    running.place.log.unreadable = KafkaError(ErrorCode.CORRUPT_MESSAGE)
    running.context.load()
    assert running.context.state is CoordinatorState.FAILED
    assert not running.failed, "another try would find the same"
    with pytest.raises(KafkaError) as raised:
        running.context.check()
    assert raised.value.code is ErrorCode.NOT_COORDINATOR


def test_context_asks_to_be_loaded_again_when_a_file_cannot_be_opened() -> None:
    running = Running()
    running.place.log.unreadable = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    running.place.log.unreadable.__cause__ = OSError("too many open files")
    running.context.load()
    assert running.failed


def test_marker_that_comes_while_loading_is_replayed_before_on_loaded() -> None:
    running = Running()
    running.context.end_transaction(7, 0, committed=True)
    assert running.shard.replayed == []
    running.context.load()
    assert running.shard.replayed == ["7 True"]


def test_write_to_a_closed_context_completes_with_not_coordinator(running: Running) -> None:
    running.context.close()
    running.write("record")
    assert running.shard.completed == [ErrorCode.NOT_COORDINATOR]
    assert running.place.written == 0


def test_batch_that_is_too_large_is_halved(running: Running) -> None:
    sizes: list[int] = []

    def append(batch: memoryview, **_: Any) -> Written:
        sizes.append(len(batch))
        if len(sizes) == 1:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        return Written(len(sizes) * 2, len(sizes) * 2 + 1)

    running.place.append = append  # type: ignore[assignment, method-assign]
    running.write("a", "b", "c", "d")
    assert running.shard.replayed == ["a", "b", "c", "d"]
    assert len(sizes) == 3


def test_two_records_that_are_too_large_are_written_one_by_one(running: Running) -> None:
    calls = 0

    def append(_batch: memoryview, **_: Any) -> Written:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
        return Written(calls, calls)

    running.place.append = append  # type: ignore[assignment, method-assign]
    running.write("a", "b")
    assert (calls, running.shard.replayed) == (3, ["a", "b"])


def test_one_record_that_is_too_large_is_rejected(running: Running) -> None:
    running.place.error = ErrorCode.MESSAGE_TOO_LARGE
    running.write("a")
    assert (running.shard.completed, running.shard.replayed) == ([ErrorCode.MESSAGE_TOO_LARGE], [])
