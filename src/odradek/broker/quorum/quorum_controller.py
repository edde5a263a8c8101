"""The active controller of the quorum: decisions on the newest image, whose records the quorum commits.

`RecordController` decides, `RaftReplica` commits. A decision is answered once its records are committed; the next one
is made on the image that this one left. Source: Kafka's `QuorumController`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from odradek.api.services.controller_service import NotTheController
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.quorum.committed_metadata import CommittedMetadata
from odradek.broker.quorum.raft_replica import RaftReplica
from odradek.broker.task_failures import logs_failure
from odradek.client.network.connections import retrieve_failure
from odradek.controller.broker_sessions import BrokerSessions
from odradek.controller.change_report import change_report
from odradek.controller.election_counts import ElectionCounts
from odradek.controller.record_controller import RecordController, Recorded
from odradek.kraft.metadata_records import VersionedRecord
from odradek.kraft.raft.effects import LeaderAndEpoch
from odradek.kraft.raft.messages import UpgradeVersionRequest, VoterChangeAnswer
from odradek.metadata.features import CONTROLLER_METADATA, METADATA_VERSION, metadata_level
from odradek.metadata.image import Broker, ClusterImage
from odradek.metadata.kraft.record_versions import versioned
from odradek.ports.clock import Clock
from odradek.ports.randomness import Random
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import cluster_metadata as md

logger = logging.getLogger("odradek.broker.quorum")
_log_failure = logs_failure(logger, "the active controller failed")

_RECORDS_IN_A_BATCH: Final = 5_000
"""More are a metadata transaction of several batches, each some hundred KB (KIP-868)."""
_LOOK_SECONDS: Final = 0.25
"""The pause between two looks at the sessions of brokers."""

T = TypeVar("T")


async def _all(commits: Iterable[asyncio.Future[None]]) -> None:
    """Wait until the records are committed. Raises NotTheController where one of them may not be."""
    for each in commits:
        await asyncio.shield(each)


class QuorumController:
    """`leader_changed` and `replayed` drive it; `decide` while it is active."""

    __slots__ = (
        "_active",
        "_balanced_at",
        "_bootstrap",
        "_clock",
        "_config",
        "_epoch",
        "_looking",
        "_metadata",
        "_node_id",
        "_random",
        "_reign_began",
        "_reign_ended",
        "_replica",
        "_starting",
        "elections",
        "sessions",
    )

    def __init__(
        self,
        replica: RaftReplica,
        metadata: CommittedMetadata,
        config: BrokerConfig,
        clock: Clock,
        random: Random,
        bootstrap: Sequence[Any],
    ) -> None:
        """`bootstrap` are the first records of a cluster that has none (its features)."""
        self._replica = replica
        self._metadata = metadata
        self._config = config
        self._node_id = config.node_id
        self._clock = clock
        self._random = random
        self._bootstrap = bootstrap
        self._epoch = -1
        self._active: RecordController | None = None
        self._starting: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._balanced_at = 0.0
        self._reign_began: Callable[[], None] = lambda: None
        self._reign_ended: Callable[[], None] = lambda: None
        self.sessions = BrokerSessions(config.number("broker.session.timeout.ms") / 1000)
        """The sessions of brokers."""
        self.elections = ElectionCounts()
        """The leaders of partitions that this controller has elected."""
        metadata.subscribe(self._replayed)

    # --- state ---

    @property
    def is_active(self) -> bool:
        """Whether this controller decides."""
        return self._active is not None

    @property
    def image(self) -> ClusterImage:
        """The newest image: of the decisions while active, else of the committed records."""
        return self._metadata.image if self._active is None else self._active.image

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._replica.next_offset

    @property
    def committed_offset(self) -> int:
        """The offset after the records that are known to be committed."""
        return self._replica.machine.quorum.high_watermark

    def on_reign(self, began: Callable[[], None], ended: Callable[[], None]) -> None:
        """Call `began` each time this controller becomes active, and `ended` when it is no longer."""
        self._reign_began, self._reign_ended = began, ended

    # --- the quorum ---

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Stop deciding when the leader or the epoch is another; begin once all committed records are known."""
        if self._active is not None or self._starting is not None:
            logger.info("controller %d is no longer active in epoch %d", self._node_id, self._epoch)
        self._end()
        if leader.leader_id == self._node_id:
            self._epoch = leader.epoch
            self._replayed()

    def _end(self) -> None:
        self._epoch, self._active = -1, None
        self._reign_ended()
        for task in (self._starting, self._looking):
            if task is not None:
                task.cancel()
        self._starting = self._looking = None

    def close(self) -> None:
        """Decide nothing further."""
        self._end()

    def _replayed(self) -> None:
        """Begin to decide, once all that earlier leaders committed is in the image."""
        since = self._replica.leads_since
        if self._epoch < 0 or since is None or self._active is not None or self._starting is not None:
            return
        if self._metadata.end_offset > since:
            self._starting = asyncio.get_running_loop().create_task(self._begin(self._epoch))
            self._starting.add_done_callback(_log_failure)

    async def _begin(self, epoch: int) -> None:
        try:
            if self._metadata.is_in_transaction:
                # Its leader is gone, and no other replica has its last records.
                await self._commit(epoch, [md.AbortTransactionRecord("the leader that began it is gone")])
            if METADATA_VERSION not in (self._metadata.image.features or {}):
                await self._commit(epoch, self._bootstrap)
        except NotTheController:
            return
        level = metadata_level(self._metadata.image)
        if not CONTROLLER_METADATA.min_level <= level <= CONTROLLER_METADATA.max_level:
            logger.critical(
                "controller %d cannot lead: it writes metadata.version %d to %d, and that of the cluster is %d",
                self._node_id,
                CONTROLLER_METADATA.min_level,
                CONTROLLER_METADATA.max_level,
                level,
            )
            self._replica.resign()
            return
        self._active = RecordController(self._metadata.image, self._config, self._random)
        now = self._clock.monotonic()
        self.sessions.begin(self.image.brokers.values(), now)
        self._balanced_at = now
        self._starting = None
        logger.info("controller %d is active in epoch %d", self._node_id, epoch)
        self._looking = asyncio.get_running_loop().create_task(self._look_after_brokers())
        self._looking.add_done_callback(_log_failure)
        self._reign_began()
        try:
            await self.decide(lambda controller: controller.begin())
        except NotTheController:
            return

    async def _commit(self, epoch: int, records: Sequence[Any]) -> None:
        """Commit records while no decision is made, and wait until they are in the image."""
        await self._replica.propose(epoch, list(versioned(records, metadata_level(self._metadata.image))))
        await self._metadata.wait_until_replayed(self._replica.next_offset)

    # --- decisions ---

    async def decide(self, decision: Callable[[RecordController], Recorded[T]]) -> Sequence[T]:
        """The replies of a decision, once its records are committed.

        Raises NotTheController where this controller is not active, and what the decision raises.
        """
        active, epoch = self._active, self._epoch
        if active is None:
            raise NotTheController(ErrorCode.NOT_CONTROLLER)
        before = active.image
        recorded = decision(active)
        commits = self._accept(epoch, before, recorded)
        if recorded.rest is None:
            await _all(commits)
            return recorded.replies
        # A caller that gives up, as a broker that closes its connection, must not leave it half-done.
        rest = asyncio.get_running_loop().create_task(self._decide_rest(active, epoch, recorded.rest))
        rest.add_done_callback(retrieve_failure)
        replies = await asyncio.shield(rest)
        await _all(commits)
        return [*recorded.replies, *replies]

    async def _decide_rest(
        self, active: RecordController, epoch: int, part: Callable[[], Recorded[T]] | None
    ) -> Sequence[T]:
        """The further parts of a long decision. Other work of the event loop gets a turn before each."""
        replies: list[T] = []
        commits: list[asyncio.Future[None]] = []
        while part is not None:
            await asyncio.sleep(0)
            if self._active is not active:
                raise NotTheController(ErrorCode.NOT_CONTROLLER)
            before = active.image
            recorded = part()
            replies += recorded.replies
            commits += self._accept(epoch, before, recorded)
            part = recorded.rest
        await _all(commits)
        return replies

    def _accept(self, epoch: int, before: ClusterImage, recorded: Recorded[T]) -> list[asyncio.Future[None]]:
        """Append the records of a decision before any other is made; done once they are committed."""
        if any(isinstance(each, md.PartitionChangeRecord) and each.leader >= 0 for each in recorded.records):
            self.elections.add(before, recorded.image)
        if logger.isEnabledFor(logging.INFO) and recorded.records:
            for level, text in change_report(before, recorded.image):
                logger.log(level, "%s", text)
        return self._append(epoch, list(versioned(recorded.records, metadata_level(before))))

    async def wait_until_committed(self) -> None:
        """Wait until the records of all decisions so far are committed. Raises NotTheController."""
        await self.decide(lambda controller: Recorded((), controller.image, ()))

    async def wait_until_followed(self) -> None:
        """See `FollowedLeader.wait`. Raises NotTheController where this controller is not active."""
        if self._active is None:
            raise NotTheController(ErrorCode.NOT_CONTROLLER)
        await self._replica.followed.wait(self._epoch)

    async def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Let the voters finalize this kraft.version (KIP-853), or only ask whether they can.

        Raises NotTheController; KafkaError INVALID_UPDATE_VERSION where a voter is not known or does not support it.
        """
        active = self._active
        if active is None:
            raise NotTheController(ErrorCode.NOT_CONTROLLER)
        cluster_id = self._replica.machine.quorum.identity.cluster_id
        served = await self._replica.receive(UpgradeVersionRequest(cluster_id, self._epoch, level, validate_only))
        answer = served.answer
        assert isinstance(answer, VoterChangeAnswer)
        if answer.error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            raise NotTheController(ErrorCode.NOT_CONTROLLER)
        if answer.error is not ErrorCode.NONE:
            raise KafkaError(answer.error, answer.message)
        if not validate_only:
            active.note_kraft_version(level)

    def _append(self, epoch: int, records: Sequence[VersionedRecord]) -> list[asyncio.Future[None]]:
        if len(records) <= _RECORDS_IN_A_BATCH:
            return [self._replica.append(epoch, records)]
        parts = [records[i : i + _RECORDS_IN_A_BATCH] for i in range(0, len(records), _RECORDS_IN_A_BATCH)]
        parts[0] = [VersionedRecord(md.BeginTransactionRecord(), 0), *parts[0]]
        parts[-1] = [*parts[-1], VersionedRecord(md.EndTransactionRecord(), 0)]
        return [self._replica.append(epoch, part) for part in parts]

    async def broker_ended(self, broker: Broker) -> None:
        """End the session of a broker whose process has ended, and fence it, unless it has registered again.

        Raises NotTheController, and KafkaError where the records cannot be committed; the fence is then retried.
        """
        known = self.image.brokers.get(broker.id)
        if known is None or known.epoch != broker.epoch:
            return
        self.sessions.remove(broker.id)
        if not known.fenced:
            logger.warning("fencing broker %d: its process has ended, nothing listens at its address", broker.id)
            await self.decide(lambda controller: controller.fence_brokers([broker.id]))

    # --- time ---

    async def _look_after_brokers(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._fence_silent()
                await self._balance_leaders()
            except NotTheController:
                return
            except KafkaError as error:
                logger.warning("cannot look after brokers: %s; retrying", error)
            except Exception:
                # A decision that raises leaves the image as it was. Without a next look no broker would be fenced.
                logger.exception("cannot look after brokers; retrying")

    async def _fence_silent(self) -> None:
        silent = self.sessions.expired(self.image.brokers, self._clock.monotonic())
        if silent:
            for broker_id in silent:
                logger.warning("fencing broker %d: no heartbeat within its session", broker_id)
            await self.decide(lambda controller: controller.fence_brokers(silent))

    async def _balance_leaders(self) -> None:
        now = self._clock.monotonic()
        pause = self._config.number("leader.imbalance.check.interval.seconds")
        if not self._config.flag("auto.leader.rebalance.enable") or now - self._balanced_at < pause:
            return
        self._balanced_at = now
        percentage = self._config.number("leader.imbalance.per.broker.percentage")
        await self.decide(lambda controller: controller.balance_leaders(percentage))
