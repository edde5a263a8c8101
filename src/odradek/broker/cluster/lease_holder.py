"""This broker's lease of leadership: renewed at the controller, or replaced by promises of the other replicas.

While nothing needs a lease (a broker alone, partitions with one replica) no timer runs and no request is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.api.requests.context import Configuration
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.controller_link import ControllerLink
from odradek.broker.cluster.peers import Peers, Purpose
from odradek.broker.task_failures import logs_failure
from odradek.client.errors import TransportError
from odradek.controller.change_report import some_of
from odradek.controller.lease_table import NO_GRANT, Grant
from odradek.metadata.image import ClusterImage
from odradek.ports.clock import Clock
from odradek.replication.leadership import Leadership, successors
from odradek.replication.partition import Partition, release_clients, take_in_followers
from odradek.wire.apis import APIS, ApiKey
from odradek.wire.errors import KafkaError
from odradek.wire.messages.leadership_promise import (
    LeadershipPromiseRequest,
    LeadershipPromiseRequestPartition,
    LeadershipPromiseRequestTopic,
    LeadershipPromiseResponse,
)

logger = logging.getLogger(__name__)
_log_failure = logs_failure(logger, "renewing the lease of leadership failed")

PENDING_SECONDS: Final = 0.02
"""Pause between two requests while newly led partitions wait for their former leaders."""
REFUSED_SECONDS: Final = 0.1
"""Pause after a request that got no lease."""
_RENEWALS: Final = 4
"""How often a lease is renewed while it lasts."""
_PROMISE_VERSION: Final = APIS[ApiKey.LEADERSHIP_PROMISE].max_version


class LeaseHolder:
    """Subscribe `follow` before anything else that the view calls; `close` at the stop."""

    __slots__ = (
        "_clock",
        "_config",
        "_generation",
        "_is_closed",
        "_is_registered",
        "_leadership",
        "_link",
        "_opened",
        "_peers",
        "_promises",
        "_task",
        "_view",
        "_woken",
    )

    def __init__(
        self,
        config: Configuration,
        clock: Clock,
        leadership: Leadership,
        view: ClusterView,
        link: ControllerLink,
        peers: Peers,
        opened: Callable[[], list[Partition]],
    ) -> None:
        """`opened` has the replicas of this broker that are open."""
        self._config = config
        self._clock = clock
        self._leadership = leadership
        self._view = view
        self._link = link
        self._peers = peers
        self._opened = opened
        self._task: asyncio.Task[None] | None = None
        self._promises: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._generation = 0
        self._is_closed = False
        self._is_registered = False

    # --- life ---

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Partitions that this broker newly leads wait until the controller says that they may begin."""
        self._leadership.follow(old, new)
        self.wake()

    def wake(self) -> None:
        """Ask the controller now, if there is something to ask."""
        self._woken.set()
        if not self._is_closed and (self._task is None or self._task.done()) and self._is_needed():
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(_log_failure)

    def registered(self) -> None:
        """This broker has a new registration, under which it may ask for leases."""
        self._is_registered = True
        self.wake()

    def surrender(self) -> None:
        """Give the lease up before a new registration; an answer that is under way does not count."""
        self._generation += 1
        self._is_registered = False
        self._leadership.surrender()

    def close(self) -> None:
        """Act as a leader no longer: the broker stops."""
        self._is_closed = True
        self.surrender()
        for task in (self._task, self._promises):
            if task is not None:
                task.cancel()

    def _is_needed(self) -> bool:
        if self._leadership.has_pending:
            return True
        image = self._view.image
        return len(image.brokers) > 1 or self._leadership.is_lease_needed(image)

    # --- the controller's lease ---

    async def _run(self) -> None:
        while self._is_needed():
            self._woken.clear()
            grant = await self._renew()
            lease = self._config.number("odradek.leadership.lease.ms") / 1000
            self._begin(partial(self._leadership.begin_after, lease))
            now = self._clock.monotonic()
            is_old = self._leadership.lease_until - now < lease / 2
            if is_old and not grant.is_ending and len(self._view.image.brokers) > 1:
                self._ask_for_promises()
            if not grant.seconds:
                release_clients(self._opened())
            if self._leadership.has_pending:
                pause = PENDING_SECONDS
            else:
                pause = self._renewal_seconds(lease) if grant.seconds else REFUSED_SECONDS
            try:
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def _renewal_seconds(self, lease: float) -> float:
        """Pause between two renewals: the controller fences a broker that has sent nothing for a session."""
        session = self._config.number("broker.session.timeout.ms") / 1000
        return min(lease, session) / _RENEWALS

    async def _renew(self) -> Grant:
        """Ask the controller once; what it granted counts from before the question."""
        if not self._is_registered:
            # The controller may not know that the old registration is over, which others take for the end of its lease.
            return NO_GRANT
        leadership, generation = self._leadership, self._generation
        asked_at, sequence = self._clock.monotonic(), leadership.sequence
        timeout_ms = self._config.number("odradek.leadership.lease.ms") / 2
        try:
            grant = await self._link.lease(timeout_ms)
        except KafkaError as error:
            logger.debug("no lease of leadership: %s; asking again", error)
            grant = NO_GRANT
        if generation != self._generation:
            return NO_GRANT
        if not grant.seconds:
            return grant
        leadership.extend(asked_at, grant.seconds - self._margin())
        if grant.may_begin:
            self._begin(partial(leadership.begin, sequence))
        return grant

    def _begin(self, begin: Callable[[], None]) -> None:
        waited = self._leadership.pending
        begin()
        begun = dict.fromkeys(place for place in waited if not self._leadership.is_pending(*place))
        if not begun:
            return
        names = some_of(f"{topic}-{index}" for topic, index in begun)
        logger.info("began to lead %d partitions: %s", len(begun), names)
        take_in_followers(self._opened(), begun)

    def _margin(self) -> float:
        return self._config.number("odradek.self.fence.margin.ms") / 1000

    # --- promises, while the controller cannot be reached or is not confirmed ---

    def _ask_for_promises(self) -> None:
        if self._promises is None or self._promises.done():
            self._promises = asyncio.get_running_loop().create_task(self._gather_promises())
            self._promises.add_done_callback(_log_failure)

    async def _gather_promises(self) -> None:
        """Ask every replica that could be elected instead not to begin for the time of a lease."""
        node_id = self._peers.node_id
        wanted: dict[int, dict[bytes, LeadershipPromiseRequestTopic]] = {}
        for partition in self._opened():
            if not partition.is_leader or len(partition.replicas) == 1:
                continue
            entry = LeadershipPromiseRequestPartition(partition.index, partition.leader_epoch)
            for member in successors(partition, node_id):
                topics = wanted.setdefault(member, {})
                topic = topics.get(partition.topic_id)
                if topic is None:
                    topic = topics[partition.topic_id] = LeadershipPromiseRequestTopic(partition.topic_id, [])
                topic.partitions.append(entry)
        if wanted:
            await asyncio.gather(*(self._ask(member, list(topics.values())) for member, topics in wanted.items()))

    async def _ask(self, member: int, topics: list[LeadershipPromiseRequestTopic]) -> None:
        generation, asked_at = self._generation, self._clock.monotonic()
        lease_ms = self._config.number("odradek.leadership.lease.ms")
        request = LeadershipPromiseRequest(self._peers.node_id, lease_ms, topics)
        try:
            answer = await self._peers.request(
                Purpose.PROMISES, member, request, LeadershipPromiseResponse, _PROMISE_VERSION, lease_ms / 2
            )
        except TransportError as error:
            logger.debug("broker %d does not promise: %s", member, error)
            return
        if answer.error_code or generation != self._generation:
            return
        denied = {(topic.topic_id, index) for topic in answer.denied for index in topic.partitions}
        asked = {(topic.topic_id, partition.partition_index) for topic in topics for partition in topic.partitions}
        self._leadership.promised(member, asked_at + lease_ms / 1000 - self._margin(), asked - denied)
