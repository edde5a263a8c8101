"""ConsumerGroupHeartbeat: what the group learns of the member that reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_68_consumer_group_heartbeat
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.groups.events import ConsumerHeartbeat
from odradek.metadata.image import ClusterImage
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def reported(client_id: str | None, topics: list[str] | None = None) -> tuple[ConsumerHeartbeat, Any]:
    seen: list[ConsumerHeartbeat] = []

    def consumer_heartbeat(heartbeat: ConsumerHeartbeat) -> None:
        seen.append(heartbeat)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not now")

    services = SimpleNamespace(
        authorization=None,
        audit=None,
        config=BrokerConfig({}),
        image=ClusterImage,
        groups=SimpleNamespace(consumer_heartbeat=consumer_heartbeat),
    )
    session = SimpleNamespace(peer_host="10.0.0.1")
    context: Any = SimpleNamespace(services=services, client_id=client_id, session=session, version=1)
    request = ConsumerGroupHeartbeatRequest(
        "g", "member", 0, rebalance_timeout_ms=30_000, subscribed_topic_names=topics or ["t"], topic_partitions=[]
    )
    answer = api_68_consumer_group_heartbeat.handle(request, context)
    (found,) = seen
    return found, answer


@pytest.mark.parametrize(("client_id", "expected"), [("me", "me"), (None, "")])
def test_group_learns_the_client_id_and_host_of_a_member(client_id: str | None, expected: str) -> None:
    found, _ = reported(client_id)
    assert (found.client_id, found.client_host) == (expected, "/10.0.0.1")


def test_group_learns_each_subscribed_topic_once() -> None:
    found, _ = reported("me", ["b", "a", "b"])
    assert found.topics == ("a", "b")


def test_error_of_the_group_is_the_answer() -> None:
    _, answer = reported("me")
    assert (answer.error_code, answer.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "not now")
