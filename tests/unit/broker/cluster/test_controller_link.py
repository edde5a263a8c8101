"""The controller as its own broker reaches it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.cluster.controller_link import ControllerLink
from odradek.controller.lease_table import Grant
from odradek.metadata.image import ClusterImage
from odradek.wire.errors import ErrorCode, KafkaError


class Reigning:
    """The controller, in this process, with a metadata store that answers when `store` is set."""

    is_active = True

    def __init__(self) -> None:
        self.store = asyncio.Event()

    async def lease(self, broker_id: int, broker_epoch: int) -> Grant:
        assert (broker_id, broker_epoch) == (1, 7)
        await self.store.wait()
        return Grant(2.0, may_begin=True)


def link_to(controller: Reigning) -> ControllerLink:
    view: Any = SimpleNamespace(broker_epoch=7, image=ClusterImage("c"))
    config: Any = SimpleNamespace(node_id=1)
    here: Any = controller
    unused: Any = None
    return ControllerLink(here, view, unused, config)


def test_own_lease_is_refused_in_time_while_the_store_is_silent() -> None:
    """The broker asks the other replicas for promises then, as one does whose controller does not answer."""

    async def main() -> None:
        controller = Reigning()
        link = link_to(controller)
        async with asyncio.timeout(30):
            with pytest.raises(KafkaError) as caught:
                await link.lease(1)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        controller.store.set()
        assert await link.lease(30_000) == Grant(2.0, may_begin=True)

    asyncio.run(main())
