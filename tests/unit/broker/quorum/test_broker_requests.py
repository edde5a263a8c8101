"""Requests of brokers while the metadata log cannot commit: no answer rests on records that may never be committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.quorum.controller_node import ControllerNode
from odradek.kraft.metadata_observer import LogEnd
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationRequestFeature,
    BrokerRegistrationRequestListener,
    BrokerRegistrationResponse,
)
from tests.unit.broker.quorum.controllers_in_process import CLUSTER, add_broker, quorum, until

BROKER = 7
LONG_SESSION = {"broker.session.timeout.ms": "600000"}


def run(scenario: Callable[[], Awaitable[Any]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


def hold_syncs(node: ControllerNode, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let each sync of the metadata log wait for the event: no record is committed before it."""
    log, released = node.parts.storage.log, asyncio.Event()
    sync = log.sync_in_thread

    async def late(lane: str) -> LogEnd | None:
        await released.wait()
        return await sync(lane)

    monkeypatch.setattr(log, "sync_in_thread", late)
    return released


async def turns() -> None:
    """Give every task that is ready some turns of the loop."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_repeated_heartbeat_waits_until_the_broker_is_unfenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker leads by the answer, once it has applied all that is committed: the fence must be among it."""

    async def scenario() -> None:
        async with quorum(tmp_path, settings=LONG_SESSION) as running:
            node = running.active
            await add_broker(node, BROKER)
            controller, metadata = node.parts.controller, node.parts.metadata
            await until(lambda: metadata.end_offset == controller.next_offset)
            released = hold_syncs(node, monkeypatch)
            fence = asyncio.create_task(controller.decide(lambda c: c.fence_brokers([BROKER])))
            request = BrokerHeartbeatRequest(BROKER, controller.image.brokers[BROKER].epoch, 1 << 40)
            first = asyncio.create_task(node.parts.brokers.heartbeat(request, 1))
            await turns()
            second = asyncio.create_task(node.parts.brokers.heartbeat(request, 2))
            await turns()
            assert not metadata.image.brokers[BROKER].fenced, "the fence is committed"
            assert not controller.image.brokers[BROKER].fenced
            assert not second.done()
            released.set()
            answers = await asyncio.gather(first, second)
            assert not any(each.is_fenced for each in answers)
            await fence

    run(scenario)


def registration(incarnation: bytes, port: int) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        BROKER, CLUSTER, incarnation.rjust(16), [BrokerRegistrationRequestListener("PLAINTEXT", "127.0.0.1", port)],
        [
            BrokerRegistrationRequestFeature("metadata.version", 7, 30),
            BrokerRegistrationRequestFeature("group.version", 0, 1),
            BrokerRegistrationRequestFeature("transaction.version", 0, 2),
        ],
        log_dirs=[bytes(15) + b"\xfe"],
    )  # fmt: skip


def test_processes_that_register_together_do_not_get_the_same_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes were started with the same node.id."""

    async def scenario() -> None:
        async with quorum(tmp_path, settings=LONG_SESSION) as running:
            node = running.active
            released = hold_syncs(node, monkeypatch)
            both = [
                asyncio.create_task(node.parts.brokers.register(registration(name, port), port))
                for name, port in ((b"first", 1), (b"second", 2))
            ]
            await turns()
            released.set()
            first, second = await asyncio.gather(*both, return_exceptions=True)
            assert isinstance(first, BrokerRegistrationResponse)
            assert isinstance(second, KafkaError)
            assert second.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            assert node.parts.controller.image.brokers[BROKER].epoch == first.broker_epoch

    run(scenario)


def test_broker_may_end_once_it_knows_the_leaders_that_followed_it(tmp_path: Path) -> None:
    """Successors do not wait for a fenced broker, and it would act as the leader until the answer comes."""

    async def scenario() -> None:
        async with quorum(tmp_path, settings=LONG_SESSION) as running:
            node = running.active
            await add_broker(node, BROKER)
            controller = node.parts.controller
            known = controller.next_offset - 1

            async def ask(offset: int) -> bool:
                epoch = controller.image.brokers[BROKER].epoch
                request = BrokerHeartbeatRequest(BROKER, epoch, offset, want_shut_down=True)
                return (await node.parts.brokers.heartbeat(request, 1)).should_shut_down

            assert not await ask(known)
            assert not await ask(known)
            assert not controller.image.brokers[BROKER].fenced
            assert await ask(controller.next_offset - 1)
            assert controller.image.brokers[BROKER].fenced

    run(scenario)


def test_late_heartbeat_of_the_start_does_not_fence_a_broker_that_serves(tmp_path: Path) -> None:
    """It was sent on a connection that the broker gave up. The broker has a lease, beside which no other may lead."""

    async def scenario() -> None:
        async with quorum(tmp_path, settings=LONG_SESSION) as running:
            node = running.active
            await add_broker(node, BROKER)
            epoch = node.parts.controller.image.brokers[BROKER].epoch
            late = BrokerHeartbeatRequest(BROKER, epoch, epoch, want_fence=True)
            assert (await node.parts.brokers.heartbeat(late, 1)).is_fenced, "it grants no lease"
            assert not node.parts.controller.image.brokers[BROKER].fenced

    run(scenario)
