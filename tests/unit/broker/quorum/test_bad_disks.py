"""A node whose metadata log cannot be written: it gives up what it leads, and says that it must end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.services.controller_service import NotTheController
from odradek.broker.kraft.metadata_follower import MetadataFollower
from odradek.broker.kraft.quorum_participation import QuorumParticipation
from odradek.broker.lifecycle import Broker
from odradek.broker.quorum import raft_replica
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.broker.quorum.local_metadata import LocalMetadata
from odradek.controller.topics import NewTopic as WantedTopic
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.raft.messages import BeginEpochRequest
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.metadata.kraft.quorum_state_file import save_quorum_state
from odradek.ports.disk import Disk
from odradek.ports.store import StoreError
from odradek.wire.errors import KafkaError
from odradek.wire.messages.quorum_state import QuorumStateData
from tests.unit.broker.quorum.controllers_in_process import Quorum, add_broker, quorum, until

PATIENT = {"controller.quorum.fetch.timeout.ms": "60000"}
"""Followers wait so long for a leader that says nothing."""


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(50):
            await scenario()

    asyncio.run(bounded())


def fill(log: DurableMetadataLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_batches: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log, "append", fail)


async def create(node: ControllerNode, name: str) -> None:
    await node.parts.controller.decide(lambda c: c.create_topics([WantedTopic(name, 1, 1, [], [])]))


async def successor(running: Quorum, failed: ControllerNode) -> ControllerNode:
    def active() -> list[ControllerNode]:
        others = (each for each in running.controllers.values() if each is not failed)
        return [each for each in others if each.parts.controller.is_active]

    await until(lambda: len(active()) == 1)
    return active()[0]


def test_leader_whose_disk_is_full_lets_another_one_lead_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3, settings=PATIENT) as running:
            leader = running.active
            await add_broker(leader)
            fill(leader.parts.storage.log, monkeypatch)
            with pytest.raises(NotTheController):
                await create(leader, "lost")
            assert leader.has_failed.is_set()
            assert not leader.parts.controller.is_active
            assert leader.parts.replica.leads_since is None
            second = await successor(running, leader)
            await create(second, "kept")
            assert "kept" in second.parts.controller.image.topics

    run(scenario)


def test_deposed_leader_that_cannot_write_the_next_epoch_is_not_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails in the step in which it learns of the epoch."""

    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3, settings=PATIENT) as running:
            leader = running.active
            replica = leader.parts.replica
            own, epoch = replica.leader
            cluster_id = replica.machine.quorum.identity.cluster_id
            writes = save_quorum_state

            def save(disk: Disk, directory: str, state: QuorumStateData, *, version: int) -> None:
                if directory == leader.parts.storage.log.directory:
                    raise OSError(5, "Input/output error")
                writes(disk, directory, state, version=version)

            monkeypatch.setattr(raft_replica, "save_quorum_state", save)
            with pytest.raises(KafkaError):
                await replica.receive(BeginEpochRequest(cluster_id, own, epoch + 1, (own - 99) % 3 + 100))
            assert leader.has_failed.is_set()
            assert not leader.parts.controller.is_active
            with pytest.raises(NotTheController):
                await create(leader, "lost")

    run(scenario)


def test_leader_that_cannot_replay_its_log_lets_another_one_lead_at_once(tmp_path: Path) -> None:
    """Its disk is good, and what it would decide on is not."""

    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3, settings=PATIENT) as running:
            leader = running.active
            leader.failed(CorruptMetadata("a record of an unknown type"))
            assert not leader.parts.controller.is_active
            await successor(running, leader)

    run(scenario)


@pytest.mark.parametrize("directory_fails_first", [False, True])
def test_broker_whose_metadata_directory_is_bad_says_that_it_must_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory_fails_first: bool
) -> None:
    """By a write of the metadata log, or of any other log in its directory."""

    async def scenario() -> None:
        async with quorum(tmp_path, brokers=(1,)) as running:
            broker = running.brokers[1]
            found = broker.inspect()
            assert found is not None
            assert isinstance(found.participation, QuorumParticipation)
            follower = found.participation.follower
            assert isinstance(follower, MetadataFollower)
            assert not broker.has_failed.is_set()
            if directory_fails_first:
                found.directories.events.directory_failed(found.directories.directories[0].path)
            else:
                fill(follower.log, monkeypatch)
                await create(running.active, "t")
            await broker.has_failed.wait()

    run(scenario)


def test_broker_continues_without_a_directory_that_has_no_metadata(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            running.log_dirs = 2
            await running.start_brokers(1)
            broker: Broker = running.brokers[1]
            found = broker.inspect()
            assert found is not None
            found.directories.events.directory_failed(found.directories.directories[1].path)
            assert not broker.has_failed.is_set()

    run(scenario)


def test_start_of_a_node_ends_with_its_controller(tmp_path: Path) -> None:
    """It waits for a majority of controllers, however long that takes, and would wait for ever."""

    async def scenario() -> None:
        running = Quorum(tmp_path, 3, {})
        await running.start(100)
        node = running.controllers[100]
        controllers: Any = SimpleNamespace(note_active=lambda _server: None)
        waiting = asyncio.ensure_future(LocalMetadata(node, controllers).wait_until_caught_up(0))
        await asyncio.sleep(0)
        node.failed(OSError(28, "No space left on device"))
        with pytest.raises(StoreError, match="controller in this process has failed"):
            await waiting
        await running.close()

    run(scenario)


def test_broker_that_cannot_apply_an_image_of_its_controller_ends(tmp_path: Path) -> None:
    """It would lead by the last image for ever, since its heartbeats continue."""

    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            controllers: Any = SimpleNamespace(note_active=lambda _server: None)
            metadata = LocalMetadata(running.active, controllers)
            failures: asyncio.Queue[BaseException] = asyncio.Queue()
            mistake = RuntimeError("a part of the broker does not take the image")

            async def fail(_image: object, _end_offset: int) -> None:
                raise mistake

            metadata.follow(fail, failures.put_nowait)
            assert await failures.get() is mistake

    run(scenario)
