"""Quotas of users, clients and addresses: what may be set, what filters find, and that the store says the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.controller.client_quotas import (
    Component,
    Entity,
    QuotaChange,
    QuotaOperation,
    alter_client_quotas,
    describe_client_quotas,
)
from odradek.controller.outcome import Decision
from odradek.metadata.changes import load_image
from odradek.metadata.image import ClusterImage
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.wire.errors import ErrorCode, KafkaError


def change(entity: Entity, remove: bool = False, **quotas: Any) -> QuotaChange:
    return QuotaChange(entity, [QuotaOperation(key, value, remove) for key, value in quotas.items()])


def altered(image: ClusterImage, *changes: QuotaChange) -> ClusterImage:
    decision = alter_client_quotas(image, changes)
    assert [reply.failure for reply in decision.replies] == [None] * len(changes)
    return decision.image


USER, CLIENT = ("user", "u/1"), ("client-id", "c 1")
ANY_USER, ANY_CLIENT = ("user", None), ("client-id", None)
ENTITIES: list[Entity] = [
    [USER],
    [ANY_USER],
    [CLIENT],
    [ANY_CLIENT],
    [USER, CLIENT],
    [USER, ANY_CLIENT],
    [ANY_USER, CLIENT],
    [ANY_USER, ANY_CLIENT],
]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, ENTITIES),
        ([], True, []),
        ([Component("user", 0, "u/1")], False, [[USER], [USER, CLIENT], [USER, ANY_CLIENT]]),
        ([Component("user", 0, "u/1")], True, [[USER]]),
        ([Component("user", 1, None)], True, [[ANY_USER]]),
        ([Component("client-id", 2, None)], True, [[CLIENT], [ANY_CLIENT]]),
        ([Component("user", 0, "u/1"), Component("client-id", 2, None)], True, [[USER, CLIENT], [USER, ANY_CLIENT]]),
        ([Component("user", 0, "unknown")], False, []),
    ],
)
def test_filters(components: list[Component], strict: bool, expected: list[Entity]) -> None:
    image = altered(ClusterImage(), *(change(entity, producer_byte_rate=i + 1) for i, entity in enumerate(ENTITIES)))
    found = describe_client_quotas(image, components, strict=strict)
    assert sorted(str(entity) for entity, _ in found) == sorted(map(str, expected))
    for entity, quotas in found:
        assert quotas == {"producer_byte_rate": ENTITIES.index(entity) + 1}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([Component("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([Component("group", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([Component("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([Component("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([Component("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([Component("user", 2, None), Component("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([Component("user", 2, None), Component("ip", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_make_no_sense(components: list[Component], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        describe_client_quotas(ClusterImage(), components, strict=False)
    assert refused.value.code is code


@pytest.mark.parametrize(
    "bad",
    [
        change([], producer_byte_rate=1),
        change([("group", "g")], producer_byte_rate=1),
        change([("user", "")], producer_byte_rate=1),
        change([USER, USER], producer_byte_rate=1),
        change([("ip", "1.2.3.4"), USER], connection_creation_rate=1),
        change([("ip", "not an address")], connection_creation_rate=1),
        change([("ip", "1.2.3.4")], producer_byte_rate=1),
        change([USER], connection_creation_rate=1),
        change([USER], unknown=1),
        change([USER], producer_byte_rate=0),
        change([USER], producer_byte_rate=1.5),
        change([USER], producer_byte_rate=1e19),
        change([USER], request_percentage=float("nan")),
        change([USER], producer_byte_rate=5, consumer_byte_rate=-1),
        change([("ip", "1.2.3.4")], connection_creation_rate=1e10),
    ],
)
def test_what_is_rejected_changes_nothing(bad: QuotaChange) -> None:
    decision = alter_client_quotas(ClusterImage(), [bad, change([CLIENT], request_percentage=0.5)])
    failed, good = decision.replies
    assert failed.failure is not None
    assert failed.failure.code is ErrorCode.INVALID_REQUEST
    assert good.failure is None
    assert describe_client_quotas(decision.image, [], strict=False) == [([CLIENT], {"request_percentage": 0.5})]


def test_a_quota_can_be_changed_and_removed() -> None:
    image = altered(ClusterImage(), change([USER], producer_byte_rate=1, consumer_byte_rate=2))
    image = altered(image, change([USER], True, producer_byte_rate=0), change([USER], consumer_byte_rate=3))
    assert describe_client_quotas(image, [], strict=False) == [([USER], {"consumer_byte_rate": 3})]
    image = altered(image, change([USER], True, consumer_byte_rate=0, request_percentage=0))
    assert describe_client_quotas(image, [], strict=False) == []
    assert altered(image, change([USER], True, consumer_byte_rate=0)) is image


def test_validation_only_changes_nothing() -> None:
    image = ClusterImage()
    decision = alter_client_quotas(image, [change([USER], producer_byte_rate=1)], validate_only=True)
    assert decision == Decision((), image, decision.replies)


def test_the_store_holds_what_the_image_says() -> None:
    async def play() -> None:
        store, image = MemoryStore(), ClusterImage()
        steps = [
            [change([USER, CLIENT], producer_byte_rate=1)],
            [change([USER], producer_byte_rate=2), change([("ip", "::1")], connection_creation_rate=3)],
            [change([ANY_USER], producer_byte_rate=2), change([ANY_USER, ANY_CLIENT], producer_byte_rate=2)],
            [change([USER, CLIENT], True, producer_byte_rate=0), change([USER], True, producer_byte_rate=0)],
            [change([USER, CLIENT], producer_byte_rate=4), change([USER, ("client-id", "d")], producer_byte_rate=4)],
        ]
        for step in steps:
            decision = alter_client_quotas(image, step)
            await store.apply(decision.operations)
            image = decision.image
            assert dict((await load_image(store)).client_configs) == dict(image.client_configs)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("entity", "key", "value", "stored"),
    [
        ([USER], "producer_byte_rate", 1.0, "1"),
        ([USER], "consumer_byte_rate", float(1 << 62), str(1 << 62)),
        ([USER], "consumer_byte_rate", float(1 << 63), str((1 << 63) - 1)),
        ([USER], "request_percentage", 0.5, "0.5"),
        ([USER], "controller_mutation_rate", 1e300, "1e+300"),
        ([("ip", "10.0.0.1")], "connection_creation_rate", float((1 << 31) - 1), str((1 << 31) - 1)),
    ],
)
def test_quota_is_stored_as_its_kind_of_number(entity: Entity, key: str, value: float, stored: str) -> None:
    quota: dict[str, Any] = {key: value}
    image = altered(ClusterImage(), change(entity, **quota))
    (configs,) = (configs for configs in image.client_configs.values() if configs)
    assert configs == {key: stored}


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ([USER], "producer_byte_rate", 0.0),
        ([USER], "producer_byte_rate", -1.0),
        ([USER], "producer_byte_rate", 1.5),
        ([USER], "producer_byte_rate", float(1 << 64)),
        ([USER], "producer_byte_rate", float("inf")),
        ([USER], "producer_byte_rate", float("nan")),
        ([USER], "request_percentage", 0.0),
        ([("ip", "10.0.0.1")], "connection_creation_rate", float(1 << 31)),
        ([("ip", "10.0.0.1")], "producer_byte_rate", 1.0),
        ([USER], "connection_creation_rate", 1.0),
    ],
)
def test_number_that_is_no_quota_is_rejected(entity: Entity, key: str, value: float) -> None:
    quota: dict[str, Any] = {key: value}
    (reply,) = alter_client_quotas(ClusterImage(), [change(entity, **quota)]).replies
    assert reply.failure is not None
    assert reply.failure.code is ErrorCode.INVALID_REQUEST


def paths(decision: Decision[Any]) -> list[tuple[str, int]]:
    """The kind of each operation, and how deep its node lies."""
    return [(type(each).__name__, each.path.count("/")) for each in decision.operations]


def test_node_of_a_user_comes_before_those_of_its_clients() -> None:
    rate: dict[str, Any] = {"producer_byte_rate": 5.0}
    both = alter_client_quotas(ClusterImage(), [change([USER, CLIENT], **rate)])
    (first, depth), (second, deeper) = paths(both)
    assert (first, second, depth < deeper) == ("Create", "Create", True)
    reverse = alter_client_quotas(ClusterImage(), [change([USER, CLIENT], **rate), change([USER], **rate)])
    assert paths(reverse) == [(first, depth), (second, deeper)], "the user's node is made once"
    known = altered(ClusterImage(), change([USER], **rate))
    assert paths(alter_client_quotas(known, [change([USER, CLIENT], **rate)])) == [("Create", deeper)]
    assert paths(alter_client_quotas(known, [change([USER], producer_byte_rate=6.0)])) == [("Put", depth)]
    two = [change([USER, CLIENT], **rate), change([USER, ANY_CLIENT], **rate)]
    assert [kind for kind, _ in paths(alter_client_quotas(ClusterImage(), two))] == ["Create"] * 3
    assert len(paths(alter_client_quotas(ClusterImage(), [change([CLIENT], **rate)]))) == 1


def test_quota_that_stays_does_not_hide_the_next_one() -> None:
    known = altered(ClusterImage(), change([USER], producer_byte_rate=5.0))
    more = [change([USER], producer_byte_rate=5.0), change([CLIENT], producer_byte_rate=5.0)]
    assert len(alter_client_quotas(known, more).operations) == 1


def test_address_stands_alone() -> None:
    alone = change([("ip", "10.0.0.1")], connection_creation_rate=1.0)
    assert alter_client_quotas(ClusterImage(), [alone]).replies[0].failure is None
    both = change([("ip", "10.0.0.1"), USER], connection_creation_rate=1.0)
    assert alter_client_quotas(ClusterImage(), [both]).replies[0].failure is not None
    image = altered(ClusterImage(), alone)
    assert len(describe_client_quotas(image, [Component("ip", 2, None)], strict=False)) == 1
    with pytest.raises(KafkaError):
        describe_client_quotas(image, [Component("ip", 2, None), Component("user", 2, None)], strict=False)
