"""The controller as its own broker reaches it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.services.controller_service import NotTheController
from odradek.broker.cluster.controller_link import ControllerLink
from odradek.controller.lease_table import Grant
from odradek.metadata.image import ClusterImage
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


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


class Elsewhere:
    """A controller in another broker, which answers envelopes with the codes that it is given."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)

    async def request(self, *_: Any) -> EnvelopeResponse:
        code = self.codes.pop(0)
        return EnvelopeResponse(None if code else b"answer", code)


def forwarded(*codes: ErrorCode) -> bytes:
    """The answer to a forwarded request, while another broker is elected as the controller."""

    async def main() -> bytes:
        images = [ClusterImage("c").with_controller(2, 5)]
        waiting: list[Any] = []

        def subscribe(then: Any) -> Any:
            waiting.append(then)
            return lambda: None

        view: Any = SimpleNamespace(broker_epoch=7, image=images[0], subscribe=subscribe)
        config: Any = SimpleNamespace(node_id=1, number=lambda _name: 30_000)
        here: Any = SimpleNamespace(is_active=False)
        peers: Any = Elsewhere(*codes)
        link = ControllerLink(here, view, peers, config)
        answer = asyncio.create_task(link.forward(EnvelopeRequest(b"", None, b""), 1000))
        while not answer.done():
            await asyncio.sleep(0)
            if waiting:
                view.image = ClusterImage("c").with_controller(3, 6)
                waiting.pop()(images[0], view.image)
        return await answer

    return asyncio.run(main())


def test_forwarded_request_is_answered() -> None:
    assert forwarded(ErrorCode.NONE) == b"answer"


def test_forwarded_request_that_missed_the_controller_is_served_again() -> None:
    with pytest.raises(NotTheController):
        forwarded(ErrorCode.NOT_CONTROLLER)


def test_other_error_of_an_envelope_is_that_of_the_request() -> None:
    with pytest.raises(KafkaError) as caught:
        forwarded(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert not isinstance(caught.value, NotTheController)
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
