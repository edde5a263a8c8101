"""What kazoo lacks for our store: recursive watches that last (addWatch) and many reads in one request (multiRead).

Both are of ZooKeeper 3.6 (ZOOKEEPER-1416, ZOOKEEPER-3402). Everything in here runs in kazoo's threads; only this module
imports kazoo.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionDropped, NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL, read_buffer, read_string, write_string
from kazoo.protocol.states import KazooState

from odradek.metadata.stores.zookeeper_access import ZooKeeperAccess
from odradek.metadata.stores.zookeeper_login import authenticate
from odradek.security.errors import SaslError

_INT = struct.Struct("!i")
_MULTI_HEADER = struct.Struct("!iBi")
_STAT = struct.Struct("!qqqqiiiqiiq")
_PERSISTENT_RECURSIVE = 1
_GET_DATA = 4
_GET_CHILDREN = 8
_ERROR = -1
_RETRY_SECONDS = 2.0
_HANDSHAKE_SECONDS = 2.0
"""So long every server may take to begin a session."""


class Found(NamedTuple):
    """A node as getData answers it."""

    data: bytes
    version: int
    owner: int
    children: int


class AddWatch:
    """A watch of a node and all below it that lasts as long as the connection."""

    __slots__ = ("path",)

    type = 106

    def __init__(self, path: str) -> None:
        self.path = path

    def serialize(self) -> bytes:
        """The body of the request."""
        return bytes(write_string(self.path) + _INT.pack(_PERSISTENT_RECURSIVE))

    @staticmethod
    def deserialize(_buffer: bytes, _offset: int) -> bool:
        """The response has no body."""
        return True


class Sync:
    """Answered when this server has everything that was written before it was asked."""

    __slots__ = ("path",)

    type = 9

    def __init__(self, path: str) -> None:
        self.path = path

    def serialize(self) -> bytes:
        """The body of the request."""
        return bytes(write_string(self.path))

    @staticmethod
    def deserialize(_buffer: bytes, _offset: int) -> bool:
        """The path in the response is not needed."""
        return True


class GetData:
    """Of many nodes; a missing one is None."""

    __slots__ = ("paths",)

    type = 22

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def serialize(self) -> bytes:
        """The body of the request (multiRead of getData)."""
        return _multi_read(_GET_DATA, self.paths)

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[Found | None]:
        """Data and version of each node, in the order of the paths."""
        return _multi_read_answer(buffer, offset, _read_found)


class GetChildren:
    """Of many nodes; a missing one is None."""

    __slots__ = ("paths",)

    type = 22

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def serialize(self) -> bytes:
        """The body of the request (multiRead of getChildren)."""
        return _multi_read(_GET_CHILDREN, self.paths)

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[list[str] | None]:
        """Names below each node, in the order of the paths."""
        return _multi_read_answer(buffer, offset, _read_names)


def _multi_read(kind: int, paths: list[str]) -> bytes:
    header = _MULTI_HEADER.pack(kind, 0, -1)
    return b"".join(header + write_string(path) + b"\0" for path in paths) + _MULTI_HEADER.pack(-1, 1, -1)


def _multi_read_answer(buffer: bytes, offset: int, read: Callable[[bytes, int], tuple[Any, int]]) -> list[Any]:
    answers: list[Any] = []
    while True:
        kind, done, _ = _MULTI_HEADER.unpack_from(buffer, offset)
        offset += _MULTI_HEADER.size
        if done:
            return answers
        if kind == _ERROR:
            error = EXCEPTIONS[_INT.unpack_from(buffer, offset)[0]]()
            offset += _INT.size
            if not isinstance(error, NoNodeError):
                raise error
            answers.append(None)
        else:
            answer, offset = read(buffer, offset)
            answers.append(answer)


def _read_found(buffer: bytes, offset: int) -> tuple[Found, int]:
    data, offset = read_buffer(buffer, offset)
    stat = _STAT.unpack_from(buffer, offset)
    return Found(bytes(data or b""), stat[4], stat[7], stat[9]), offset + _STAT.size


def _read_names(buffer: bytes, offset: int) -> tuple[list[str], int]:
    count = _INT.unpack_from(buffer, offset)[0]
    offset += _INT.size
    names = []
    for _ in range(count):
        name, offset = read_string(buffer, offset)
        names.append(name)
    return names, offset


def _patience(session_seconds: float) -> float:
    """How long one server may take for a connection, and for the session on it.

    A machine that is dark answers no SYN, and a server that is about to start may take a connection and never answer on
    it. kazoo waits for the session's whole time then (for the answer, divided by the number of servers): when it tries
    another one the session is over, and everything with it.
    """
    return max(_HANDSHAKE_SECONDS, session_seconds / 3)


class _Unshown(str):
    """A secret: kazoo logs its requests by their repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class _UnshownBytes(bytes):
    """Proof of a password, by which others can guess it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "b'***'"


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Makes connections, each within the patience for a server."""

    def __init__(self, session_seconds: float, context: Callable[[], ssl.SSLContext] | None) -> None:
        super().__init__()
        self._patience = _patience(session_seconds)
        self._context = context

    def create_connection(self, *args: Any, timeout: float, hostname: str = "", **kwargs: Any) -> Any:
        """Connect within the shorter of kazoo's timeout and the patience of this session.

        TLS is ours: kazoo would trust the system's authorities beside those of the trust store.
        """
        patience = min(timeout, self._patience)
        connected = super().create_connection(*args, timeout=patience, **kwargs)
        if self._context is None:
            return connected
        try:
            connected.settimeout(patience)
            return self._context().wrap_socket(connected, server_hostname=hostname)
        except ValueError as error:  # files of certificates that cannot be read now
            connected.close()
            raise OSError(str(error)) from error
        except BaseException:
            connected.close()
            raise

    def select(self, read: Any, write: Any, failed: Any, timeout: float | None = None) -> Any:
        """As kazoo's, but bytes that are decrypted already make a TLS connection readable."""
        pending = [each for each in read if isinstance(each, ssl.SSLSocket) and each.pending()]
        if not pending:
            return super().select(read, write, failed, timeout)
        others = super().select([each for each in read if each not in pending], write, failed, 0)
        return [*pending, *others[0]], others[1], others[2]


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Hands every watch event on: kazoo looks for watches of exactly that path, and forgets them."""

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        return super()._invoke(min(timeout, _patience(self.client._session_timeout / 1000)), request, xid)

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        # Two ints, kind and state, come before the path.
        path, _ = read_string(buffer, offset + 2 * _INT.size)
        self.client.changed(path)

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Log in before any request of this connection, in the place of kazoo's own, which needs `pure-sasl`."""
        client: Client = self.client
        xid = 0

        def ask(message: bytes) -> bytes:
            nonlocal xid
            xid += 1
            self._submit(SASL(_UnshownBytes(message)), timeout, xid)
            header, buffer, offset = self._read_header(timeout)
            if header.xid != xid:
                raise SaslError("the server answers a login by something else")
            if header.err:
                raise AuthFailedError("the server rejects the user or the password")
            return bytes(SASL.deserialize(buffer, offset)[0] or b"")

        try:
            authenticate(self.sasl_options["login"](host), ask)
        except ConnectionDropped:
            # A server that stops, or one that answers a wrong password so: the next connection shows it.
            client.login_error = "it closes connections during the login"
            raise
        except AuthFailedError as error:
            client.login_error = str(error)
            raise
        except SaslError as error:
            client.login_error = str(error)
            raise AuthFailedError(str(error)) from error
        client.login_error = ""


class Client(KazooClient):  # type: ignore[misc]
    """A client of one session: when that is over, so is the client, and nothing waits for the next one.

    The callbacks are called in kazoo's threads: `changed` with a path, `connected` after every (re)connection,
    `lost` when the session is over without having been closed.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        access: ZooKeeperAccess,
        changed: Callable[[str], None],
        connected: Callable[[Client], None],
        lost: Callable[[Client], None],
    ) -> None:
        super().__init__(
            hosts,
            timeout=session_timeout_ms / 1000,
            handler=Handler(session_timeout_ms / 1000, access.context),
            auth_data=[("digest", _Unshown(access.digest))] if access.digest else None,
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": _RETRY_SECONDS},
        )
        self.changed = changed
        self._on_connected = connected
        self._on_lost = lost
        self.over = False
        self.login_error = ""
        """Why the last login by SASL failed; empty after one that did not."""
        options = None if access.login is None else {"login": access.login}
        self._connection = _Connection(self, self._conn_retry.copy(), logger=self.logger, sasl_options=options)
        self.add_listener(self._state_changed)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._on_connected(self)
        elif state == KazooState.LOST and not self._stopped.is_set():
            self.over = True
            # kazoo would begin another session now, and in it do what was asked of this one.
            self._stopped.set()
            self._on_lost(self)

    def call(self, request: Any, answered: Callable[[Any], None]) -> Callable[[], None]:
        """Send, and call `answered` with kazoo's result, in its thread. What is returned takes an unsent one back."""
        result = self.handler.async_result()
        result.rawlink(answered)
        self._call(request, result)

        def take_back() -> None:
            try:
                self._queue.remove((request, result))
            except ValueError:
                return

        return take_back

    def end(self) -> None:
        """Close the session if it lives, and wait for the threads."""
        if self._stopped.is_set():
            self._safe_close()
        else:
            self.stop()
        self.close()

    @property
    def session_id(self) -> int:
        """The id of the session; 0 without one."""
        return int(self._session_id or 0)
