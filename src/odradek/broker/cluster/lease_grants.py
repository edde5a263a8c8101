"""The controller's side of leases: confirmation by the metadata store, deposed brokers, and those that are dead.

`odradek.controller.lease_table` decides; this part asks the store and the network.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

from odradek.broker.cluster.controller_channel import Connect
from odradek.broker.cluster.controller_store import ControllerStore
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.task_failures import logs_failure
from odradek.client.errors import ClientError
from odradek.client.network.connections import retrieve_failure
from odradek.controller.lease_table import Grant, LeaseTable
from odradek.metadata.image import NO_BROKER, Broker, ClusterImage
from odradek.ports.clock import Clock
from odradek.ports.store import Operation, SessionExpired, StoreError

logger = logging.getLogger(__name__)
_log_failure = logs_failure(logger, "looking for a deposed broker failed")

_PROBE_SECONDS: Final = 0.01
_MAX_PROBE_SECONDS: Final = 0.5
_SIGNS_OF_DEATH: Final = 2
"""So many refused connections in a row mean that no process listens where the broker was."""
_CONFIRMED_SHARE: Final = 0.25
"""A confirmation older than this share of a lease is renewed before another lease is granted."""


class LeaseGrants:
    """Leases of one controller, for as long as it reigns."""

    __slots__ = (
        "_clock",
        "_confirming",
        "_connect",
        "_epoch",
        "_listener",
        "_probes",
        "_reigned_at",
        "_seen",
        "_session_share",
        "_store",
        "_table",
    )

    def __init__(self, store: ControllerStore, clock: Clock, connect: Connect, config: BrokerConfig) -> None:
        lease_seconds = config.number("odradek.leadership.lease.ms") / 1000
        self._store = store
        self._clock = clock
        self._connect = connect
        self._table = LeaseTable(lease_seconds, config.node_id)
        self._session_share = 1.0 - config.number("odradek.self.fence.margin.ms") / 1000 / lease_seconds
        """Of a session: so much of it has passed for no other process when it has passed for this one."""
        self._epoch = NO_BROKER
        self._seen = (NO_BROKER, 0.0)
        self._confirming: asyncio.Task[None] | None = None
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._reigned_at = 0.0
        self._listener: Callable[[], None] = lambda: None

    # --- a reign ---

    def watch_changes(self, listener: Callable[[], None]) -> None:
        """Call the listener, instead of an earlier one, when a broker may be granted more than before."""
        self._listener = listener

    def follow(self, _old: ClusterImage, new: ClusterImage) -> None:
        """Note when this broker first knows of a controller."""
        if new.controller_epoch != self._seen[0]:
            self._seen = (new.controller_epoch, self._clock.monotonic())

    def elected(self, epoch: int) -> None:
        """A reign begins: the election is written."""
        self._epoch = epoch
        self._reigned_at = self._clock.monotonic()
        self._table.revoke_confirmation()

    async def begin(self) -> None:
        """Before the first image of a reign. Raises StoreError."""
        deposed_before = await self._store.read_deposed()
        yielded = await self._store.read_yielded()
        ended = await self._store.read_ended(self._epoch)
        known: dict[int, float] = {}
        if ended is not None:
            former, broker_id = ended
            known[broker_id] = self._seen[1] if self._seen[0] == former else self._reigned_at
        self._table.begin(self._reigned_at, deposed_before=deposed_before, ended=known)
        if yielded is not None:
            # It gave up its lease before it yielded, as if its process were dead.
            self._table.bury(*yielded)

    def end(self) -> None:
        """The reign is over."""
        self._table.revoke_confirmation()
        for probe in self._probes.values():
            probe.cancel()
        self._probes.clear()

    async def confirm(self) -> None:
        """Have the store confirm that no other controller has been elected. Raises StoreError."""
        await self.apply(())

    async def apply(self, operations: Sequence[Operation]) -> None:
        """Write under the epoch, which is a confirmation too. Raises StoreError."""
        asked_at = self._clock.monotonic()
        session_until = self._store.store.renew_session()
        await self._store.apply(operations)
        own = inf if session_until is None else asked_at + (session_until - asked_at) * self._session_share
        self._table.confirm(asked_at, own)

    # --- leases ---

    async def lease(self, broker_id: int, broker_epoch: int, session_end: float) -> Grant:
        """A lease for a registered broker that is fenced at `session_end`. Raises SessionExpired."""
        age = self._clock.monotonic() - self._table.confirmed_at
        if age > self._table.lease_seconds * _CONFIRMED_SHARE:
            try:
                await self._confirm_soon()
            except SessionExpired:
                raise
            except StoreError as error:
                logger.debug("the metadata store does not confirm the controller: %s", error)
        return self._table.grant(broker_id, broker_epoch, self._clock.monotonic(), session_end)

    async def _confirm_soon(self) -> None:
        """One question at a time, shared by all that wait for it."""
        if self._confirming is None or self._confirming.done():
            self._confirming = asyncio.get_running_loop().create_task(self.confirm())
            # All that wait may have given up before the store answers.
            self._confirming.add_done_callback(retrieve_failure)
        await asyncio.shield(self._confirming)

    # --- deposed brokers ---

    def depose(self, deposed: Mapping[int, int], image: ClusterImage, known: Mapping[int, Broker]) -> None:
        """`image` takes partitions from these brokers; `known` has the addresses of those that are not registered."""
        self._table.depose(deposed, image.version)
        self._table.register(image.brokers.values())
        for broker_id in self._table.deposed(self._clock.monotonic()):
            broker = known.get(broker_id)
            if broker_id not in image.brokers and broker is not None and broker_id not in self._probes:
                probe = asyncio.get_running_loop().create_task(self._probe(broker))
                probe.add_done_callback(_log_failure)
                self._probes[broker_id] = probe

    def acknowledge(self, broker: Broker, version: int) -> None:
        """A broker knows an image of this version."""
        self._table.acknowledge(broker.id, broker.epoch, version)
        self._listener()

    def bury(self, broker: Broker) -> None:
        """The process with this registration is dead."""
        self._table.bury(broker.id, broker.epoch)
        self._listener()

    @property
    def is_quiet(self) -> bool:
        """Whether all former leaders have ended."""
        return self._table.is_quiet(self._clock.monotonic())

    async def _probe(self, broker: Broker) -> None:
        """See whether the process of an unregistered broker is dead: its lease need not be waited for then."""
        signs, pause = 0, _PROBE_SECONDS
        try:
            while broker.id in self._table.deposed(self._clock.monotonic()):
                try:
                    connection = await self._connect(broker)
                except ClientError as error:
                    signs = signs + 1 if isinstance(error.__cause__, ConnectionRefusedError) else 0
                    if signs == _SIGNS_OF_DEATH:
                        self.bury(broker)
                        return
                else:
                    connection.close()
                    signs = 0
                await asyncio.sleep(pause)
                pause = _PROBE_SECONDS if signs else min(2 * pause, _MAX_PROBE_SECONDS)
        finally:
            self._probes.pop(broker.id, None)
