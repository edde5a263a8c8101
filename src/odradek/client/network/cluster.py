"""Shared by producer, consumer and admin: connections, fresh metadata, coordinators, retries with backoff."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from odradek.client.config import CommonOptions
from odradek.client.errors import (
    CallTimedOut,
    ClientClosed,
    ClientError,
    Disconnected,
    IllegalState,
    TransportError,
)
from odradek.client.metrics.windows import Windows
from odradek.client.network.connection import Connection, Request, Response
from odradek.client.network.connections import (
    DATA,
    GROUP,
    BrokerAddress,
    Connections,
    backoff_seconds,
    retrieve_failure,
)
from odradek.client.network.failure_log import FailureLog
from odradek.client.network.metadata import MetadataCache, PartitionInfo, TopicInfo
from odradek.client.surroundings import surroundings
from odradek.client.topic_names import check_topic_name
from odradek.ports.network import Network
from odradek.ports.randomness import Random
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

logger = logging.getLogger(__name__)

GROUP_COORDINATOR: Final = 0
TRANSACTION_COORDINATOR: Final = 1

T = TypeVar("T")

_STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
    }
)
_TOPIC_FAILURES: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors of a topic that do not pass by themselves."""
SILENT_S: Final = 1.0
"""A broker that has not answered Metadata for this time is not waited for where there is another one."""
_QUIET_S: Final = 1.0
"""A retriable error of a broker is normal for this long: a leader moves, a coordinator loads."""
BRIEF_FAILURES: Final = 5
"""So often a failure is taken for one whose reason is gone within milliseconds."""
_BRIEF_MS: Final = 5
"""The first pause after such a failure."""
_LOST_COORDINATOR: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


def error_of(code: int, message: str | None = None) -> KafkaError:
    """The exception for an error code of an answer; without a message from the broker it explains the code."""
    return KafkaError(error_code(code), message or None)


def is_stale_metadata(code: int) -> bool:
    """Whether an error code means that leaders, topics or ids have changed."""
    return code in _STALE_METADATA


def is_retriable(error: BaseException) -> bool:
    """Whether a retry may succeed (Kafka's RetriableException)."""
    if isinstance(error, KafkaError):
        return error.retriable
    return isinstance(error, TransportError)


class Cluster:
    """A client's view of a cluster. Make it inside of a running event loop."""

    __slots__ = (
        "_auto_create",
        "_closed",
        "_coordinators",
        "_doubted",
        "_fails_since",
        "_failures",
        "_refresh",
        "_topics",
        "connections",
        "loop",
        "metadata",
        "options",
        "random",
        "topic_errors",
        "windows",
    )  # fmt: skip

    def __init__(
        self,
        options: CommonOptions,
        *,
        network: Network | None = None,
        random: Random | None = None,
        allow_auto_create_topics: bool = True,
    ) -> None:
        self.options = options
        found = surroundings()
        self.random: Random = random or found.random
        self.loop = asyncio.get_running_loop()
        self.windows = Windows(
            self.loop.time, options["metrics_sample_window_ms"] / 1000, options["metrics_num_samples"]
        )
        """Past values of what the client counts."""
        self.windows.run_on(self.loop)
        self.connections = Connections(network or found.network, self.random, options, self.windows)
        self.metadata = MetadataCache()
        self._auto_create = allow_auto_create_topics
        self._topics: set[str] | None = set()
        self._coordinators: dict[tuple[int, str], int] = {}
        self._doubted: Connection | None = None
        # When the metadata requests began to fail, None after a success.
        self._fails_since: float | None = None
        self._refresh: asyncio.Task[dict[str, int]] | None = None
        self._failures = FailureLog(logger, self.loop.time, {"client_id": options["client_id"]})
        self._closed = False
        self.topic_errors: Mapping[str, int] = {}
        """Error codes by topic in the last metadata."""

    def check_loop(self) -> None:
        """Raise IllegalState in another event loop than the one that started this client."""
        if asyncio.get_running_loop() is not self.loop:
            raise IllegalState(
                "this client was started in another event loop: use a client of its own in each loop, and "
                "`odradek.client.blocking` from threads"
            )

    def check_topics(self, topics: Iterable[str]) -> None:
        """Raise the KafkaError of a topic that no retry will help (a bad name, no permission)."""
        if not self.topic_errors:
            return
        for name in topics:
            code = self.topic_errors.get(name, 0)
            if code in _TOPIC_FAILURES:
                self.want_metadata()
                raise error_of(code, f"topic {name}")

    # --- requests ---

    async def request(
        self,
        node_id: int,
        request: Request,
        response_type: type[Response],
        *,
        purpose: str = DATA,
        at_most: int = 0x7FFF,
        timeout_ms: float | None = None,
    ) -> Response:
        """One request to one broker, not retried. Raises ClientError."""
        try:
            connection = await self.connections.get(node_id, purpose)
            return await self.ask(connection, request, response_type, at_most=at_most, timeout_ms=timeout_ms)
        except TransportError:
            if purpose == DATA:
                # It may have died: another broker leads then.
                self.want_metadata()
            raise

    async def ask(
        self,
        connection: Connection,
        request: Request,
        response_type: type[Response],
        *,
        at_most: int = 0x7FFF,
        timeout_ms: float | None = None,
    ) -> Response:
        """One request on an open connection, in the best version that both sides know."""
        version = connection.version_of(type(request), at_most)
        wait_ms = self.options["request_timeout_ms"] if timeout_ms is None else timeout_ms
        return await connection.request(request, response_type, version, wait_ms)

    async def request_any(self, request: Request, response_type: type[Response]) -> Response:
        """One request to some broker, not retried. Raises ClientError."""
        return await self.ask(await self.connections.any(), request, response_type)

    async def request_coordinator(
        self,
        kind: int,
        key: str,
        request: Request,
        response_type: type[Response],
        *,
        at_most: int = 0x7FFF,
        timeout_ms: float | None = None,
    ) -> Response:
        """One request to a group's or transactional id's coordinator. Raises ClientError, KafkaError.

        The caller passes error codes of the answer to `check_coordinator`.
        """
        node_id = await self.coordinator(kind, key)
        try:
            return await self.request(
                node_id, request, response_type, purpose=GROUP, at_most=at_most, timeout_ms=timeout_ms
            )
        except TransportError:
            self.forget_coordinator(kind, key)
            raise

    async def coordinator(self, kind: int, key: str) -> int:
        """Broker id of a coordinator, looked up when unknown. Raises ClientError, KafkaError."""
        known = self._coordinators.get((kind, key))
        return await self._find_coordinator(kind, key, await self.connections.any()) if known is None else known

    async def coordinator_has_moved(self, kind: int, key: str, node_id: int) -> bool:
        """Whether a broker, another one if possible, names another coordinator than this, which is known then."""
        try:
            connection = await self.connections.any(other_than=self.connections.opened(node_id))
            return await self._find_coordinator(kind, key, connection) != node_id
        except (KafkaError, ClientError):
            return False

    async def _find_coordinator(self, kind: int, key: str, connection: Connection) -> int:
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        if connection.version_of(FindCoordinatorRequest) >= 4:
            request.key = ""
        else:
            request.coordinator_keys = []
        response = await self.ask(connection, request, FindCoordinatorResponse)
        found: Any = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise error_of(found.error_code, found.error_message)
        self.connections.add_broker(BrokerAddress(found.node_id, found.host, found.port))
        self._coordinators[kind, key] = found.node_id
        return int(found.node_id)

    async def coordinator_connection(self, kind: int, key: str) -> Connection:
        """An open connection to a coordinator. After a failure, the next call looks the coordinator up again.

        Raises ClientError, KafkaError.
        """
        node_id = await self.coordinator(kind, key)
        try:
            return await self.connections.get(node_id, GROUP)
        except TransportError:
            self.forget_coordinator(kind, key)
            raise

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Have the coordinator looked up by the next request."""
        self._coordinators.pop((kind, key), None)

    def check_coordinator(self, kind: int, key: str, code: int, message: str | None = None) -> None:
        """Raise the KafkaError of an error code; a broker that is no longer the coordinator is forgotten."""
        if code in _LOST_COORDINATOR:
            self.forget_coordinator(kind, key)
        if code:
            raise error_of(code, message)

    async def controller(self) -> int:
        """Broker id of the controller, or of any broker where the cluster does not report its controller."""
        if self.metadata.controller_id not in self.metadata.brokers:
            await self.refresh_metadata()
        if self.metadata.controller_id in self.metadata.brokers:
            return self.metadata.controller_id
        if not self.metadata.brokers:
            raise TransportError("no broker is known")
        return next(iter(self.metadata.brokers))

    # --- retries ---

    async def retrying(
        self,
        call: Callable[[], Awaitable[T]],
        what: str,
        timeout_ms: float | None = None,
        *,
        logs_failures: bool = True,
    ) -> T:
        """Call until it succeeds or raises an error that is not retriable; `what` names the call in logs and errors.

        Raises CallTimedOut after `timeout_ms` (default_api_timeout_ms), caused by the last failure.
        """
        wait_ms = self.options["default_api_timeout_ms"] if timeout_ms is None else timeout_ms
        failures = 0
        last: Exception | None = None
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while True:
                    try:
                        result = await call()
                        if failures and logs_failures:
                            self._failures.succeeded(what)
                        return result
                    except (KafkaError, ClientError) as error:
                        if not is_retriable(error):
                            self._failures.forget(what)
                            raise
                        last = error
                        if logs_failures and not isinstance(error, Disconnected):  # logged for the connection
                            then = f"retrying for up to {wait_ms / 1000:g} s"
                            self._failures.failed(what, error, then, quiet_s=_QUIET_S)
                        if isinstance(error, KafkaError) and error.code in _STALE_METADATA:
                            self.want_metadata()
                    failures += 1
                    await asyncio.sleep(self.backoff(failures))
        except TimeoutError as error:
            if isinstance(error, ClientError):
                raise
            self._failures.forget(what)
            raise CallTimedOut(f"{what}: no success within {wait_ms:g} ms{f' ({last})' if last else ''}") from last

    def backoff(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        options = self.options
        return backoff_seconds(failures, options["retry_backoff_ms"], options["retry_backoff_max_ms"], self.random)

    def brief_backoff(self, failures: int) -> float:
        """Seconds to wait where the reason of the failures is gone within milliseconds: at first much less."""
        limit_ms = self.options["retry_backoff_ms"]
        return backoff_seconds(failures, min(_BRIEF_MS, limit_ms), limit_ms, self.random)

    # --- metadata ---

    def follow_topics(self, topics: Iterable[str] | None) -> bool:
        """Keep metadata of these topics (None: all) from now on; whether any is new."""
        if topics is None:
            changed = self._topics is not None
            self._topics = None
            return changed
        wanted = set(topics)
        changed = self._topics is None or bool(wanted - self._topics)
        self._topics = wanted
        return changed

    def add_topic(self, topic: str) -> None:
        """Keep metadata of one topic besides the others."""
        if self._topics is not None:
            self._topics.add(topic)

    def want_metadata(self) -> None:
        """Have the metadata refreshed soon, in the background."""
        if not self._closed:
            self._begin_refresh()

    def want_new_topics(self) -> None:
        """Have the topics looked up that are followed since now; the request under way may have left before."""
        if self._refresh is None:
            self.want_metadata()
        else:
            self._refresh.add_done_callback(lambda _: self.want_metadata())

    def ask_another(self, connection: Connection) -> asyncio.Task[dict[str, int]]:
        """Refresh the metadata from another broker, if there is one, as this one is silent. Its failure is logged."""
        self._doubted = connection
        return self._begin_refresh()

    async def pause_after_failed_connection(self, node_id: int) -> None:
        """Wait before a leader is asked for again: it may have moved, so the metadata is refreshed meanwhile.

        While the client begins again with the bootstrap servers (KIP-899) it knows no broker's address, and the look-up
        fails at once: then this waits for the metadata.
        """
        self.want_metadata()
        if node_id not in self.connections.brokers:
            with contextlib.suppress(ClientError, KafkaError):
                await self.refresh_metadata()
        await asyncio.sleep(self.options["reconnect_backoff_ms"] / 1000)

    def _begin_refresh(self) -> asyncio.Task[dict[str, int]]:
        """The refresh that is under way, or a new one."""
        if self._refresh is None:
            self._refresh = self.loop.create_task(self._refreshing())
            # The next refresh reports the failure again if it lasts.
            self._refresh.add_done_callback(retrieve_failure)
        return self._refresh

    async def refresh_metadata(self) -> dict[str, int]:
        """Fetch the metadata now and return error codes by topic. Raises ClientError when no broker answers."""
        if self._closed:
            raise ClientClosed("the client was closed")
        if self._refresh is not None:
            # The request under way may have left before the caller's topic was added.
            with contextlib.suppress(ClientError, KafkaError):
                await asyncio.shield(self._refresh)
        return await asyncio.shield(self._begin_refresh())

    async def fetch_topics(self, topics: Iterable[str] | None) -> dict[str, int]:
        """Fetch the metadata of these topics (None: all) now and return error codes by topic.

        They are not followed, so that several calls may run beside each other. Raises ClientError.
        """
        if self._closed:
            raise ClientClosed("the client was closed")
        errors = await self._fetch_topics(None if topics is None else sorted(set(topics)))
        if topics is None and self._topics is not None:
            # Topics that were deleted since need not be asked for again.
            self._topics.intersection_update(self.metadata.topics)
        return errors

    async def _refreshing(self) -> dict[str, int]:
        topics = None if self._topics is None else sorted(self._topics)
        try:
            errors = await self._fetch_topics(topics)
            self._note_topics(topics or (), errors)
            return errors
        except asyncio.CancelledError:
            if self._closed:  # the callers that wait are not to look cancelled
                raise ClientClosed("the client was closed") from None
            raise
        finally:
            self._refresh = None

    async def _fetch_topics(self, topics: list[str] | None) -> dict[str, int]:
        try:
            try:
                errors = await self._ask_metadata(topics)
            except KafkaError as error:
                if error.code != ErrorCode.REBOOTSTRAP_REQUIRED or not self._rebootstraps:
                    raise
                self._rebootstrap("a broker asks for it")
                errors = await self._ask_metadata(topics)
        except (KafkaError, ClientError) as error:
            self._recover()
            if not isinstance(error, Disconnected):  # logged for the connection
                self._failures.failed("metadata", error, "retrying")
            raise
        self._fails_since = None
        self._failures.succeeded("metadata")
        return errors

    async def _ask_metadata(self, topics: list[str] | None) -> dict[str, int]:
        """Fetch and merge the metadata of topics, None for all; error codes by topic."""
        connection = await self.connections.any(other_than=self._doubted)
        if len(self.connections.brokers) > 1:
            connection, response = await self._ask_two(connection, topics)
        else:
            response = await self._request_metadata(connection, topics)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            raise error_of(response.error_code)
        if not response.brokers:
            # It has just started and has no metadata yet: the known brokers stay.
            raise TransportError("the broker does not know its cluster yet")
        errors = self.metadata.update(response, self.loop.time(), asked=topics)
        self.connections.update_brokers(self.metadata.brokers)
        # A broker that is cut off from the others does not learn of new leaders: the next request asks another one.
        self._doubted = connection if self._lacks_leaders(topics) else None
        return errors

    async def _ask_two(self, connection: Connection, topics: list[str] | None) -> tuple[Connection, MetadataResponse]:
        """Ask another broker when this one is silent: it may stand still, and all wait for this answer."""
        asked = self.loop.create_task(self._request_metadata(connection, topics))
        asked.add_done_callback(retrieve_failure)
        if not (await asyncio.wait({asked}, timeout=SILENT_S))[0]:
            other = await self.connections.any(other_than=connection)
            if other is not connection:
                asked.cancel()
                return other, await self._request_metadata(other, topics)
        return connection, await asked

    async def _request_metadata(self, connection: Connection, topics: list[str] | None) -> MetadataResponse:
        version = connection.version_of(MetadataRequest)
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=each) for each in topics],
            allow_auto_topic_creation=self._auto_create or version < 4,
        )
        if topics is None and version == 0:
            request.topics = []
        return await self.ask(connection, request, MetadataResponse)

    @property
    def _rebootstraps(self) -> bool:
        return self.options["metadata_recovery_strategy"] == "rebootstrap"

    def _recover(self) -> None:
        """Give the known brokers up when no answer has come for metadata_recovery_rebootstrap_trigger_ms (KIP-1102)."""
        now = self.loop.time()
        if self._fails_since is None:
            self._fails_since = now
        trigger_ms = self.options["metadata_recovery_rebootstrap_trigger_ms"]
        if self._rebootstraps and self.metadata.brokers and now - self._fails_since >= trigger_ms / 1000:
            self._rebootstrap(f"no metadata for {trigger_ms} ms (metadata_recovery_rebootstrap_trigger_ms)")

    def _rebootstrap(self, why: str) -> None:
        logger.warning(
            "client begins again with bootstrap_servers: %s", why, extra={"client_id": self.options["client_id"]}
        )
        self._fails_since = None
        self._doubted = None
        self._coordinators.clear()
        self.metadata.forget_brokers()
        self.connections.rebootstrap(Disconnected(f"the client begins again with bootstrap_servers: {why}"))

    def _lacks_leaders(self, asked: Iterable[str] | None) -> bool:
        """Whether a partition of these topics, None for all, has no leader as far as is known."""
        known = self.metadata.topics
        found = known.values() if asked is None else (known[name] for name in asked if name in known)
        return any(len(topic.available) < len(topic.partitions) for topic in found)

    def _note_topics(self, asked: Iterable[str], errors: Mapping[str, int]) -> None:
        """Log topics that the metadata lacks."""
        before, self.topic_errors = self.topic_errors, errors
        for name, code in errors.items():
            if code != ErrorCode.LEADER_NOT_AVAILABLE and (name in before or not self._auto_create):
                # Where asking creates topics, the first answer for a new one is an error, too.
                self._failures.failed(f"metadata of topic {name}", error_code(code).name, "retrying")
        if before:
            for name in asked:
                if name in before and name not in errors:
                    self._failures.succeeded(f"metadata of topic {name}")

    def metadata_age(self) -> float:
        """Seconds since the last answer."""
        return self.loop.time() - self.metadata.updated_at

    def metadata_is_old(self, now: float) -> bool:
        """Whether metadata_max_age_ms have passed since the last answer, at a time of the loop."""
        return now - self.metadata.updated_at > self.options["metadata_max_age_ms"] / 1000

    async def topic(self, name: str, timeout_ms: float | None = None) -> TopicInfo:
        """A topic with its partitions; waits while it is being created. Raises TypeError, KafkaError, CallTimedOut."""
        known = self.metadata.topics.get(name)
        if known is not None:
            self.add_topic(name)
            return known
        self.add_topic(check_topic_name(name))

        async def find() -> TopicInfo:
            errors = await self.refresh_metadata()
            info = self.metadata.topics.get(name)
            if info is None or not info.partitions:
                raise error_of(errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name}")
            return info

        # Each refresh logs the topics that it lacks.
        return await self.retrying(find, f"metadata of topic {name}", timeout_ms, logs_failures=False)

    async def leader(self, topic: str, partition: int) -> PartitionInfo:
        """A partition that has a leader, as far as is known now; not retried. Raises KafkaError, ClientError."""
        # Also a known topic: it may have left the followed ones since, and its metadata grown old.
        self.add_topic(topic)
        info = self.metadata.partition(topic, partition)
        if info is None or info.leader < 0:
            errors = await self.refresh_metadata()
            info = self.metadata.partition(topic, partition)
            if info is None:
                raise error_of(errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"{topic}-{partition}")
        if info.leader < 0:
            raise error_of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return info

    async def leaders(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
        """Partitions by their leaders, after at most one refresh, and the errors of those without. Raises ClientError.

        Not retried.
        """
        wanted = list(partitions)
        for topic in {key.topic for key in wanted}:
            self.add_topic(topic)
        errors: Mapping[str, int] = {}
        if any(self.metadata.leader(*key) < 0 for key in wanted):
            errors = await self.refresh_metadata()
        leaders: dict[int, list[TopicPartition]] = {}
        lacking: dict[TopicPartition, KafkaError] = {}
        for key in wanted:
            info = self.metadata.partition(*key)
            if info is None:
                code = errors.get(key.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                lacking[key] = error_of(code, f"{key}")
            elif info.leader < 0:
                lacking[key] = error_of(ErrorCode.LEADER_NOT_AVAILABLE, f"{key}")
            else:
                leaders.setdefault(info.leader, []).append(key)
        return leaders, lacking

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self.windows.stop()
        if self._refresh is not None:
            self._refresh.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClientError, KafkaError):
                await self._refresh
        await self.connections.close()
