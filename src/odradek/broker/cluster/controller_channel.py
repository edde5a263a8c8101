"""The controller's channel to one other broker: it sends each change until the broker has acknowledged it.

A channel remembers the image that the broker has acknowledged. However many changes come while a request is under way,
the next ones carry their sum; after a failure the same difference is sent again. If a connection breaks and the
broker's address rejects a new one, the process is gone: that is reported at once, long before its session ends.
Source: Kafka's `ControllerChannelManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from odradek.broker.cluster.cluster_secret import Prove
from odradek.broker.cluster.peers import PeerLimits, proven
from odradek.broker.task_failures import logs_failure
from odradek.client.errors import ClientError, Disconnected, RequestTimedOut
from odradek.client.network.connection import Connection, open_connection
from odradek.controller.notices import Difference, Notice, PartitionNews, difference, everything, notice
from odradek.metadata.controller_messages import broker_message, metadata_message, replica_message
from odradek.metadata.image import Broker, ClusterImage
from odradek.ports.network import Network, Secure
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrRequestLiveLeader,
    LeaderAndIsrRequestTopicState,
    LeaderAndIsrResponse,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaRequestPartitionState,
    StopReplicaRequestTopicState,
    StopReplicaResponse,
)
from odradek.wire.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestTopicState,
    UpdateMetadataResponse,
)

logger = logging.getLogger(__name__)
_log_failure = logs_failure(logger, "a controller channel failed")

LEADER_AND_ISR_VERSION: Final = 7
STOP_REPLICA_VERSION: Final = 4
UPDATE_METADATA_VERSION: Final = 8
RETRY_SECONDS: Final = 0.05
MAX_RETRY_SECONDS: Final = 1.0
INCREMENTAL: Final = 1
FULL: Final = 2
DELETED: Final = -2
"""The leader of a partition whose topic is deleted (Kafka's LeaderDuringDelete)."""

_SIGNS_OF_DEATH: Final = 2
"""A connection that broke and one that was refused, or two refused ones."""


class ControlTimeouts(NamedTuple):
    """How long a request to a broker may take, in milliseconds."""

    first_ms: float = 9_000
    """The session (`broker.session.timeout.ms`): a broker that does not answer for that long counts as silent."""
    longest_ms: float = 30_000
    """`controller.socket.timeout.ms`: each timeout doubles the time for the next attempt, up to this."""


DEFAULT_TIMEOUTS: Final = ControlTimeouts()

Connect = Callable[[Broker], Awaitable[Connection]]
"""A new connection to a broker's control plane. Raises ClientError, caused by the OSError if there was one."""


class ChannelEvents(Protocol):
    """What a channel reports; called from its task."""

    def broker_died(self, broker: Broker, /) -> None:
        """The broker's address no longer accepts connections."""
        ...

    def image_acknowledged(self, broker: Broker, version: int, /) -> None:
        """The broker knows an image of this version."""
        ...

    def registration_ended(self, broker: Broker, /) -> None:
        """The broker has registered again: this channel is closed."""
        ...

    def deposed(self) -> None:
        """The broker knows of a newer controller."""
        ...

    def replicas_answered(self, broker: Broker, offline: list[PartitionNews], online: list[PartitionNews], /) -> None:
        """Directories that have failed, and replicas held for offline that are not."""
        ...


class Differences:
    """The difference of two images, computed once for all channels."""

    __slots__ = ("_found", "_new", "_old")

    def __init__(self) -> None:
        self._old: ClusterImage | None = None
        self._new: ClusterImage | None = None
        self._found = Difference((), (), False)

    def of(self, old: ClusterImage, new: ClusterImage) -> Difference:
        """The difference between two images."""
        if old is not self._old or new is not self._new:
            self._old, self._new, self._found = old, new, difference(old, new)
        return self._found


class _Refused(Exception):
    """A whole request was refused."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(ErrorCode(code).name)


class ControllerChannel:
    """The channel to one registration of one broker. `offer` images, `close` when either end is over."""

    __slots__ = (
        "_closed",
        "_connect",
        "_connection",
        "_differences",
        "_events",
        "_generation",
        "_signs_of_death",
        "_target",
        "_task",
        "_timeout_ms",
        "_timeouts",
        "_waiters",
        "acknowledged",
        "broker",
    )

    def __init__(
        self,
        broker: Broker,
        connect: Connect,
        events: ChannelEvents,
        differences: Differences,
        timeouts: ControlTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self.broker = broker
        self.acknowledged: ClusterImage | None = None
        """The image that the broker has acknowledged; None before the first."""
        self._connect = connect
        self._events = events
        self._differences = differences
        self._target: ClusterImage | None = None
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._generation = 0
        self._timeouts = timeouts
        self._timeout_ms = min(timeouts)
        self._signs_of_death = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._closed = False

    def offer(self, image: ClusterImage) -> None:
        """From now on this is what the broker is to know."""
        self._target = image
        self._wake()

    def send_all_again(self) -> None:
        """Send the complete image, as to a new broker: its response reports which of its replicas are offline."""
        self.acknowledged = None
        self._generation += 1
        self._wake()

    def watch(self) -> None:
        """Keep a connection open although there is nothing to send, to notice when it breaks."""
        self._wake()

    def when_acknowledged(self, version: int) -> asyncio.Future[None]:
        """Done when the broker knows an image of at least this version, or the channel is closed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        known = self.acknowledged
        if self._closed or (known is not None and known.version >= version):
            future.set_result(None)
        else:
            self._waiters.append((version, future))
        return future

    def close(self) -> None:
        """Close the connection and end the task."""
        if self._closed:
            return
        self._closed = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._hang_up()
        self._release(None)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.watch_close(None)
            self._connection.close()
            self._connection = None

    def _release(self, version: int | None) -> None:
        waiting, self._waiters = self._waiters, []
        for wanted, future in waiting:
            if version is None or wanted <= version:
                if not future.done():
                    future.set_result(None)
            else:
                self._waiters.append((wanted, future))

    # --- the task, which is there only while there is something to do ---

    def _wake(self) -> None:
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(_log_failure)

    async def _run(self) -> None:
        backoff = RETRY_SECONDS
        while not self._closed and (self._connection is None or self.acknowledged is not self._target):
            target, generation = self._target, self._generation
            had_connection = self._connection is not None
            try:
                connection = self._connection or await self._open()
                if target is not None:
                    await self._send_news(connection, target)
            except _Refused as refused:
                if self._is_over(refused.code):
                    return
                logger.warning(
                    "broker %d rejected the controller's request: %s; sending it again", self.broker.id, refused
                )
            except ClientError as error:
                logger.info("cannot send the cluster image to broker %d: %s; trying again", self.broker.id, error)
                if self._is_dead(error):
                    # Repeated until the channel is closed: the store may be away, or the broker be there again.
                    self._events.broker_died(self.broker)
                elif isinstance(error, RequestTimedOut):
                    # A silent broker, or one that takes its time: thousands of new partitions, say.
                    self._timeout_ms = min(2 * self._timeout_ms, self._timeouts.longest_ms)
                elif had_connection:
                    continue
            else:
                backoff = RETRY_SECONDS
                self._timeout_ms = min(self._timeouts)
                self._signs_of_death = 0
                if generation == self._generation:
                    self.acknowledged = target
                if target is not None:
                    self._events.image_acknowledged(self.broker, target.version)
                    self._release(target.version)
                continue
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_RETRY_SECONDS)

    def _is_over(self, code: int) -> bool:
        if code == ErrorCode.STALE_CONTROLLER_EPOCH:
            # A deposed controller closes the channel. The broker may as well know nothing of this controller yet.
            self._events.deposed()
            # Or it knows this controller by a connection that it considers newer: the next is newer than that.
            self._hang_up()
        if code == ErrorCode.STALE_BROKER_EPOCH:
            self._events.registration_ended(self.broker)
            return True
        return False

    def _is_dead(self, error: ClientError) -> bool:
        if not isinstance(error.__cause__, ConnectionRefusedError):
            return False
        self._signs_of_death += 1
        if self._signs_of_death < _SIGNS_OF_DEATH:
            return False
        logger.info("broker %d is dead: its connection closed and nothing listens at its address", self.broker.id)
        return True

    async def _open(self) -> Connection:
        connection = await self._connect(self.broker)
        if self._closed:
            connection.close()
            raise Disconnected("the channel is closed")
        connection.watch_close(self._lost)
        self._connection = connection
        return connection

    def _lost(self, _connection: Connection) -> None:
        """Connect again at once: this is how a broker's death is noticed while there is nothing to send."""
        self._connection = None
        self._signs_of_death = 1
        self._wake()

    # --- sending ---

    async def _send_news(self, connection: Connection, target: ClusterImage) -> None:
        known = self.acknowledged
        # Should this fail, the broker may have taken a part of it. A topic or a replica that was in that and is over by
        # the next time would be in no difference from what it knew before: the next attempt sends the complete image.
        self.acknowledged = None
        news = (
            everything(target, self.broker.id)
            if known is None
            else notice(self._differences.of(known, target), self.broker.id)
        )
        if news.stop:
            stop = stop_replica_request(news, target, self.broker)
            stopped = await connection.request(stop, StopReplicaResponse, STOP_REPLICA_VERSION, self._timeout_ms)
            _check(stopped.error_code)
        if news.lead or news.full:
            lead = leader_and_isr_request(news, target, self.broker)
            led = await connection.request(lead, LeaderAndIsrResponse, LEADER_AND_ISR_VERSION, self._timeout_ms)
            _check(led.error_code)
            self._answered(news, led)
        if news.know or news.deleted or news.brokers_changed or news.full:
            know = update_metadata_request(news, target, self.broker)
            updated = await connection.request(know, UpdateMetadataResponse, UPDATE_METADATA_VERSION, self._timeout_ms)
            _check(updated.error_code)

    def _answered(self, news: Notice, response: LeaderAndIsrResponse) -> None:
        codes = {
            (topic.topic_id, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partition_errors
        }
        offline, online = [], []
        for each in news.lead:
            code = codes.get((each.topic.id, each.partition), 0)
            if code == ErrorCode.KAFKA_STORAGE_ERROR:
                offline.append(each)
            elif code:
                logger.warning(
                    "broker %d answered %s for partition %s-%d",
                    self.broker.id,
                    ErrorCode(code).name,
                    each.topic.name,
                    each.partition,
                )
            elif self.broker.id in each.state.offline_replicas:
                online.append(each)
        if offline or online:
            self._events.replicas_answered(self.broker, offline, online)


def _check(code: int) -> None:
    if code:
        raise _Refused(code)


# --- requests ---


def stop_replica_request(news: Notice, image: ClusterImage, broker: Broker) -> StopReplicaRequest:
    """The StopReplica request for a notice."""
    topics: dict[bytes, StopReplicaRequestTopicState] = {}
    for replica in news.stop:
        topic = replica.topic
        found = topics.get(topic.id)
        if found is None:
            found = topics[topic.id] = StopReplicaRequestTopicState(topic.name, [], topic.id)
        found.partition_states.append(
            StopReplicaRequestPartitionState(
                partition_index=replica.partition, leader_epoch=replica.leader_epoch, delete_partition=True
            )
        )
    return StopReplicaRequest(
        controller_id=image.controller_id,
        controller_epoch=image.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=list(topics.values()),
    )


def leader_and_isr_request(news: Notice, image: ClusterImage, broker: Broker) -> LeaderAndIsrRequest:
    """The LeaderAndIsr request for a notice."""
    topics: dict[str, LeaderAndIsrRequestTopicState] = {}
    leaders: dict[int, LeaderAndIsrRequestLiveLeader] = {}
    for each in news.lead:
        topic, state = each.topic, each.state
        found = topics.get(topic.name)
        if found is None:
            found = topics[topic.name] = LeaderAndIsrRequestTopicState(topic.name, topic.id, [])
        found.partition_states.append(replica_message(each.partition, state, is_new=each.is_new))
        if state.leader not in leaders and state.leader in image.brokers:
            endpoints = image.brokers[state.leader].endpoints
            # Brokers know each other's endpoints from UpdateMetadata; one of them is named as Kafka does.
            for endpoint in list(endpoints.values())[:1]:
                leaders[state.leader] = LeaderAndIsrRequestLiveLeader(state.leader, endpoint.host, endpoint.port)
    return LeaderAndIsrRequest(
        controller_id=image.controller_id,
        controller_epoch=image.controller_epoch,
        broker_epoch=broker.epoch,
        type=FULL if news.full else INCREMENTAL,
        topic_states=list(topics.values()),
        live_leaders=list(leaders.values()),
    )


def update_metadata_request(news: Notice, image: ClusterImage, broker: Broker) -> UpdateMetadataRequest:
    """The UpdateMetadata request for a notice."""
    topics = [
        UpdateMetadataRequestTopicState(
            topic.name, topic.id, [metadata_message(0, topic.partitions[0]._replace(leader=DELETED))]
        )
        for topic in news.deleted
    ]
    topics += _known(news.know)
    return UpdateMetadataRequest(
        controller_id=image.controller_id,
        type=FULL if news.full else INCREMENTAL,
        controller_epoch=image.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=topics,
        live_brokers=[broker_message(each) for each in image.brokers.values()],
    )


def _known(know: Sequence[PartitionNews]) -> list[UpdateMetadataRequestTopicState]:
    topics: dict[str, UpdateMetadataRequestTopicState] = {}
    for each in know:
        found = topics.get(each.topic.name)
        if found is None:
            found = topics[each.topic.name] = UpdateMetadataRequestTopicState(each.topic.name, each.topic.id, [])
        found.partition_states.append(metadata_message(each.partition, each.state))
    return list(topics.values())


def control_connections(
    network: Network,
    listener: str,
    node_id: int,
    prove: Prove,
    secure: Secure | None = None,
    limits: PeerLimits | None = None,
) -> Connect:
    """Connections to the listener of that name, which all brokers have; `secure` is given where that has TLS."""

    limits = PeerLimits() if limits is None else limits

    async def connect(broker: Broker) -> Connection:
        endpoint = broker.endpoints.get(listener)
        if endpoint is None:
            raise Disconnected(f"broker {broker.id} has no listener {listener}")
        connection = await open_connection(
            network,
            endpoint.host,
            endpoint.port,
            client_id=f"controller-{node_id}",
            setup_timeout_ms=limits.setup_ms,
            request_timeout_ms=limits.setup_ms,
            secure=secure,
            silence_ms=limits.silence_ms,
        )
        return await proven(connection, prove, broker.id, limits.setup_ms)

    return connect
