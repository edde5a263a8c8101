"""A controller registers until the metadata log has its registration, and again when that is another one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.quorum import controller_registration
from odradek.broker.quorum.controller_registration import OwnRegistration, registration_features
from odradek.client.errors import TransportError
from odradek.metadata.image import ClusterImage, ControllerRegistration, Endpoint
from odradek.wire.errors import ErrorCode, KafkaError

OWN = ControllerRegistration(3, b"i" * 16, {"CONTROLLER": Endpoint("host", 9093, "PLAINTEXT")}, registration_features())
WITHOUT = ClusterImage()


class Active:
    """The active controller, which can fail and records the requests."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.failure: Exception | None = None

    async def register(self, request: Any) -> None:
        self.asked.append(request)
        if self.failure is not None:
            raise self.failure


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def image_with(registration: ControllerRegistration) -> ClusterImage:
    return WITHOUT.with_controllers({registration.id: registration})


@pytest.mark.parametrize("failure", [None, KafkaError(ErrorCode.NOT_CONTROLLER), TransportError("gone")])
def test_controller_asks_until_the_image_has_its_registration(
    failure: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_registration, "_RETRY_SECONDS", 0.0)

    async def scenario() -> None:
        active = Active()
        active.failure = failure
        registration = OwnRegistration(OWN, active.register)
        registration.look(WITHOUT)
        await turns()
        asked = len(active.asked)
        assert asked > 2
        registration.look(image_with(OWN._replace(incarnation_id=b"o" * 16)))
        await turns()
        assert asked < len(active.asked) <= 2 * asked + 2, "it is asked for once at a time"
        registration.look(image_with(OWN))
        asked = len(active.asked)
        await turns()
        assert len(active.asked) == asked
        registration.look(WITHOUT)
        await turns()
        assert len(active.asked) > asked, "it was lost, and is asked for again"
        registration.close()
        asked = len(active.asked)
        await turns()
        assert len(active.asked) == asked
        request = active.asked[0]
        assert (request.controller_id, request.incarnation_id) == (3, b"i" * 16)
        assert [(each.name, each.host, each.port) for each in request.listeners] == [("CONTROLLER", "host", 9093)]
        assert {each.name for each in request.features} == set(registration_features())

    asyncio.run(scenario())
