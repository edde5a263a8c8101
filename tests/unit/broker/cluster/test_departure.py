"""Controlled shutdown: how often a broker asks for it, and when it stops without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.departure import Departure
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.metadata.image import Broker, ClusterImage
from odradek.wire.errors import ErrorCode, KafkaError


class Link:
    """A controller that answers each attempt with the next outcome: partitions that stay, or an error."""

    def __init__(self, outcomes: Iterable[int | None]) -> None:
        self.outcomes = list(outcomes)
        self.attempts = 0
        self.asked = asyncio.Event()

    async def controlled_shutdown(self) -> list[int]:
        self.attempts += 1
        self.asked.set()
        left = self.outcomes.pop(0)
        if left is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return [0] * left


def leave(
    outcomes: list[int | None],
    settings: dict[str, str],
    brokers: int = 2,
    meanwhile: Callable[[ClusterView], Any] | None = None,
) -> int:
    """How often the broker asked before it stopped."""

    async def scenario() -> int:
        config = BrokerConfig({"node.id": "1", **settings})
        view = ClusterView(config)
        view.begin(ClusterImage("c", 1).with_brokers({i: Broker(i, i, None, {}) for i in range(1, brokers + 1)}))
        link: Any = Link(outcomes)
        departing = asyncio.create_task(Departure(config, view, link).hand_over())
        async with asyncio.timeout(60):
            if meanwhile is not None:
                await link.asked.wait()
                await meanwhile(view)
            await departing
        return int(link.attempts)

    return asyncio.run(scenario())


QUICK = {"controlled.shutdown.retry.backoff.ms": "20", "controlled.shutdown.max.retries": "3"}
SLOW = {"controlled.shutdown.retry.backoff.ms": "3600000"}


@pytest.mark.parametrize(
    ("outcomes", "settings", "brokers", "attempts"),
    [
        ([0], SLOW, 2, 1),
        ([4], SLOW, 2, 1),
        ([], SLOW, 1, 0),
        ([], {"controlled.shutdown.enable": "false"}, 2, 0),
        ([None, 0], QUICK, 2, 2),
        ([None, None, None], QUICK, 2, 3),
    ],
    ids=["handed over", "partitions stay", "the only broker", "switched off", "second attempt", "no controller"],
)
def test_broker_asks_until_the_controller_has_moved_leaders(
    outcomes: list[int | None], settings: dict[str, str], brokers: int, attempts: int
) -> None:
    assert leave(outcomes, settings, brokers) == attempts


def test_next_attempt_begins_when_another_controller_is_elected() -> None:
    async def elected(view: ClusterView) -> None:
        await view.take(view.image.with_controller(2, view.image.controller_epoch + 1))

    assert leave([None, 0], SLOW, meanwhile=elected) == 2
