"""Follows the metadata log of a KRaft quorum: fetches it, keeps it on disk, and replays what is committed.

`MetadataObserver` decides, this module carries out. Source: Kafka's `KafkaRaftClient` as an observer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from odradek.broker.kraft.committed_replay import CommittedReplay
from odradek.broker.kraft.controllers import Controllers
from odradek.broker.kraft.followed_metadata import OnImage
from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.client.errors import TransportError
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_observer import Append, Ask, InstallSnapshot, LogEnd, MetadataObserver, Step, TruncateTo
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.ports.clock import Clock
from odradek.wire.errors import KafkaError
from odradek.wire.messages.fetch import FetchRequest, FetchResponse
from odradek.wire.messages.fetch_snapshot import FetchSnapshotResponse

logger = logging.getLogger("odradek.broker.kraft")

_REPORTED_AFTER: Final = 8
"""Failed requests in a row before a line in the log."""


class MetadataFollower:
    """`start`, then `wait_until_caught_up`; `follow` passes each further image on; `close` ends it."""

    __slots__ = (
        "_caught_up",
        "_clock",
        "_controllers",
        "_failed",
        "_failures",
        "_follower",
        "_log",
        "_observer",
        "_published",
        "_replay",
        "_request_timeout_ms",
        "_task",
    )

    def __init__(
        self,
        log: DurableMetadataLog,
        observer: MetadataObserver,
        controllers: Controllers,
        clock: Clock,
        snapshots: MetadataSnapshots,
        cluster_id: str,
        request_timeout_ms: float,
    ) -> None:
        """`request_timeout_ms` is `controller.quorum.request.timeout.ms`."""
        self._log = log
        self._observer = observer
        self._controllers = controllers
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._replay = CommittedReplay(log, clock, snapshots, cluster_id)
        self._published = -1
        self._follower: OnImage | None = None
        self._caught_up = asyncio.Event()
        self._failed: Callable[[BaseException], None] = lambda _error: None
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def image(self) -> ClusterImage:
        """The image after all committed records that this broker has."""
        return self._replay.image

    @property
    def end_offset(self) -> int:
        """The offset after the last record of `image`."""
        return self._replay.end_offset

    @property
    def log(self) -> DurableMetadataLog:
        """The log on this broker's disk."""
        return self._log

    @property
    def epoch(self) -> int:
        """The newest epoch of the quorum that this broker knows."""
        return self._observer.epoch

    @property
    def log_end(self) -> LogEnd:
        """The end of the log as this broker has it, committed or not."""
        return self._observer.log_end

    @property
    def problem(self) -> str:
        """Why the last request failed; empty after a success."""
        return self._observer.problem

    # --- life ---

    async def start(self) -> None:
        """Load what the disk has, and fetch from here on. Raises CorruptMetadata, OSError, KafkaError."""
        await self._replay.load()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def wait_until_caught_up(self, at_most_seconds: float) -> bool:
        """Wait until the image has all that was committed when a leader first answered; whether it has."""
        try:
            async with asyncio.timeout(at_most_seconds):
                await self._caught_up.wait()
        except TimeoutError:
            return False
        return True

    def follow(self, follower: OnImage, failed: Callable[[BaseException], None]) -> None:
        """Pass each further image on; `failed` is called once if the log can be followed no longer."""
        self._follower, self._failed = follower, failed

    async def close(self) -> None:
        """Stop fetching, and close the log."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
        self._log.close()

    # --- fetching ---

    async def _run(self) -> None:
        while True:
            found = self._observer.poll(self._now_ms())
            if isinstance(found, float):
                await asyncio.sleep(found / 1000)
                continue
            self._carry_out(await self._answer(found))
            self._controllers.note_active(self._observer.leader)
            await self._replay_committed()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The broker must not act on what it knew before: a bad log, a bad disk and a bad program end alike."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        logger.critical(
            "cannot follow the metadata log: %s",
            error,
            exc_info=None if isinstance(error, CorruptMetadata | KafkaError | OSError) else error,
        )
        self._failed(error)

    async def _answer(self, ask: Ask) -> Sequence[Step]:
        """Send the request, and pass the answer to the observer, which says what it means."""
        observer, timeout_ms = self._observer, self._request_timeout_ms
        try:
            if isinstance(ask.request, FetchRequest):
                fetched = await self._controllers.fetch(ask.server, ask.request, FetchResponse, timeout_ms)
                steps = observer.fetched(fetched, self._now_ms())
            else:
                snapshot = await self._controllers.fetch(ask.server, ask.request, FetchSnapshotResponse, timeout_ms)
                steps = observer.snapshot_fetched(snapshot, self._now_ms())
        except (TransportError, KafkaError) as error:
            observer.failed(f"{ask.server.host}:{ask.server.port}: {error}", self._now_ms())
            steps = []
        self._report(observer.problem)
        return steps

    def _report(self, problem: str) -> None:
        self._failures = self._failures + 1 if problem else 0
        if self._failures == _REPORTED_AFTER:
            logger.warning("cannot fetch the metadata log: %s; retrying", problem)

    def _carry_out(self, steps: Sequence[Step]) -> None:
        """Change the log as the observer says. Appends become durable later: what is lost is fetched again."""
        for step in steps:
            if isinstance(step, Append):
                self._log.append(step.batches)
                self._replay.appended(step.batches)
            elif isinstance(step, TruncateTo):
                self._log.truncate_to(step.offset)
                self._replay.truncated(step.offset)
            elif isinstance(step, InstallSnapshot):
                self._replay.installed(self._log.install_snapshot(step.id), step.id.end_offset)
            else:
                self._log.write_snapshot(step.id, step.position, step.data)

    # --- replaying ---

    async def _replay_committed(self) -> None:
        """Replay what the leader has committed, and pass the image on."""
        await self._replay.replay_to(self._observer.high_watermark)
        if not self._caught_up.is_set() and self._observer.is_caught_up:
            self._caught_up.set()
        if self._follower is not None and self._published != self._replay.end_offset:
            self._published = self._replay.end_offset
            await self._follower(self._replay.image, self._replay.end_offset)
        await self._replay.write_snapshot_if_due()

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000
