"""Proposals of other in-sync replicas: what the controller is asked, and what becomes of its answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.replication import isr_changes
from odradek.broker.replication.isr_changes import IsrChanges
from odradek.client.errors import Disconnected
from odradek.metadata.image import Broker, ClusterImage
from odradek.wire.errors import ErrorCode, KafkaError

OWN = 1
IMAGE = ClusterImage().with_brokers(
    {
        1: Broker(1, 7, None, {}),
        2: Broker(2, 8, None, {}),
        3: Broker(3, 9, None, {}, fenced=True),
        4: Broker(4, 9, None, {}, in_controlled_shutdown=True),
    }
)


class Led:
    """A partition with a proposal; a fake of `Partition` and of its `Followers`."""

    def __init__(self, index: int) -> None:
        self.topic, self.topic_id, self.index, self.leader_epoch = "t", b"t" * 16, index, 5
        self.followers: Any = self
        self.proposal: Any = SimpleNamespace(partition_epoch=index, refused=False)
        self.progress = {2: "fetches"}
        self.answers: list[ErrorCode] = []
        self.reconsidered = 0

    def isr_with_epochs(self, _proposal: Any, own_epoch: int) -> list[tuple[int, int]]:
        return [(OWN, own_epoch), (2, 8)]

    def proposal_answered(self, proposal: Any, error: ErrorCode, _state: object) -> None:
        assert proposal is self.proposal
        self.answers.append(error)

    def reconsider(self) -> None:
        self.reconsidered += 1


class Controller:
    """Answers with the codes in `codes`, one for each request; the last one is repeated."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode | Exception] = [ErrorCode.NONE]
        self.requests: list[list[int]] = []
        self.open = 0

    async def alter_partitions(self, changes: Sequence[Any]) -> list[Any]:
        self.open += 1
        assert self.open == 1, "one request at a time"
        self.requests.append([change.partition for change in changes])
        await asyncio.sleep(0)
        self.open -= 1
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        if isinstance(code, Exception):
            raise code
        return [SimpleNamespace(topic_id=c.topic_id, partition=c.partition, error=code, state=None) for c in changes]


async def let_tasks_run() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def scenario(play: Callable[[Controller, IsrChanges], Awaitable[None]]) -> None:
    async def run() -> None:
        controller = Controller()
        changes = IsrChanges(OWN, controller, lambda: IMAGE)
        await play(controller, changes)
        changes.close()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_PAUSE_SECONDS", "_LONGEST_PAUSE_SECONDS", "_RECONSIDER_SECONDS"):
        monkeypatch.setattr(isr_changes, name, 0.0)


def test_proposals_of_one_turn_share_a_request() -> None:
    async def play(controller: Controller, changes: IsrChanges) -> None:
        partitions = [Led(index) for index in range(3)]
        for partition in partitions:
            changes.propose(partition)  # type: ignore[arg-type]
        await let_tasks_run()
        later = Led(3)
        changes.propose(later)  # type: ignore[arg-type]
        await let_tasks_run()
        assert controller.requests == [[0, 1, 2], [3]]
        assert [each.answers for each in (*partitions, later)] == [[ErrorCode.NONE]] * 4

    scenario(play)


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        KafkaError(ErrorCode.NETWORK_EXCEPTION),
        Disconnected("gone"),
    ],
    ids=str,
)
def test_proposal_is_repeated_until_the_controller_decides(failure: ErrorCode | Exception) -> None:
    async def play(controller: Controller, changes: IsrChanges) -> None:
        controller.codes = [failure, failure, ErrorCode.NONE]
        partition = Led(0)
        changes.propose(partition)  # type: ignore[arg-type]
        await let_tasks_run()
        assert (controller.requests, partition.answers) == ([[0], [0], [0]], [ErrorCode.NONE])

    scenario(play)


def test_proposal_that_another_one_replaced_is_not_repeated() -> None:
    async def play(controller: Controller, changes: IsrChanges) -> None:
        controller.codes = [ErrorCode.NOT_CONTROLLER]
        partition = Led(0)
        changes.propose(partition)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        partition.proposal = None
        await let_tasks_run()
        assert (controller.requests, partition.answers) == ([[0]], [])

    scenario(play)


def test_ineligible_replicas_are_considered_again_after_each_rejection(caplog: pytest.LogCaptureFixture) -> None:
    """And not those of other partitions, whose rejection was an earlier one."""
    caplog.set_level(logging.INFO, "odradek.replication")

    async def play(controller: Controller, changes: IsrChanges) -> None:
        controller.codes = [ErrorCode.INELIGIBLE_REPLICA]
        first, second = Led(0), Led(1)
        for partition, expected in ((first, (1, 0)), (second, (1, 1)), (first, (2, 1))):
            changes.propose(partition)  # type: ignore[arg-type]
            await let_tasks_run()
            assert (first.reconsidered, second.reconsidered) == expected
        controller.codes = [ErrorCode.INVALID_UPDATE_VERSION]
        changes.propose(second)  # type: ignore[arg-type]
        await let_tasks_run()
        assert (first.reconsidered, second.reconsidered) == (2, 1)

    scenario(play)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.rpartition(" ")[2] for line in lines] == ["(t-0)", "(t-1)", "(t-0)", "(t-1)"]


def test_closed_changes_ask_for_nothing() -> None:
    async def play(controller: Controller, changes: IsrChanges) -> None:
        controller.codes = [ErrorCode.INELIGIBLE_REPLICA]
        partition, late = Led(0), Led(1)
        changes.propose(partition)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        changes.close()
        changes.propose(late)  # type: ignore[arg-type]
        await let_tasks_run()
        assert controller.requests == [[0]]
        assert (partition.reconsidered, late.answers) == (0, [])

    scenario(play)


def test_only_an_active_broker_of_this_registration_is_eligible() -> None:
    async def play(_controller: Controller, changes: IsrChanges) -> None:
        assert changes.is_eligible(2, 8)
        assert not changes.is_eligible(2, 7)
        assert not any(changes.is_eligible(broker_id, 9) for broker_id in (3, 4, 5))

    scenario(play)
