"""The end of a broker's part in a cluster whose metadata lies in a store."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.store_participation import StoreParticipation
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.metadata.image import ClusterImage
from odradek.ports.store import StoreError, StoreUnavailable


def left(*, store_is_away: bool = False) -> list[str]:
    """The calls of a broker that leaves, in order."""
    calls: list[str] = []

    async def leave() -> None:
        calls.append("membership")
        if store_is_away:
            raise StoreUnavailable("away")

    async def wait_until_idle() -> None:
        calls.append("controller")

    def part(name: str) -> Any:
        return SimpleNamespace(close=lambda: calls.append(name), leave=leave, wait_until_idle=wait_until_idle)

    unused: Any = None
    participation = StoreParticipation(
        unused, part("configs"), part("controller"), part("membership"), unused, part("watch"), unused
    )
    asyncio.run(participation.leave())
    return calls


def test_broker_that_leaves_follows_the_store_no_longer() -> None:
    """It would read configurations from a store that is closed, and end elections."""
    assert left() == ["configs", "watch", "membership", "controller"]


def test_broker_leaves_although_the_store_is_away(caplog: pytest.LogCaptureFixture) -> None:
    assert left(store_is_away=True) == ["configs", "watch", "membership", "controller"]
    assert "cannot end this broker's registration before it stops: away" in caplog.text


def fail(_old: ClusterImage, _new: ClusterImage) -> None:
    raise RuntimeError("a part of the broker does not take the image")


def test_broker_that_cannot_apply_an_image_ends() -> None:
    """The image counts as known when the controller sends it again, and the broker would lead by the one before."""

    async def publish() -> None:
        calls: list[str] = []
        leases: Any = SimpleNamespace(follow=lambda _old, _new: None, close=lambda: calls.append("leases"))
        view = ClusterView(BrokerConfig({"node.id": "1"}))
        unused: Any = None
        participation = StoreParticipation(view, unused, unused, unused, leases, unused, unused)
        participation.follow()
        await view.publish(ClusterImage("a"))
        assert not participation.has_failed.is_set()

        view.subscribe(fail)
        with pytest.raises(RuntimeError):
            await view.publish(ClusterImage("b"))
        assert participation.has_failed.is_set()
        assert calls == ["leases"]

    asyncio.run(publish())


def test_start_fails_when_the_broker_cannot_apply_its_first_image() -> None:
    """It waited for the complete image for ever, registered and without serving."""

    async def start() -> None:
        unused: Any = None
        leases: Any = SimpleNamespace(follow=lambda _old, _new: None, close=lambda: None)
        view = ClusterView(BrokerConfig({"node.id": "1"}))
        participation = StoreParticipation(view, unused, unused, unused, leases, unused, unused)
        participation.follow()
        view.subscribe(fail)
        serving = asyncio.get_running_loop().create_task(participation.serve())
        with pytest.raises(RuntimeError):
            await view.take(ClusterImage("a"))
        async with asyncio.timeout(30):
            with pytest.raises(StoreError, match="cannot apply the cluster image"):
                await serving

    asyncio.run(start())
