"""ACLs of the metadata log, as the authorizer of a broker gets them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.context import RequestContext
from odradek.authorization.acl_index import Acls
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.kraft.image_acls import ImageAcls
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType, pattern_of


def binding(topic: str, operation: int = AclOperation.READ) -> AclBinding:
    kind, allow, literal = ResourceType.TOPIC, AclPermissionType.ALLOW, PatternType.LITERAL
    return AclBinding(kind, topic, "User:alice", AclOperation(operation), allow, "*", literal)


def test_changed_acls_reach_the_authorizer_and_others_stay() -> None:
    async def scenario() -> None:
        view, seen = ClusterView(BrokerConfig({"node.id": "1"})), list[Acls]()
        view.begin(view.image.with_acls({b"1": binding("a"), b"2": binding("b")}))
        acls = ImageAcls(view, seen.append)
        await acls.load()
        acls.follow()
        assert set(acls.all()) == {binding("a"), binding("b")}
        await view.take(view.image.with_acls({b"1": binding("a"), b"3": binding("b", AclOperation.WRITE)}))
        assert set(acls.all()) == {binding("a"), binding("b", AclOperation.WRITE)}
        first, second = seen
        kept = pattern_of(binding("a"))
        assert first[kept] is second[kept]
        acls.close()
        await view.take(view.image.with_acls({}))
        assert len(seen) == 2

    asyncio.run(scenario())


def test_images_with_the_same_acls_change_nothing() -> None:
    async def scenario() -> None:
        view, seen = ClusterView(BrokerConfig({"node.id": "1"})), list[Acls]()
        acls = ImageAcls(view, seen.append)
        await acls.load()
        acls.follow()
        await view.take(view.image.with_acls({b"1": binding("a")}))
        await view.take(view.image.with_acls({b"2": binding("a")}))
        assert len(seen) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("broker_id", "is_between_brokers", "allowed", "expected"),
    [
        (2, False, None, True),
        (None, False, None, False),
        (None, True, None, True),
        (None, True, True, True),
        (None, True, False, False),
        (None, False, True, False),
    ],
)
def test_peer_acts_as_broker_by_proof_or_by_listener_and_right(
    broker_id: int | None, is_between_brokers: bool, allowed: bool | None, expected: bool
) -> None:
    """`allowed` is the right to cluster actions; None without an authorizer."""
    session = SimpleNamespace(broker_id=broker_id, is_between_brokers=is_between_brokers)
    access = SimpleNamespace(allows_cluster=lambda operation: allowed and operation is AclOperation.CLUSTER_ACTION)
    authorization = None if allowed is None else SimpleNamespace(access=lambda _session: access)
    services: Any = SimpleNamespace(authorization=authorization)
    connection: Any = SimpleNamespace(session=session)
    context: RequestContext[Any] = RequestContext(services, 0, 1, "client", connection, 10)
    assert context.may_act_as_broker is expected
