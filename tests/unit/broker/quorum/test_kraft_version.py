"""Static voters become voters in the metadata log: kraft.version from 0 to 1 by UpdateFeatures (KIP-853)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.quorum.controller_node import ControllerNode
from odradek.client.admin import Admin, FeatureUpdate
from odradek.kraft.raft.roles import Leader
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.quorum.controllers_in_process import Quorum, quorum, until


def run(scenario: Callable[[], Awaitable[Any]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


def version_of(node: ControllerNode) -> int:
    return node.parts.replica.machine.quorum.version


def are_all_known(running: Quorum) -> bool:
    """Whether the leader knows the directories of all voters that run."""
    role = running.active.parts.replica.machine.quorum.role
    return isinstance(role, Leader) and len(role.reported) == len(running.controllers) - 1


async def upgrade(running: Quorum, *, validate_only: bool = False) -> None:
    """Raises KafkaError."""
    async with Admin(bootstrap_servers=running.bootstrap) as admin:
        found = await admin.features.update({"kraft.version": FeatureUpdate(1)}, validate_only=validate_only)
        assert found == {"kraft.version": None}


def test_static_voters_move_into_the_log_and_stay_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3, brokers=(1,)) as running:
            await until(partial(are_all_known, running))
            await upgrade(running, validate_only=True)
            assert {version_of(each) for each in running.controllers.values()} == {0}
            await upgrade(running)
            await until(lambda: all(version_of(each) == 1 for each in running.controllers.values()))
            voters = running.active.parts.replica.machine.quorum.voters
            directories = {each.parts.storage.directory_id for each in running.controllers.values()}
            assert {each.key.directory_id for each in voters.voters} == directories
            async with Admin(bootstrap_servers=running.bootstrap) as admin:
                while "kraft.version" not in (finalized := (await admin.features.describe()).finalized):
                    await asyncio.sleep(0.01)
                assert finalized["kraft.version"].max_version == 1
            await upgrade(running)
            for node in list(running.controllers):
                await running.stop(node)
                await running.wait_until_active()
                await running.start(node)
                await until(lambda: all(version_of(each) == 1 for each in running.controllers.values()))

    run(scenario)


def test_upgrade_is_rejected_while_a_voter_is_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3, brokers=(1,)) as running:
            away = next(node for node, each in running.controllers.items() if each is not running.active)
            await running.stop(away)
            leader = running.active.parts.replica.leader.leader_id
            await running.stop(leader)
            await running.start(leader)
            await running.wait_until_active()
            await until(partial(are_all_known, running))
            with pytest.raises(KafkaError, match=rf"voters \[{away}\] have not reported") as raised:
                await upgrade(running)
            assert raised.value.code is ErrorCode.INVALID_UPDATE_VERSION

    run(scenario)
