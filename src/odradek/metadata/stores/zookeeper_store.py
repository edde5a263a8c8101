"""The metadata store of a cluster of machines: ZooKeeper 3.6 or newer, reached through kazoo (the extra `zookeeper`).

kazoo has threads of its own; requests go to it from the event loop, and answers and events come back to the loop. The
session is ZooKeeper's. A lost connection is kazoo's to restore (to another server of the ensemble): requests under way
fail with ConnectionLost, watches are set again, and every watcher is notified.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kazoo import exceptions as kazoo
from kazoo.protocol import serialization as requests
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from odradek.metadata.stores.watches import Watches
from odradek.metadata.stores.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess, is_open, is_sensitive
from odradek.metadata.stores.zookeeper_client import AddWatch, Client, Found, GetChildren, GetData, Sync
from odradek.ports.disk import Disk
from odradek.ports.store import (
    BadVersion,
    Changed,
    ConnectionLost,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    Operation,
    Put,
    SessionExpired,
    Stop,
    StoreError,
    StoreUnavailable,
    TransactionTooLarge,
    checked,
    is_at_or_below,
    parent_of,
    transaction_bytes,
)

logger = logging.getLogger(__name__)

DEFAULT_SESSION_TIMEOUT_MS = 18000
_LANE = "metadata"
_EPHEMERAL = 1
_OWN_TREE = "/zookeeper"
_READ_AT_ONCE = 500
_READ_ATTEMPTS = 5
_PARENT_ATTEMPTS = 5
_REQUEST_BYTES = 1_000_000
"""`jute.maxbuffer` is 1,048,575 bytes unless it was changed; a server hangs up on more."""


class ZooKeeperStore:
    """One session, or several one after the other. Made by `open`."""

    __slots__ = (
        "_access",
        "_client",
        "_closed",
        "_connected",
        "_connection_timeout",
        "_disk",
        "_expired",
        "_hosts",
        "_known",
        "_loop",
        "_root",
        "_session_timeout_ms",
        "_tasks",
        "_watches",
        "session",
    )

    max_transaction_bytes = 500_000

    def __init__(
        self, connect: str, disk: Disk, session_timeout_ms: int, connection_timeout_ms: int, access: ZooKeeperAccess
    ) -> None:
        self._access = access
        hosts, _, chroot = connect.partition("/")
        self._hosts = hosts
        self._root = f"/{chroot.strip('/')}" if chroot.strip("/") else ""
        self._disk = disk
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout = connection_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._watches = Watches()
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._known: set[str] = {"/"}
        self._tasks: set[asyncio.Task[None]] = set()
        self._expired = False
        self._closed = False
        self.session = 0

    @classmethod
    async def open(
        cls,
        connect: str,
        disk: Disk,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        connection_timeout_ms: int | None = None,
        access: ZooKeeperAccess = OPEN_ACCESS,
    ) -> ZooKeeperStore:
        """Begin a session; `connect` is `HOST:PORT,HOST:PORT/chroot`. Raises StoreError.

        A chroot that does not exist is created, as Kafka does.
        """
        store = cls(connect, disk, session_timeout_ms, connection_timeout_ms or session_timeout_ms, access)
        try:
            await store._begin()
            if store._root and await store.get("/") is None:
                await store._create_root()
        except BaseException:
            await store._end_client()
            raise
        return store

    async def _create_root(self) -> None:
        root, self._root = self._root, ""
        try:
            await self.apply([Create(root, b"")])
        except NodeExists:
            logger.debug("%s exists already: another broker created it", root)
        finally:
            self._root = root
            self._known = {"/"}

    # --- the session ---

    async def _begin(self) -> None:
        self._connected.clear()
        client = self._client = Client(
            self._hosts,
            self._session_timeout_ms,
            self._access,
            lambda path: self._on_loop(self._changed, path),
            lambda client: self._on_loop(self._on_connected, client),
            lambda client: self._on_loop(self._on_lost, client),
        )
        await self._disk.run(_LANE, client.start_async)
        try:
            await self._wait_for_connection()
            # The server may lag behind what others have read elsewhere, this broker's last process among them.
            await self._ask(client, Sync(self._full("/")))
        except SessionExpired as error:
            if client.login_error:
                raise StoreError(f"login at ZooKeeper at {self._hosts} failed: {client.login_error}") from error
            raise

    def _on_loop(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop was closed before this store: no caller is left to notify.
            logger.debug("the event loop is closed")

    async def _wait_for_connection(self) -> None:
        try:
            async with asyncio.timeout(self._connection_timeout):
                await self._connected.wait()
        except TimeoutError:
            reason = self._client.login_error if self._client is not None else ""
            text = f"ZooKeeper at {self._hosts} cannot be reached"
            raise StoreUnavailable(f"{text}: {reason}" if reason else text) from None
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._expired:
            raise SessionExpired("the session is over")

    def _on_connected(self, client: Client) -> None:
        if client is not self._client or client.over or not client.connected:
            return
        again = self.session == client.session_id
        self.session = client.session_id
        self._expired = False
        self._connected.set()
        if again:
            logger.info("connected to ZooKeeper again")
        # A server keeps watches for its own connections only, and does not report changes in between.
        self._start(self._watch_again(client))

    async def _watch_again(self, client: Client) -> None:
        try:
            await asyncio.gather(*[self._ask(client, AddWatch(self._full(path))) for path in self._watches.paths()])
        except StoreError as error:
            # Then there is another connection or session to come, which begins from here again.
            logger.info("cannot set watches in ZooKeeper: %s; setting them with the next connection", error)
            return
        self._watches.fire_all()

    def _on_lost(self, client: Client) -> None:
        if client is not self._client or self._closed or self._expired:
            return
        if client.login_error:
            logger.error("login at ZooKeeper at %s failed: %s", self._hosts, client.login_error)
        else:
            logger.warning("ZooKeeper ended session %#x", self.session)
        self._expired = True
        # Callers that wait for the connection learn it, too.
        self._connected.set()
        self._start(self._end_client())
        self._watches.fire_expired()

    def watch_session(self, expired: Callable[[], None]) -> Stop:
        """Implements MetadataStore."""
        return self._watches.add_session(expired)

    async def reopen(self) -> None:
        """Implements MetadataStore."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if not self._expired:
            return
        try:
            await self._end_client()
            self._expired = False
            await self._begin()
        except StoreError:
            self._expired = True
            await self._end_client()
            raise

    async def _end_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await self._disk.run(_LANE, client.end)

    async def close(self) -> None:
        """Implements MetadataStore."""
        self._closed = True
        self._watches.clear()
        self._connected.set()
        await self._end_client()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- requests ---

    def _full(self, path: str) -> str:
        return f"{self._root}{path}" if path != "/" else self._root or "/"

    def _acl_of(self, path: str) -> Any:
        if not self._access.sets_acl or is_open(path):
            return OPEN_ACL_UNSAFE
        return CREATOR_ALL_ACL if is_sensitive(path) else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    def _ask(self, client: Client, request: Any) -> asyncio.Future[Any]:
        """Send now, in the order of the calls; the answer, or ConnectionLost after the connection timeout.

        A future and not a coroutine, since no task may be left to await it when kazoo's thread has ended.
        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def answered(result: Any) -> None:
            self._on_loop(complete, result)

        def complete(result: Any) -> None:
            if future.done():
                return
            if result.successful():
                future.set_result(result.value)
            else:
                future.set_exception(self._translated(client, result.exception))

        take_back = client.call(request, answered)

        def expired() -> None:
            if not future.done():
                take_back()
                future.set_exception(ConnectionLost("ZooKeeper does not answer"))

        timer = self._loop.call_later(self._connection_timeout, expired)
        future.add_done_callback(lambda done: _ended(done, timer))
        return future

    def _translated(self, client: Client, error: BaseException) -> StoreError:
        known = _ERRORS.get(type(error))
        if known is not None:
            return known(str(error) or type(error).__name__)
        if isinstance(error, kazoo.ConnectionClosedError) and not client.over:
            return StoreUnavailable("the store is closed") if self._closed else ConnectionLost(str(error))
        if isinstance(error, kazoo.SessionExpiredError):
            return SessionExpired("the session is over")
        if isinstance(error, kazoo.UnimplementedError):
            return StoreError("this ZooKeeper is too old: 3.6 is the oldest that will do")
        return StoreError(f"ZooKeeper: {error!r}")

    async def _connection(self) -> Client:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._expired:
            raise SessionExpired("the session is over")
        client = self._client
        if client is None or not client.connected:
            # Nothing is given to kazoo meanwhile: it would be sent later, when no caller relies on it.
            self._connected.clear()
            if client is not None and client.connected:
                self._connected.set()
            await self._wait_for_connection()
            client = self._client
        if client is None:
            raise SessionExpired("the session is over")
        return client

    def renew_session(self) -> None:
        """Implements MetadataStore: no bound, since a follower reports requests of a session to the leader later."""

    # --- reading ---

    async def get(self, path: str) -> Node | None:
        """Implements MetadataStore."""
        full = self._full(checked(path))
        found: Found | None = (await self._read(GetData([full])))[0]
        return None if found is None else Node(found.data, found.version, found.owner)

    async def children(self, path: str) -> list[str]:
        """Implements MetadataStore."""
        full = self._full(checked(path))
        names: list[str] = (await self._read(GetChildren([full])))[0] or []
        return sorted(name for name in names if full != "/" or name != _OWN_TREE[1:])

    async def subtree(self, path: str) -> Mapping[str, Node]:
        """Implements MetadataStore."""
        top = self._full(checked(path))
        nodes: dict[str, Node] = {}
        level = [top]
        while level:
            parents = []
            for full, found in await self._read_many(GetData, level):
                if found is not None:
                    nodes[full[len(self._root) :] or "/"] = Node(found.data, found.version, found.owner)
                    if found.children:
                        parents.append(full)
            level = [
                f"{full.rstrip('/')}/{name}"
                for full, names in await self._read_many(GetChildren, parents)
                for name in names or ()
                if full != "/" or name != _OWN_TREE[1:]
            ]
        nodes.pop("/", None)
        return nodes

    async def _read(self, request: GetData | GetChildren) -> Any:
        for _ in range(_READ_ATTEMPTS - 1):
            try:
                return await self._ask(await self._connection(), request)
            except ConnectionLost:
                # To read twice does no harm.
                logger.debug("lost the connection to ZooKeeper while reading; retrying")
        return await self._ask(await self._connection(), request)

    async def _read_many(self, request: type[GetData | GetChildren], paths: list[str]) -> Iterable[tuple[str, Any]]:
        parts = [paths[at : at + _READ_AT_ONCE] for at in range(0, len(paths), _READ_AT_ONCE)]
        answers = await asyncio.gather(*[self._read(request(part)) for part in parts])
        return zip(paths, [answer for part in answers for answer in part], strict=True)

    # --- writing ---

    async def apply(self, operations: Sequence[Operation]) -> None:
        """Implements MetadataStore."""
        if transaction_bytes(operations) > self.max_transaction_bytes:
            raise TransactionTooLarge(f"{len(operations)} operations are too many at once for ZooKeeper")
        for operation in operations:
            checked(operation.path)
        for attempt in range(_PARENT_ATTEMPTS):
            complete, added = await self._with_parents(operations)
            if transaction_bytes(complete) > _REQUEST_BYTES:
                raise TransactionTooLarge(f"{len(complete)} operations are too many at once for ZooKeeper")
            client = await self._connection()
            answers = await self._ask(client, requests.Transaction([self._request(each) for each in complete]))
            failed = next((i for i, a in enumerate(answers) if isinstance(a, Exception) and not _is_consequence(a)), -1)
            if failed < 0:
                self._remember(complete)
                return
            error = self._translated(client, answers[failed])
            # What we believed of parents may be wrong: they were deleted, or another session has just created them.
            outdated = isinstance(error, NoNode) and isinstance(complete[failed], Create)
            if attempt == _PARENT_ATTEMPTS - 1 or not (failed in added or outdated):
                raise type(error)(complete[failed].path)
            self._known = {"/"}

    async def _with_parents(self, operations: Sequence[Operation]) -> tuple[list[Operation], frozenset[int]]:
        """The operations with those that create missing parents, and the places of these."""
        absent: set[str] = set()
        while True:
            plan = with_parents(operations, self._known, absent)
            if not plan.unsure:
                return plan.operations, frozenset(plan.added)
            unsure = sorted(plan.unsure)
            answers = await self._read_many(GetData, [self._full(path) for path in unsure])
            for path, (_, found) in zip(unsure, answers, strict=True):
                (absent if found is None else self._known).add(path)

    def _remember(self, operations: Iterable[Operation]) -> None:
        """Deleted nodes are no parents."""
        gone = [operation.path for operation in operations if isinstance(operation, Delete)]
        if gone:
            self._known -= {known for known in self._known if any(is_at_or_below(known, path) for path in gone)}

    def _request(self, operation: Operation) -> Any:
        full = self._full(operation.path)
        if isinstance(operation, Create):
            return requests.Create(
                full, operation.data, self._acl_of(operation.path), _EPHEMERAL if operation.ephemeral else 0
            )
        if isinstance(operation, Put):
            return requests.SetData(full, operation.data, operation.version)
        if isinstance(operation, Delete):
            return requests.Delete(full, operation.version)
        return requests.CheckVersion(full, operation.version)

    # --- watching ---

    def watch(self, path: str, changed: Changed) -> Stop:
        """Implements MetadataStore."""
        known = checked(path) in self._watches.paths()
        stop = self._watches.add(path, changed)
        client = self._client
        if not known and client is not None and client.connected and not self._expired:
            # Sent before any later request, so nothing is missed between this and the caller's reading.
            self._start(self._watched(path, self._ask(client, AddWatch(self._full(path)))))
        return stop

    async def _watched(self, path: str, answer: Awaitable[Any]) -> None:
        try:
            await answer
        except (StoreUnavailable, SessionExpired) as error:
            logger.info("cannot watch %s in ZooKeeper: %s; watching it with the next connection", path, error)
        except StoreError as error:
            logger.warning("cannot watch %s in ZooKeeper: %s", path, error)

    def _changed(self, full: str) -> None:
        if is_at_or_below(full, self._root or "/") and not self._closed:
            self._watches.fire([full[len(self._root) :] or "/"])


class _Plan(NamedTuple):
    operations: list[Operation]
    added: list[int]
    """Places of the operations that create parents."""
    unsure: set[str]
    """Paths that have to be looked up before this is a plan."""


def with_parents(operations: Sequence[Operation], known: Container[str], absent: Container[str]) -> _Plan:
    """ZooKeeper creates no parents: put in what creates them, given which nodes exist and which do not."""
    plan = _Plan([], [], set())
    here: dict[str, bool] = {"/": True}
    for operation in operations:
        if isinstance(operation, Create):
            chain: list[str] = []
            path = parent_of(operation.path)
            while not here.get(path, path in known):
                if path not in here and path not in absent and not _is_below_new(path, here):
                    plan.unsure.add(path)
                    break
                chain.append(path)
                path = parent_of(path)
            for each in reversed(chain):
                plan.added.append(len(plan.operations))
                plan.operations.append(Create(each, b""))
                here[each] = True
            here[operation.path] = True
        elif isinstance(operation, Delete):
            here[operation.path] = False
        plan.operations.append(operation)
    return plan


def _is_below_new(path: str, here: Mapping[str, bool]) -> bool:
    """Below a node that is created only now there can be nothing yet."""
    while path != "/":
        if path in here:
            return here[path]
        path = parent_of(path)
    return False


def _ended(answer: asyncio.Future[Any], timer: asyncio.TimerHandle) -> None:
    timer.cancel()
    if not answer.cancelled():
        # Read here, it is not reported as unread where its caller was cancelled.
        answer.exception()


def _is_consequence(error: Exception) -> bool:
    """What a multi answers for the operations before and after the one that failed."""
    return isinstance(error, kazoo.RolledBackError | kazoo.RuntimeInconsistency)


_ERRORS: dict[type[BaseException], type[StoreError]] = {
    kazoo.NoNodeError: NoNode,
    kazoo.NodeExistsError: NodeExists,
    kazoo.BadVersionError: BadVersion,
    kazoo.NotEmptyError: NotEmpty,
    kazoo.NoAuthError: NotAllowed,
    kazoo.NoAuthError: NotAllowed,
    kazoo.ConnectionLoss: ConnectionLost,
    kazoo.OperationTimeoutError: ConnectionLost,
    kazoo.RequestTimeoutError: ConnectionLost,
    kazoo.SessionMovedError: ConnectionLost,
    kazoo.SessionExpiredError: SessionExpired,
    # A login that fails ends the session.
    kazoo.AuthFailedError: SessionExpired,
}
