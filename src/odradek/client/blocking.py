"""An event loop in a background thread that runs the clients' coroutines for threads without a loop.

    with Blocking() as blocking:
        admin = blocking.open(Admin(bootstrap_servers="127.0.0.1:9092"))
        print(blocking.run(admin.list_topics()))

Every coroutine goes through `run`, every plain method through `call`. All threads of a process may use one `Blocking`;
`shared()` is the process's own. The classes `Blocking…` are clients with methods that wait.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ClientClosed, ConfigError
from odradek.client.model import ConsumerRecord
from odradek.client.type_parameters import Key_co, Value_co

T = TypeVar("T")
P = ParamSpec("P")
Face_co = TypeVar("Face_co", covariant=True)

_POLL_MS: Final = 1_000


class Client(Protocol):
    """A client that can be started and closed: Producer, Consumer, Admin."""

    async def start(self) -> None:
        """Prepare for use."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


ClientT = TypeVar("ClientT", bound=Client)


class Blocking:
    """Runs coroutines for threads that have no event loop. Not to be used from within a coroutine.

    Example:

        with Blocking() as blocking:
            consumer = blocking.open(Consumer("orders", bootstrap_servers="127.0.0.1:9092"))
            places = [TopicPartition("orders", 0)]
            print(blocking.run(consumer.end_offsets(places), timeout_s=30))
    """

    __slots__ = ("_clients", "_lock", "_loop", "_pid", "_thread")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._clients: list[Client] = []
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, awaitable: Awaitable[T], timeout_s: float | None = None) -> T:
        """Wait for the awaitable and return its result. After timeout_s it is cancelled: raises TimeoutError."""
        future = asyncio.run_coroutine_threadsafe(_await(awaitable), self._running())
        try:
            return future.result(timeout_s)
        except (KeyboardInterrupt, concurrent.futures.TimeoutError):
            future.cancel()
            raise

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain method of a client in its loop's thread (`seek`, `assign`, `send_nowait`, ...)."""

        async def called() -> T:
            return function(*args, **kwargs)

        return self.run(called())

    def open(self, client: ClientT) -> ClientT:
        """Start a client; it is closed together with this."""
        self.run(client.start())
        with self._lock:
            if client not in self._clients:
                self._clients.append(client)
        return client

    def close_client(self, client: Client) -> None:
        """Close one client before the others."""
        self.forget(client)
        self.run(client.close())

    def forget(self, client: Client) -> None:
        """Leave the closing of a client to the caller."""
        with self._lock:
            if client in self._clients:
                self._clients.remove(client)

    def iterate(
        self, consumer: Consumer[Key_co, Value_co], idle_timeout_s: float | None = None
    ) -> Iterator[ConsumerRecord[Key_co, Value_co]]:
        """Records as they arrive, without end, or until none arrived for idle_timeout_s.

        Positions move with each poll, not with each record; those of `BlockingConsumer` move with each record.
        """
        wait_ms = _POLL_MS if idle_timeout_s is None else idle_timeout_s * 1000
        while True:
            records = self.run(consumer.poll(wait_ms))
            yield from records
            if not records and idle_timeout_s is not None:
                return

    def close(self) -> None:
        """Close all clients, the last opened first, and end the thread. Raises the first failure, at the end."""
        with self._lock:
            clients, self._clients = self._clients[::-1], []
            loop, thread = self._loop, self._thread
        if loop is None or thread is None or self._pid != os.getpid():
            return
        failure: BaseException | None = None
        for client in clients:
            try:
                self.run(client.close())
            except Exception as error:  # noqa: BLE001 - the others must be closed too; the error is raised below
                failure = failure or error
        with self._lock:
            self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        if failure is not None:
            raise failure

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._pid != os.getpid():
                raise ClientClosed("this process was forked from the one whose thread ran the clients: make new ones")
            if self._loop is None:
                ready = threading.Event()
                self._loop = _new_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop, ready), name="odradek-client", daemon=True
                )
                self._thread.start()
                ready.wait()
            return self._loop


class _Face(Protocol[Face_co]):
    """A client, or one of its parts, with the loop that runs it."""

    @property
    def _blocking(self) -> Blocking: ...

    @property
    def _client(self) -> Face_co: ...


def waiting(
    method: Callable[Concatenate[Face_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Face[Face_co], P], T]:
    """A method that waits for a coroutine method of a face's client, with the same parameters."""

    @wraps(method)
    def wait(face: _Face[Face_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._blocking.run(method(face._client, *args, **kwargs))

    return wait


def calling(method: Callable[Concatenate[Face_co, P], T]) -> Callable[Concatenate[_Face[Face_co], P], T]:
    """A method that calls a plain method of a face's client in the event loop's thread, with the same parameters."""

    @wraps(method)
    def call(face: _Face[Face_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._blocking.call(method, face._client, *args, **kwargs)

    return call


def loop_for(blocking: Blocking | None) -> Blocking:
    """The given one, or the process's own for None. Raises ConfigError for any other object."""
    if blocking is None:
        return shared()
    if not isinstance(blocking, Blocking):
        raise ConfigError(f"blocking: expected a Blocking or None, got {type(blocking).__name__}")
    return blocking


_shared: dict[int, Blocking] = {}
_shared_lock = threading.Lock()


def shared() -> Blocking:
    """The process's own `Blocking`: made by the first call, and again after a fork. It lives as long as the process."""
    with _shared_lock:
        found = _shared.get(os.getpid())
        if found is None:
            _shared.clear()
            found = _shared[os.getpid()] = Blocking()
        return found


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _serve(loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
    asyncio.set_event_loop(loop)
    loop.call_soon(ready.set)
    try:
        loop.run_forever()
    finally:
        pending: set[asyncio.Task[Any]] = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
