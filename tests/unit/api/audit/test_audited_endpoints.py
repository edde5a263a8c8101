"""Handlers that record changes: the request counts, whatever becomes of its record."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_44_incremental_alter_configs
from odradek.api.audit import endpoints
from odradek.api.audit.answered import Answered
from odradek.api.audit.config_changes import altered_configs
from odradek.api.audit.endpoints import _RecordingReply, audited_endpoint
from odradek.api.audit.selection import Selection
from odradek.api.audit.trail import AuditTrail, Change
from odradek.api.requests.declarations import DECLARATIONS
from odradek.api.requests.registry import Endpoint
from odradek.api.requests.session import Session
from odradek.api.services.controller_service import NotTheController
from odradek.metadata.image import ClusterImage
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.unit.api.audit.test_trail import Taken


class World:
    """UnregisterBroker with a handler of the test's."""

    def __init__(self, outcome: UnregisterBrokerResponse | Exception) -> None:
        self.taken = Taken()
        trail = AuditTrail(1, lambda: 0, Selection(), self.taken)
        declared = DECLARATIONS[ApiKey.UNREGISTER_BROKER]
        plain = Endpoint(declared, UnregisterBrokerRequest.decode, self._handle)
        self._outcome = outcome
        found = audited_endpoint(plain, trail)
        assert found is not None
        self._audited = found.handle

    async def _handle(self, _request: object, _context: object) -> UnregisterBrokerResponse:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def serve(self, broker_id: int | None = None) -> Any:
        services = SimpleNamespace(image=ClusterImage)
        session = Session("X", "peer")
        session.broker_id = broker_id
        context: Any = SimpleNamespace(services=services, session=session, client_id="t", version=0)
        return asyncio.run(self._audited(UnregisterBrokerRequest(4), context))


def test_answer_is_recorded_and_returned() -> None:
    answer = UnregisterBrokerResponse()
    world = World(answer)
    assert world.serve() is answer
    assert [(each["request"], each["resource_name"]) for each in world.taken.events] == [("UNREGISTER_BROKER", "4")]


def test_change_of_a_broker_is_not_recorded() -> None:
    world = World(UnregisterBrokerResponse())
    world.serve(broker_id=2)
    assert not world.taken.events


def test_failed_request_is_recorded_with_its_error() -> None:
    world = World(KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED))
    with pytest.raises(KafkaError):
        world.serve()
    assert [each["error"] for each in world.taken.events] == ["BROKER_ID_NOT_REGISTERED"]


@pytest.mark.parametrize(
    "error", [NotTheController(ErrorCode.NOT_CONTROLLER), KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
)
def test_request_that_another_event_is_for_is_not_recorded(error: KafkaError) -> None:
    world = World(error)
    with pytest.raises(KafkaError):
        world.serve()
    assert not world.taken.events


def test_mistake_in_a_description_costs_the_event_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_served: Answered) -> list[Change]:
        raise TypeError

    monkeypatch.setitem(endpoints.DESCRIBED, ApiKey.UNREGISTER_BROKER, broken)
    answer = UnregisterBrokerResponse()
    world = World(answer)
    assert world.serve() is answer
    assert (world.taken.events, world.taken.lost) == ([], 1)


def test_values_that_may_be_secrets_are_hidden() -> None:
    before = ClusterImage()
    settings = {"ssl.key.password": "planted", "unknown.setting": "planted", "log.cleaner.threads": "2"}
    after = before.with_broker_configs("1", settings)
    request = IncrementalAlterConfigsRequest([
        IncrementalAlterConfigsRequestResource(4, "1", [
            IncrementalAlterConfigsRequestConfig(name, 0, value) for name, value in settings.items()
        ])
    ])  # fmt: skip
    answer = IncrementalAlterConfigsResponse(responses=[IncrementalAlterConfigsResponseResource(0, None, 4, "1")])
    [change] = altered_configs(Answered(request, answer, before, after))
    assert change.before == dict.fromkeys(sorted(settings))
    assert change.after == {
        "log.cleaner.threads": "2",
        "ssl.key.password": "[hidden]",
        "unknown.setting": "[hidden]",
    }


@pytest.mark.parametrize(
    ("before", "known"), [({"t": {0: 3}}, {"t": {0: 3}}), (KafkaError(ErrorCode.NOT_COORDINATOR), None)]
)
def test_commit_is_recorded_once_the_offsets_before_it_are_known(before: Any, known: Any) -> None:
    async def scenario() -> tuple[list[Any], list[Any], list[Any]]:
        loop = asyncio.get_running_loop()
        answered: list[Any] = []
        recorded: list[Any] = []
        asked: asyncio.Future[Any] = loop.create_future()
        inner: Any = SimpleNamespace(set_result=answered.append, done=lambda: bool(answered))
        reply = _RecordingReply(inner, "request", asked, lambda *values: recorded.append(values))  # type: ignore[arg-type]
        reply.set_result([ErrorCode.NONE])
        early = list(recorded)
        if isinstance(before, Exception):
            asked.set_exception(before)
        else:
            asked.set_result(before)
        await asyncio.sleep(0)
        return answered, early, recorded

    answered, early, recorded = asyncio.run(scenario())
    assert (answered, early) == ([[ErrorCode.NONE]], [])
    assert recorded == [("request", known, [ErrorCode.NONE])]


def test_broker_records_the_levels_of_its_loggers_only() -> None:
    """The controller records the topic, which the broker forwards."""
    taken = Taken()
    plain = Endpoint(
        DECLARATIONS[ApiKey.INCREMENTAL_ALTER_CONFIGS], IncrementalAlterConfigsRequest.decode,
        api_44_incremental_alter_configs.handle, own_part=api_44_incremental_alter_configs._own_part,
    )  # fmt: skip
    audited = audited_endpoint(plain, AuditTrail(1, lambda: 0, Selection(), taken))
    assert audited is not None
    assert audited.own_part is not None
    rows = [
        IncrementalAlterConfigsRequestResource(kind, name, [IncrementalAlterConfigsRequestConfig(key, 0, value)])
        for kind, name, key, value in [(2, "orders", "retention.ms", "1"), (8, "1", "odradek.log", "DEBUG")]
    ]
    services = SimpleNamespace(image=ClusterImage, loggers=SimpleNamespace(alter=lambda *_, **__: None))
    context: Any = SimpleNamespace(services=services, session=Session("X", "peer"), client_id="t", version=1)
    rest, complete = audited.own_part(IncrementalAlterConfigsRequest(rows), context)
    assert rest is not None
    assert [each.resource_name for each in rest.resources] == ["orders"]
    answer = IncrementalAlterConfigsResponse(responses=[IncrementalAlterConfigsResponseResource(0, None, 2, "orders")])
    assert {each.resource_name for each in complete(answer).responses} == {"orders", "1"}
    assert [(each["resource_type"], each["after"]) for each in taken.events] == [
        ("BROKER_LOGGER", {"odradek.log": "DEBUG"})
    ]
