"""Sends registrations and heartbeats to the active controller, as `BrokerLifeCycle` asks for them.

Source: Kafka's `BrokerLifecycleManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from odradek.broker.cluster.peers import Purpose
from odradek.broker.cluster.remote_controller import AskController
from odradek.broker.task_failures import logs_failure
from odradek.kraft.broker_life_cycle import BrokerLifeCycle, BrokerState
from odradek.ports.clock import Clock
from odradek.wire.errors import KafkaError
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatResponse
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

logger = logging.getLogger("odradek.broker.kraft")
_log_failure = logs_failure(logger, "reporting to the controller failed")

_REPORTED_AFTER: Final = 5
"""Failed requests in a row before a line in the log."""


class Registrar:
    """`start`; `close` ends it. `state` changes with the controller's answers."""

    __slots__ = (
        "_ask",
        "_changed",
        "_clock",
        "_failures",
        "_is_closed",
        "_is_unfenced",
        "_life",
        "_metadata_offset",
        "_task",
        "_timeout_ms",
        "_unfenced",
        "_woken",
    )

    def __init__(
        self,
        life: BrokerLifeCycle,
        ask: AskController,
        clock: Clock,
        metadata_offset: Callable[[], int],
        unfenced: Callable[[float], None],
        timeout_ms: float,
    ) -> None:
        """`metadata_offset` is that of the last record of which the effects are in place.

        `unfenced` is called with the time (seconds, monotonic) of each heartbeat that found this broker unfenced.
        """
        self._life = life
        self._ask = ask
        self._clock = clock
        self._metadata_offset = metadata_offset
        self._unfenced = unfenced
        self._timeout_ms = timeout_ms
        self._changed = asyncio.Event()
        self._woken = asyncio.Event()
        self._failures = 0
        self._is_closed = False
        self._is_unfenced = False
        self._task: asyncio.Task[None] | None = None

    @property
    def broker_epoch(self) -> int:
        """Of this process's registration; -1 before it."""
        return self._life.broker_epoch

    @property
    def incarnation_id(self) -> bytes:
        """Of this process."""
        return self._life.incarnation_id

    @property
    def problem(self) -> str:
        """Why the last request failed; empty after a success."""
        return self._life.problem

    def start(self) -> None:
        """Register, and send heartbeats from then on."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(_log_failure)

    async def wait_for(self, *states: BrokerState) -> BrokerState:
        """Wait until the broker is in one of these states, or has ended, or `close` is called; the state."""
        while self._life.state not in (*states, BrokerState.SHUTTING_DOWN) and not self._is_closed:
            self._changed.clear()
            await self._changed.wait()
        return self._life.state

    def ask_for_unfencing(self) -> None:
        """This broker can serve."""
        self._life.ask_for_unfencing(self._now_ms())
        self._woken.set()

    def register_again(self) -> None:
        """The cluster lacks a part of this broker's registration."""
        self._life.register_again(self._now_ms())
        self._woken.set()

    def begin_controlled_shutdown(self) -> None:
        """Have the controller move leaders away."""
        self._life.begin_controlled_shutdown(self._now_ms())
        self._changed.set()
        self._woken.set()

    def report_offline_log_dir(self, directory_id: bytes) -> None:
        """A log directory has failed."""
        self._life.report_offline_log_dir(directory_id, self._now_ms())
        self._woken.set()

    def close(self) -> None:
        """Send nothing more: the controller fences this broker when its session is over."""
        self._is_closed = True
        self._changed.set()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        life = self._life
        while life.state is not BrokerState.SHUTTING_DOWN:
            request = life.poll(self._now_ms(), self._metadata_offset())
            if request is None:
                await self._pause()
                continue
            asked_at, state = self._clock.monotonic(), life.state
            try:
                if isinstance(request, BrokerRegistrationRequest):
                    registered = await self._ask(request, BrokerRegistrationResponse, self._timeout_ms, Purpose.OWN)
                    life.registered(registered, self._now_ms())
                else:
                    answer = await self._ask(request, BrokerHeartbeatResponse, self._timeout_ms, Purpose.LEASES)
                    life.heartbeat_answered(answer, self._now_ms())
                    self._note(answer, asked_at)
            except KafkaError as error:
                life.failed(str(error), self._now_ms())
            self._report(life.problem)
            if life.state is not state or isinstance(request, BrokerRegistrationRequest):
                self._changed.set()
        self._changed.set()

    def _note(self, answer: BrokerHeartbeatResponse, asked_at: float) -> None:
        if answer.error_code:
            return
        is_unfenced = not answer.is_fenced
        if is_unfenced:
            self._unfenced(asked_at)
        if is_unfenced != self._is_unfenced:
            self._is_unfenced = is_unfenced
            logger.info("the controller has %s this broker", "unfenced" if is_unfenced else "fenced")

    def _report(self, problem: str) -> None:
        self._failures = self._failures + 1 if problem else 0
        if self._failures == _REPORTED_AFTER:
            logger.warning("the controller does not accept this broker: %s; retrying", problem)

    async def _pause(self) -> None:
        next_ms = self._life.next_poll_ms
        if next_ms is None:
            return
        self._woken.clear()
        try:
            async with asyncio.timeout(max(0.0, next_ms - self._now_ms()) / 1000):
                await self._woken.wait()
        except TimeoutError:
            return

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000
