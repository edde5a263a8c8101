"""The controller's leases: when the store is asked, and which former leaders a new leader waits for."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from functools import wraps
from math import inf
from typing import Any

import pytest

from odradek.broker.cluster.lease_grants import LeaseGrants
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.client.errors import ClientError
from odradek.metadata.image import Broker, ClusterImage
from odradek.ports.store import SessionExpired, StoreUnavailable

LEASE_SECONDS = 8.0
EPOCH = 7
SETTINGS = {
    "node.id": "2",
    "odradek.leadership.lease.ms": str(int(LEASE_SECONDS * 1000)),
    "odradek.self.fence.margin.ms": "800",
}
FIRST, SECOND, GONE = (Broker(i, 10, None, {}) for i in (1, 2, 3))


def in_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    return run


class Reign:
    """A controller that has just begun; brokers 1 and 2 are registered."""

    def __init__(self) -> None:
        self.now = 100.0
        self.questions = 0
        self.failure: Exception | None = None
        self.changes = 0
        self.refused = 0
        self.connects = 0
        self.cause: Exception = ConnectionRefusedError()
        self.image = ClusterImage().with_brokers({1: FIRST, 2: SECOND})
        this: Any = self
        self.store = self
        self.session_until: float | None = None
        self.ended: tuple[int, int] | None = None
        self.leases = LeaseGrants(this, this, this.connect, BrokerConfig(SETTINGS))
        self.leases.watch_changes(self.changed)

    # The clock, the store, the network

    def monotonic(self) -> float:
        return self.now

    async def apply(self, operations: object) -> None:
        self.questions += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure

    async def read_deposed(self) -> bool:
        return False

    def renew_session(self) -> float | None:
        return self.session_until

    async def read_ended(self, epoch: int) -> tuple[int, int] | None:
        assert epoch == EPOCH
        return self.ended

    async def read_yielded(self) -> tuple[int, int] | None:
        return None

    async def connect(self, broker: Broker) -> None:
        self.connects += 1
        raise ClientError("cannot connect") from self.cause

    def changed(self) -> None:
        self.changes += 1

    async def begin(self) -> Reign:
        self.leases.elected(EPOCH)
        await self.leases.begin()
        self.now += LEASE_SECONDS
        self.leases.acknowledge(FIRST, self.image.version)
        return self

    def depose(self, broker: Broker) -> None:
        self.leases.depose({broker.id: broker.epoch}, self.image, {GONE.id: GONE})


@in_loop
async def test_lease_lasts_from_the_confirmation_by_the_store() -> None:
    reign = await Reign().begin()
    assert (await reign.leases.lease(1, 10, inf)).seconds == LEASE_SECONDS
    reign.now += LEASE_SECONDS / 4
    assert (await reign.leases.lease(1, 10, inf)).seconds == LEASE_SECONDS * 3 / 4
    assert reign.questions == 1, "a young confirmation serves for several leases"
    reign.now += 0.1
    assert (await reign.leases.lease(1, 10, inf)).seconds == LEASE_SECONDS
    assert reign.questions == 2


@in_loop
async def test_leases_that_are_asked_for_together_share_one_confirmation() -> None:
    reign = await Reign().begin()
    granted = await asyncio.gather(*(reign.leases.lease(1, 10, inf) for _ in range(3)))
    assert [each.seconds for each in granted] == [LEASE_SECONDS] * 3
    assert reign.questions == 1


@in_loop
async def test_store_that_is_away_shortens_leases_and_ends_them() -> None:
    reign = await Reign().begin()
    await reign.leases.confirm()
    reign.failure = StoreUnavailable("away")
    reign.now += LEASE_SECONDS - 1
    assert (await reign.leases.lease(1, 10, inf)).seconds == 1.0
    reign.now += 1
    assert (await reign.leases.lease(1, 10, inf)).seconds == 0.0


@in_loop
async def test_failure_of_a_confirmation_that_none_waits_for_is_no_warning() -> None:
    reign = await Reign().begin()
    reign.now += LEASE_SECONDS
    reign.failure = StoreUnavailable("away")
    warnings: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: warnings.append(context))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await reign.leases.lease(1, 10, inf)
    for _ in range(5):
        await asyncio.sleep(0)
    assert reign.questions == 1
    await reign.leases.lease(1, 10, inf)
    gc.collect()
    assert not warnings


@in_loop
async def test_controller_whose_session_expired_grants_no_lease() -> None:
    reign = await Reign().begin()
    reign.failure = SessionExpired("gone")
    with pytest.raises(SessionExpired):
        await reign.leases.lease(1, 10, inf)


@in_loop
async def test_reign_that_ended_grants_no_lease() -> None:
    reign = await Reign().begin()
    await reign.leases.confirm()
    reign.leases.end()
    reign.failure = StoreUnavailable("away")
    assert (await reign.leases.lease(1, 10, inf)).seconds == 0.0


@in_loop
async def test_new_leader_waits_until_the_deposed_one_acknowledges() -> None:
    reign = await Reign().begin()
    await reign.leases.confirm()
    reign.leases.acknowledge(SECOND, reign.image.version)
    await reign.leases.lease(2, 10, inf)
    reign.image = reign.image.with_brokers({1: FIRST, 2: SECOND})
    reign.depose(SECOND)
    assert not reign.leases.is_quiet
    assert not (await reign.leases.lease(1, 10, inf)).may_begin
    changes = reign.changes
    reign.leases.acknowledge(SECOND, reign.image.version)
    assert reign.changes == changes + 1, "brokers that wait ask again"
    assert reign.leases.is_quiet
    assert (await reign.leases.lease(1, 10, inf)).may_begin


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def with_a_lease(reign: Reign) -> Reign:
    """Broker 3 has a lease and is no longer registered."""
    await reign.begin()
    reign.leases.acknowledge(GONE, reign.image.version)
    await reign.leases.lease(3, 10, inf)
    reign.depose(GONE)
    assert not reign.leases.is_quiet
    return reign


@in_loop
async def test_deposed_broker_whose_process_is_dead_is_not_waited_for() -> None:
    reign = await with_a_lease(Reign())
    changes = reign.changes
    await until(lambda: reign.leases.is_quiet)
    assert reign.connects == 2, "one refused connection may be that of a process that starts"
    assert reign.changes == changes + 1


@in_loop
async def test_deposed_broker_that_is_cut_off_is_waited_for() -> None:
    reign = Reign()
    reign.cause = TimeoutError()
    await with_a_lease(reign)
    await until(lambda: reign.connects >= 3)
    assert not reign.leases.is_quiet
    reign.now += LEASE_SECONDS
    assert reign.leases.is_quiet
    reign.leases.end()


@in_loop
async def test_own_lease_ends_with_the_session_less_the_drift_of_clocks() -> None:
    reign = await Reign().begin()
    reign.leases.acknowledge(SECOND, reign.image.version)
    reign.session_until = reign.now + 5.0
    await reign.leases.confirm()
    assert (await reign.leases.lease(2, 10, inf)).seconds == pytest.approx(4.5)
    assert (await reign.leases.lease(1, 10, inf)).seconds == LEASE_SECONDS, "others have no part in this session"
    reign.session_until = None
    await reign.leases.confirm()
    assert (await reign.leases.lease(2, 10, inf)).seconds == LEASE_SECONDS


@pytest.mark.parametrize(
    ("ended", "seen_before", "waits"),
    [
        ((EPOCH - 1, GONE.id), LEASE_SECONDS, False),
        ((EPOCH - 1, GONE.id), LEASE_SECONDS - 1, True),
        ((EPOCH - 1, GONE.id), None, True),
        ((EPOCH - 1, FIRST.id), LEASE_SECONDS, True),
        (None, LEASE_SECONDS, True),
    ],
    ids=["ended", "elected just before", "never seen", "another broker", "unknown"],
)
def test_former_controller_whose_session_has_ended_is_not_waited_for(
    ended: tuple[int, int] | None, seen_before: float | None, waits: bool
) -> None:
    async def test() -> None:
        reign = Reign()
        reign.ended = ended
        if seen_before is not None:
            reign.leases.follow(reign.image, reign.image.with_controller(GONE.id, EPOCH - 1))
            reign.now += seen_before
        reign.leases.elected(EPOCH)
        await reign.leases.begin()
        reign.cause = OSError("it does not answer")
        reign.depose(GONE)
        assert reign.leases.is_quiet is not waits

    asyncio.run(test())
