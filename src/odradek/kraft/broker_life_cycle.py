"""The life of a broker in a KRaft cluster: registration, heartbeats, unfencing and controlled shutdown. Pure.

The driver sends the request of `poll` to the active controller, and passes the answer to `registered` or
`heartbeat_answered`, or calls `failed`. One request is on its way at a time.
Source: KIP-631, Kafka's `BrokerLifecycleManager` and `BrokerState`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.wire.errors import ErrorCode, error_code
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationRequestFeature,
    BrokerRegistrationRequestListener,
    BrokerRegistrationResponse,
)

_FIRST_BACKOFF_MS: Final = 100.0
_LONGEST_BACKOFF_MS: Final = 1_000.0
"""Kafka's brokers pause for up to a session: one that restarts waits for the end of its former registration, and then
for the rest of a long pause.
"""
_CATCHING_UP_MS: Final = 10.0
"""Between heartbeats while the broker catches up: a broker without recovery starts sooner."""
_FIRST_SHUTDOWN_ANSWER_MS: Final = 50.0
"""After the first answer to a wish to shut down, which is often followed by the permission."""
NO_EPOCH: Final = -1


class BrokerState(IntEnum):
    """States by Kafka's numbers."""

    STARTING = 1
    """Registered or not, and behind the metadata log."""
    RECOVERY = 2
    """Caught up with the metadata log, and fenced."""
    RUNNING = 3
    """Unfenced once. The controller may fence the broker again, which the image shows."""
    PENDING_CONTROLLED_SHUTDOWN = 6
    """Waiting until the controller has moved leaders away."""
    SHUTTING_DOWN = 7


class Identity(NamedTuple):
    """What a process registers."""

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    """Random for each process."""
    listeners: Sequence[BrokerRegistrationRequestListener]
    features: Sequence[BrokerRegistrationRequestFeature]
    """Every finalized feature must be in the range of one of them, `kraft.version` among them."""
    rack: str | None
    log_dirs: Sequence[bytes]
    previous_broker_epoch: int = NO_EPOCH
    """The epoch of the process before, if its records are all there: it shut down cleanly, or it was killed, and the
    machine runs since. -1 otherwise: its replicas then leave their ELRs (KIP-966)."""


class Timing(NamedTuple):
    """Milliseconds: `broker.heartbeat.interval.ms` and others."""

    heartbeat_interval_ms: float = 2_000.0
    initial_registration_timeout_ms: float = 60_000.0


class BrokerLifeCycle:
    """State of this broker towards the controller. Times are milliseconds of a monotonic clock."""

    def __init__(self, identity: Identity, timing: Timing, now_ms: float) -> None:
        self.state = BrokerState.STARTING
        self.broker_epoch = NO_EPOCH
        self.problem = ""
        """Why the last request failed; empty after a success."""
        self._identity = identity
        self._timing = timing
        self._registration_deadline_ms = now_ms + timing.initial_registration_timeout_ms
        self._next_ms = now_ms
        self._failures = 0
        self._is_waiting = False
        self._is_urgent = False
        self._registers_again = False
        self._was_rejected = False
        self._wants_unfencing = False
        self._shutdown_was_asked = False
        self._shutdown_was_answered = False
        self._offline_log_dirs: list[bytes] = []

    @property
    def incarnation_id(self) -> bytes:
        """Of this process."""
        return self._identity.incarnation_id

    def poll(self, now_ms: float, metadata_offset: int) -> BrokerRegistrationRequest | BrokerHeartbeatRequest | None:
        """The request that is due, which is on its way from here on.

        `metadata_offset` is the highest one of which the effects are in place. None: ask again at `next_poll_ms`,
        or after the answer.
        """
        if self._is_waiting or self.state is BrokerState.SHUTTING_DOWN:
            return None
        if self.broker_epoch == NO_EPOCH and now_ms >= self._registration_deadline_ms:
            self.problem = f"no controller has registered the broker in time: {self.problem or 'no answer'}"
            self.state = BrokerState.SHUTTING_DOWN
            return None
        if now_ms < self._next_ms:
            return None
        self._is_waiting = True
        self._is_urgent = False
        # A rejected change of the registration must not cost the session: a heartbeat comes between two tries.
        if self.broker_epoch == NO_EPOCH or (self._registers_again and not self._was_rejected):
            return self._registration()
        self._was_rejected = False
        return self._heartbeat(metadata_offset)

    @property
    def next_poll_ms(self) -> float | None:
        """When `poll` has work again; None while it waits for an answer, and after the end."""
        if self._is_waiting or self.state is BrokerState.SHUTTING_DOWN:
            return None
        return self._next_ms if self.broker_epoch != NO_EPOCH else min(self._next_ms, self._registration_deadline_ms)

    def registered(self, response: BrokerRegistrationResponse, now_ms: float) -> None:
        """Take the answer to a registration. An error is retried, as long as the deadline allows."""
        error = error_code(response.error_code)
        if error is not ErrorCode.NONE:
            self._was_rejected = True
            self.failed(f"the controller answers {error.name}", now_ms)
            return
        self.broker_epoch = response.broker_epoch
        self._registers_again = False
        self._succeeded(now_ms, 0.0)

    def heartbeat_answered(self, response: BrokerHeartbeatResponse, now_ms: float) -> None:
        """Take the answer to a heartbeat. An error is retried."""
        error = error_code(response.error_code)
        if error is not ErrorCode.NONE:
            self.failed(f"the controller answers {error.name}", now_ms)
            return
        pause = self._timing.heartbeat_interval_ms
        if self.state is BrokerState.STARTING:
            if response.is_caught_up:
                self.state = BrokerState.RECOVERY
            pause = _CATCHING_UP_MS
        elif self.state is BrokerState.RECOVERY:
            if not response.is_fenced:
                self.state = BrokerState.RUNNING
        elif self._shutdown_was_asked:
            if response.should_shut_down:
                self.state = BrokerState.SHUTTING_DOWN
            elif not self._shutdown_was_answered:
                pause = _FIRST_SHUTDOWN_ANSWER_MS
            self._shutdown_was_answered = True
        self._succeeded(now_ms, pause)

    def failed(self, problem: str, now_ms: float) -> None:
        """The request was not answered, or with an error: it is sent again after a pause that doubles."""
        self._is_waiting = False
        self.problem = problem
        pause = min(_FIRST_BACKOFF_MS * 2.0 ** min(self._failures, 30), _LONGEST_BACKOFF_MS)
        self._failures += 1
        self._next_ms = now_ms + pause

    def register_again(self, now_ms: float) -> None:
        """The cluster lacks a part of the registration: send it again, now. The controller keeps its epoch."""
        if not self._registers_again:
            self._registers_again = True
            self._hurry(now_ms)

    def ask_for_unfencing(self, now_ms: float) -> None:
        """The broker has recovered and can serve: ask in the next heartbeat, which is due now."""
        self._wants_unfencing = True
        self._hurry(now_ms)

    def begin_controlled_shutdown(self, now_ms: float) -> None:
        """Ask the controller to move leaders away. A broker that does not run yet shuts down at once."""
        if self.state is BrokerState.RUNNING:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._hurry(now_ms)
        elif self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.state = BrokerState.SHUTTING_DOWN

    def report_offline_log_dir(self, directory_id: bytes, now_ms: float) -> None:
        """A log directory has failed: report it in each heartbeat from the next one, which is due now (KIP-858)."""
        if directory_id not in self._offline_log_dirs:
            self._offline_log_dirs.append(directory_id)
            self._hurry(now_ms)

    def _hurry(self, now_ms: float) -> None:
        # The answer to the request on its way must not postpone the news.
        self._is_urgent = True
        if self.broker_epoch != NO_EPOCH:
            self._next_ms = min(self._next_ms, now_ms)

    def _succeeded(self, now_ms: float, pause_ms: float) -> None:
        self._is_waiting = False
        self._failures = 0
        self.problem = ""
        self._next_ms = now_ms if self._is_urgent else now_ms + pause_ms

    def _registration(self) -> BrokerRegistrationRequest:
        identity = self._identity
        return BrokerRegistrationRequest(
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=list(identity.listeners),
            features=list(identity.features),
            rack=identity.rack,
            log_dirs=[each for each in identity.log_dirs if each not in self._offline_log_dirs],
            previous_broker_epoch=identity.previous_broker_epoch,
        )

    def _heartbeat(self, metadata_offset: int) -> BrokerHeartbeatRequest:
        self._shutdown_was_asked = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        return BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=metadata_offset,
            want_fence=not self._wants_unfencing,
            want_shut_down=self._shutdown_was_asked,
            offline_log_dirs=list(self._offline_log_dirs),
        )
