"""An asyncio event loop whose time is virtual and whose choices come from a seed.

Ready tasks are drawn at random; plain callbacks keep the order in which they were given to `call_soon`, as asyncio
documents it. Every callback belongs to a process (found in its context), and processes can be paused and killed: what
belongs to a killed one never runs again, just as after a kill -9.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import heapq
import random
from asyncio import events, format_helpers
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

STEP_SECONDS = 4e-6
"""What a step costs in simulated time: a loop that never waits must not stop the clock."""

_MOST_WAITS = 100
"""Closed coroutines of one task, counting those that wait again in `finally` blocks."""


class SimulationDeadlock(Exception):
    """Nothing can ever run again, although a task still waits."""


class ProcessKilled(BaseException):
    """Unwinds the stack of a process that dies in the middle of a call; nothing that it does on the way has effect."""


class Process:
    """What is paused and killed as one: a broker or a client, from its start to its end."""

    __slots__ = ("alive", "context", "doomed", "held", "host", "name", "paused_until")

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.alive = True
        self.paused_until = 0.0
        self.held: list[asyncio.Handle] = []
        self.doomed: list[Callable[[], None]] = []
        """Called when the process dies: what the kernel does for it."""
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class StepCharges(Protocol):
    """What learns of the end of each step; see `costs.Charges`."""

    def end_step(self, process: Process | None, /) -> None:
        """A step of the process is over."""
        ...


class Trace:
    """What happened, as a hash of everything and the last notable events in words."""

    __slots__ = ("_hash", "lines", "mix", "verbose")

    def __init__(self, *, keep: int = 4000) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.mix: Callable[[bytes], None] = self._hash.update
        """Add bytes to the digest."""
        self.lines: deque[str] = deque(maxlen=keep)
        self.verbose = False

    def note(self, now: float, text: str) -> None:
        """Keep a line, and add its text to the digest."""
        self.lines.append(f"{now:10.6f} {text}")
        self._hash.update(text.encode())

    def digest(self) -> str:
        """The digest of everything so far."""
        return self._hash.hexdigest()


def _fill(handle: Any, callback: Any, args: tuple[Any, ...], loop: SimulatedLoop, context: Any) -> None:
    """What `asyncio.Handle` does to a new handle, without its questions whether the loop is in debug mode."""
    handle._context = contextvars.copy_context() if context is None else context
    handle._loop = loop
    handle._callback = callback
    handle._args = args
    handle._cancelled = False
    handle._repr = handle._source_traceback = None


class _Handle(asyncio.Handle):
    """A callback that runs in a next step."""

    __slots__ = ()

    def __init__(
        self, callback: Any, args: tuple[Any, ...], loop: SimulatedLoop, context: contextvars.Context | None
    ) -> None:
        _fill(self, callback, args, loop, context)


class _TimerHandle(asyncio.TimerHandle):
    """A callback that runs at a time. The loop drops cancelled ones when their time comes."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Any,
        args: tuple[Any, ...],
        loop: SimulatedLoop,
        context: contextvars.Context | None,
    ) -> None:
        _fill(self, callback, args, loop, context)
        self._when = when
        self._scheduled = False

    def cancel(self) -> None:
        """Keep the callback from running."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class SimulatedLoop(asyncio.AbstractEventLoop):
    """One thread, one seed, one run."""

    step_seconds = STEP_SECONDS

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self._sched = random.Random(f"{seed}:sched")
        self._disk_delays = random.Random(f"{seed}:executor")
        self._now = 0.0
        self._sequence = 0
        self._callbacks: deque[tuple[int, asyncio.Handle]] = deque()
        self._tasks: list[tuple[int, asyncio.Handle]] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._running = False
        self._closed = False
        self._graveyard: list[asyncio.Task[Any] | asyncio.Handle] = []
        self.trace = Trace()
        self.steps = 0
        self.spent = 0.0
        """Seconds of a processor that the step under way has cost so far, where work is charged for."""
        self.charges: StepCharges | None = None
        """What ends each step, where work is charged for."""
        self.broken: Exception | None = None
        """A violation that a watch found: the run ends with it at once."""
        self.failures: list[str] = []
        """What asyncio reported as gone wrong: exceptions in callbacks, exceptions that no task retrieved."""

    # --- what callers see ---

    def time(self) -> float:
        """Virtual seconds since the start of the run."""
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run the callback in a next step, in the order of the calls."""
        handle = _Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback after a delay in virtual seconds."""
        return self.call_at(self._now + delay if delay > 0 else self._now, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback at a virtual time."""
        timer = _TimerHandle(when, callback, args, self, context)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        """A task of this loop, in the process of its context."""
        owner = PROCESS.get() if context is None else context.get(PROCESS)
        self._sequence += 1
        label = f"{owner.name if owner is not None else 'world'}|{name or self._sequence}"
        return asyncio.Task(coro, loop=self, name=label, context=context)

    async def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> T:  # type: ignore[override]
        """Inline, after a while: there are no threads in here."""
        await asyncio.sleep(self._disk_delays.uniform(0, 0.002))
        return self.off_loop(func, *args)

    def off_loop(self, func: Callable[..., T], *args: Any) -> T:
        """Call what runs in a thread: it costs the loop nothing."""
        spent = self.spent
        try:
            return func(*args)
        finally:
            self.spent = spent

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the failure of a callback or task for the outcome of the run."""
        error = context.get("exception")
        if isinstance(error, ProcessKilled):
            return
        whose = context.get("task") or context.get("future")
        coroutine = f" ({whose.get_coro()!r}"[:200] + ")" if isinstance(whose, asyncio.Task) else ""
        self.failures.append(f"{context.get('message')}: {error!r}{coroutine}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """As `call_exception_handler`."""
        self.call_exception_handler(context)

    get_debug = bool
    """False: the loop has no debug mode. Each future and task asks, and a function in C answers soonest."""

    def set_debug(self, enabled: bool) -> None:
        """Raise NotImplementedError if enabled."""
        if enabled:
            raise NotImplementedError("the simulated loop has no debug mode")

    def is_running(self) -> bool:
        """Whether the loop runs."""
        return self._running

    def is_closed(self) -> bool:
        """Whether the loop is closed."""
        return self._closed

    # --- running ---

    def _enqueue(self, handle: asyncio.Handle) -> None:
        self._sequence += 1
        is_task = isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined]
        (self._tasks if is_task else self._callbacks).append((self._sequence, handle))

    def _next(self) -> tuple[int, asyncio.Handle]:
        timers, tasks, callbacks = self._timers, self._tasks, self._callbacks
        while timers and (timers[0][0] <= self._now or not (callbacks or tasks)):
            when, sequence, timer = heapq.heappop(timers)
            if timer._cancelled:
                continue
            if when > self._now:
                self._now = when
            callbacks.append((sequence, timer))
        if not tasks:
            if not callbacks:
                raise SimulationDeadlock(f"nothing can ever run again at {self._now:.6f}")
            return callbacks.popleft()
        choices = len(tasks) + (1 if callbacks else 0)
        chosen = int(self._sched.random() * choices) if choices > 1 else 0
        if chosen == len(tasks):
            return callbacks.popleft()
        tasks[chosen], tasks[-1] = tasks[-1], tasks[chosen]
        return tasks.pop()

    def step(self) -> None:
        """Run the next callback, or keep it if its process is paused. Raises SimulationDeadlock."""
        sequence, handle = self._next()
        if handle._cancelled:
            return
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is not None:
            if not process.alive:
                # Kept until `close`: tasks that never began and exceptions that no task read would complain as they go.
                self._graveyard.append(handle)
                return
            if process.paused_until > self._now:
                process.held.append(handle)
                return
        self.steps += 1
        self._now = now = self._now + self.step_seconds
        self.trace.mix(b"%d %d;" % (sequence, int(now * 1e9)))
        try:
            handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as `Handle._run`; callbacks also end with ProcessKilled
            source = format_helpers._format_callback_source(handle._callback, handle._args)  # type: ignore[attr-defined]
            self.call_exception_handler({"message": f"Exception in callback {source}", "exception": error})
        if self.charges is not None:
            self.charges.end_step(process)

    def pause(self, process: Process, seconds: float) -> None:
        """The process does nothing for a while, as in a long garbage collection or after SIGSTOP."""
        process.paused_until = max(process.paused_until, self._now + seconds)
        self.call_later(seconds, self._resume, process, context=contextvars.Context())

    def _resume(self, process: Process) -> None:
        if process.paused_until > self._now:
            return
        held, process.held = process.held, []
        for handle in held:
            self._enqueue(handle)

    def kill(self, process: Process) -> None:
        """Stop all tasks of the process; the kernel's part (`doomed`) is done at once."""
        process.alive = False
        # A task without references would run its `finally` blocks: those of a dead process do not run.
        # Nor do those of a task that it creates while an exception unwinds its last call; `step` finds that one.
        mine = f"{process.name}|"
        self._graveyard.extend(task for task in asyncio.all_tasks(self) if task.get_name().startswith(mine))
        self._graveyard.extend(process.held)
        process.held.clear()
        for each in process.doomed:
            each()
        process.doomed.clear()

    def run_until_complete(self, future: Any) -> Any:
        """Run steps until the future is done; its result."""
        task = asyncio.ensure_future(future, loop=self)
        self._running = True
        events._set_running_loop(self)
        try:
            step, is_done = self.step, task.done
            while not is_done():
                step()
                if self.broken is not None:
                    raise self.broken
        finally:
            events._set_running_loop(None)
            self._running = False
        return task.result()

    def close(self) -> None:
        """End whatever still waits, without running the loop: coroutines are closed, their complaints are ignored."""
        self._closed = True
        events._set_running_loop(self)
        try:
            ended: set[asyncio.Task[Any]] = set()
            # The end of one may begin others.
            while waiting := asyncio.all_tasks(self) - ended:
                for task in waiting:
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _end(task.get_coro())
                ended |= waiting
        finally:
            events._set_running_loop(None)
        self._callbacks.clear()
        self._tasks.clear()
        self._timers.clear()


def _end(coroutine: Any) -> None:
    """Close a coroutine and those that it awaits, also if they wait again in `finally` blocks.

    One that does so ends its callers, and remains itself. What a dead process raises has no meaning.
    """
    waiting = [coroutine]
    for _ in range(_MOST_WAITS):
        if not waiting:
            return
        awaited = list(_awaited(waiting.pop()))
        with contextlib.suppress(Exception, asyncio.CancelledError):
            awaited[0].close()
        waiting += [each for each in awaited if each.cr_frame is not None]


def _awaited(coroutine: Any) -> Iterator[Any]:
    """The coroutine, the one that it awaits, and so on."""
    while hasattr(coroutine, "cr_await"):
        yield coroutine
        coroutine = coroutine.cr_await


def new_loop(seed: str) -> SimulatedLoop:
    """A loop for one run. Methods of `AbstractEventLoop` outside the simulation (sockets, signals) raise."""
    return SimulatedLoop(seed)  # type: ignore[abstract]
