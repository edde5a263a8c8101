"""Quotas of users, clients and addresses: what may be set, what filters find, and that the store says the same."""

from __future__ import annotations

import asyncio

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


def change(entity: Entity, remove: bool = False, **quotas: float) -> QuotaChange:
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
