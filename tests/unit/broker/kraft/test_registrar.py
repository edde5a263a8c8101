"""Registration, heartbeats and controlled shutdown, as a controller sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.cluster.peers import Purpose
from odradek.broker.cluster.remote_controller import ControllerAway
from odradek.broker.kraft.registrar import Registrar
from odradek.kraft.broker_life_cycle import BrokerLifeCycle, BrokerState, Identity, Timing
from odradek.ports.clock import SystemClock
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

DIRECTORY = b"d" * 16
IDENTITY = Identity(7, "cluster", b"i" * 16, [], [], None, [DIRECTORY])


class AController:
    """Registers brokers, and unfences those that want it."""

    def __init__(self) -> None:
        self.registrations: list[BrokerRegistrationRequest] = []
        self.heartbeats: list[BrokerHeartbeatRequest] = []
        self.rejections: list[ErrorCode] = []
        self.is_away = False
        self.may_shut_down = True
        self.fences = False

    async def __call__(self, request: Any, _kind: type, _timeout_ms: float, _purpose: Purpose) -> Any:
        await asyncio.sleep(0)
        if self.is_away:
            raise ControllerAway("nothing answers")
        if isinstance(request, BrokerRegistrationRequest):
            self.registrations.append(request)
            if self.rejections:
                return BrokerRegistrationResponse(error_code=self.rejections.pop(0))
            return BrokerRegistrationResponse(broker_epoch=42)
        self.heartbeats.append(request)
        is_fenced = request.want_fence or self.fences
        wants_end = request.want_shut_down and self.may_shut_down
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=is_fenced, should_shut_down=wants_end)


class World:
    def __init__(self) -> None:
        self.controller = AController()
        self.unfenced_at: list[float] = []
        clock = SystemClock()
        timing = Timing(heartbeat_interval_ms=5, initial_registration_timeout_ms=60_000)
        life = BrokerLifeCycle(IDENTITY, timing, clock.monotonic() * 1000)
        self.registrar = Registrar(life, self.controller, clock, lambda: 99, self.unfenced_at.append, 1000)


def run(scenario: Callable[[World], Any]) -> None:
    async def main() -> None:
        world = World()
        try:
            async with asyncio.timeout(30):
                await scenario(world)
        finally:
            world.registrar.close()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def running(world: World) -> None:
    world.registrar.start()
    assert await world.registrar.wait_for(BrokerState.RECOVERY) is BrokerState.RECOVERY
    world.registrar.ask_for_unfencing()
    assert await world.registrar.wait_for(BrokerState.RUNNING) is BrokerState.RUNNING


def test_broker_is_registered_and_unfenced_when_it_asks() -> None:
    async def scenario(world: World) -> None:
        world.registrar.start()
        assert world.registrar.broker_epoch == -1
        await world.registrar.wait_for(BrokerState.RECOVERY)
        assert world.registrar.broker_epoch == 42
        assert all(each.want_fence for each in world.controller.heartbeats)
        assert not world.unfenced_at
        world.registrar.ask_for_unfencing()
        await world.registrar.wait_for(BrokerState.RUNNING)
        assert {each.current_metadata_offset for each in world.controller.heartbeats} == {99}
        await until(lambda: len(world.unfenced_at) > 2)
        assert world.unfenced_at == sorted(world.unfenced_at)

    run(scenario)


def test_rejected_registration_is_repeated() -> None:
    async def scenario(world: World) -> None:
        world.controller.rejections = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 2
        world.registrar.start()
        await until(lambda: world.registrar.problem != "")
        assert "DUPLICATE_BROKER_REGISTRATION" in world.registrar.problem
        await world.registrar.wait_for(BrokerState.RECOVERY)
        assert len(world.controller.registrations) == 3
        assert not world.registrar.problem

    run(scenario)


def test_heartbeats_continue_after_the_controller_was_away() -> None:
    async def scenario(world: World) -> None:
        await running(world)
        world.controller.is_away = True
        await until(lambda: "nothing answers" in world.registrar.problem)
        count = len(world.controller.heartbeats)
        world.controller.is_away = False
        await until(lambda: len(world.controller.heartbeats) > count)

    run(scenario)


def test_heartbeats_that_find_the_broker_fenced_are_no_lease(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await running(world)
        world.controller.fences = True
        count = len(world.controller.heartbeats)
        await until(lambda: len(world.controller.heartbeats) > count + 1)
        leases = len(world.unfenced_at)
        await until(lambda: len(world.controller.heartbeats) > count + 4)
        assert len(world.unfenced_at) == leases
        assert "the controller has fenced this broker" in caplog.text

    caplog.set_level("INFO")
    run(scenario)


def test_controlled_shutdown_ends_with_the_permission() -> None:
    async def scenario(world: World) -> None:
        await running(world)
        world.controller.may_shut_down = False
        world.registrar.begin_controlled_shutdown()
        await until(lambda: sum(each.want_shut_down for each in world.controller.heartbeats) > 1)
        world.controller.may_shut_down = True
        assert await world.registrar.wait_for() is BrokerState.SHUTTING_DOWN

    run(scenario)


def test_failed_directory_is_reported_with_each_heartbeat() -> None:
    async def scenario(world: World) -> None:
        await running(world)
        world.registrar.report_offline_log_dir(DIRECTORY)
        count = len(world.controller.heartbeats)
        await until(lambda: len(world.controller.heartbeats) > count + 2)
        assert [each.offline_log_dirs for each in world.controller.heartbeats[-2:]] == [[DIRECTORY]] * 2

    run(scenario)


def test_start_does_not_wait_for_a_registrar_that_is_closed() -> None:
    """The metadata log failed while the broker waited for its registration: no answer comes any longer."""

    async def scenario(world: World) -> None:
        world.controller.is_away = True
        world.registrar.start()
        waiting = asyncio.ensure_future(world.registrar.wait_for(BrokerState.RECOVERY))
        await until(lambda: world.registrar.problem != "")
        world.registrar.close()
        assert await waiting is BrokerState.STARTING

    run(scenario)


def test_registration_is_sent_again_when_the_cluster_lacks_a_part() -> None:
    async def scenario(world: World) -> None:
        await running(world)
        world.registrar.register_again()
        await until(lambda: len(world.controller.registrations) == 2)
        first, second = world.controller.registrations
        assert first == second
        count = len(world.controller.heartbeats)
        await until(lambda: len(world.controller.heartbeats) > count)

    run(scenario)
