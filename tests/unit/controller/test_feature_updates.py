"""Levels of features: which may be chosen, that all change or none, and that the choice outlasts a restart."""

from __future__ import annotations

import asyncio

import pytest

from odradek.controller.features import FeatureUpdate, ensure_registrable, update_features
from odradek.metadata.changes import load_image
from odradek.metadata.features import finalized, level_in_force
from odradek.metadata.image import Broker, ClusterImage
from odradek.metadata.kraft.difference import difference
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import cluster_metadata as md

UPGRADE, SAFE, UNSAFE = 1, 2, 3
TRANSACTIONS, GROUPS = "transaction.version", "group.version"


def test_a_new_cluster_has_the_newest_levels() -> None:
    assert finalized(ClusterImage()) == (1, {GROUPS: 1, TRANSACTIONS: 2})


@pytest.mark.parametrize(
    "update",
    [
        FeatureUpdate("metadata.version", 20, UPGRADE),
        FeatureUpdate(TRANSACTIONS, 3, UPGRADE),
        FeatureUpdate(TRANSACTIONS, -1, SAFE),
        FeatureUpdate(TRANSACTIONS, 1, UPGRADE),
        FeatureUpdate(TRANSACTIONS, 1, 0),
        FeatureUpdate(TRANSACTIONS, 1, 4),
    ],
)
def test_what_is_rejected_rejects_all(update: FeatureUpdate) -> None:
    image = ClusterImage()
    decision = update_features(image, [FeatureUpdate(GROUPS, 0, SAFE), update])
    good, bad = decision.replies
    assert good.failure is None
    assert bad.failure is not None
    assert bad.failure.code is ErrorCode.INVALID_UPDATE_VERSION
    assert decision.image is image


def test_levels_go_down_and_up_and_outlast_a_restart() -> None:
    async def play() -> None:
        store, image = MemoryStore(), ClusterImage()
        for level, kind in ((1, SAFE), (0, UNSAFE), (2, UPGRADE)):
            before = finalized(image).epoch
            decision = update_features(image, [FeatureUpdate(TRANSACTIONS, level, kind)])
            await store.apply(decision.operations)
            image = decision.image
            loaded = await load_image(store)
            assert finalized(loaded) == finalized(image)
            assert finalized(image).epoch == before + 1
            assert finalized(image).levels.get(TRANSACTIONS, 0) == level
            assert level_in_force(image, TRANSACTIONS) == level
        upgrade_below = update_features(image, [FeatureUpdate(TRANSACTIONS, 2, SAFE)])
        assert upgrade_below.image is image
        assert upgrade_below.replies[0].failure is None, "it stays as it is"

    asyncio.run(play())


def test_a_downgrade_leads_downward() -> None:
    image = update_features(ClusterImage(), [FeatureUpdate(TRANSACTIONS, 1, SAFE)]).image
    (reply,) = update_features(image, [FeatureUpdate(TRANSACTIONS, 2, SAFE)]).replies
    assert reply.failure is not None


def test_validation_only_changes_nothing() -> None:
    image = ClusterImage()
    decision = update_features(image, [FeatureUpdate(TRANSACTIONS, 1, SAFE)], validate_only=True)
    assert decision.image is image
    assert decision.replies[0].failure is None


ON_RECORDS = ClusterImage().with_features({"metadata.version": 29, "share.version": 1, TRANSACTIONS: 2}, 0)
RANGES = {"metadata.version": (7, 30), TRANSACTIONS: (0, 2), "share.version": (0, 1)}
BROKER = Broker(1, 5, None, {}, features=RANGES)


def test_levels_on_records_are_those_of_the_records() -> None:
    """Also of a feature that this version lacks; a feature that no record names has level 0."""
    assert finalized(ON_RECORDS).levels == {"metadata.version": 29, "share.version": 1, TRANSACTIONS: 2}
    assert level_in_force(ON_RECORDS, GROUPS) == 0


def test_kraft_version_is_checked_and_left_to_the_voters() -> None:
    image = ON_RECORDS.with_broker(BROKER._replace(features={**RANGES, "kraft.version": (0, 1)}))
    decision = update_features(image, [FeatureUpdate("kraft.version", 1, UPGRADE)])
    assert (decision.image, decision.replies[0].failure) == (image, None)
    upgraded = image.with_features({**(image.features or {}), "kraft.version": 1}, 1)
    (reply,) = update_features(upgraded, [FeatureUpdate("kraft.version", 0, SAFE)]).replies
    assert reply.failure is not None
    assert "the new version is a downgrade" in (reply.failure.message or "")
    assert difference(image, upgraded) == [], "no metadata record finalizes it"
    assert difference(upgraded, image) == []


def test_update_on_records_keeps_the_other_levels() -> None:
    image = ON_RECORDS.with_broker(BROKER)
    after = update_features(image, [FeatureUpdate("metadata.version", 30, UPGRADE)]).image
    assert difference(image, after) == [md.FeatureLevelRecord("metadata.version", 30)]


@pytest.mark.parametrize(("before", "after"), [(29, 23), (22, 17), (30, 30)])
def test_metadata_version_goes_down_where_the_records_are_the_same(before: int, after: int) -> None:
    image = ClusterImage().with_features({"metadata.version": before}, 0).with_broker(BROKER)
    decision = update_features(image, [FeatureUpdate("metadata.version", after, SAFE)])
    assert decision.replies[0].failure is None
    assert (decision.image.features or {})["metadata.version"] == after


@pytest.mark.parametrize(("before", "after"), [(30, 29), (23, 22)])
def test_metadata_version_stays_where_records_would_lose_something(before: int, after: int) -> None:
    image = ClusterImage().with_features({"metadata.version": before}, 0).with_broker(BROKER)
    decision = update_features(image, [FeatureUpdate("metadata.version", after, SAFE)])
    assert decision.replies[0].failure is not None
    assert decision.image is image


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (FeatureUpdate("metadata.version", 22, SAFE), "might delete metadata"),
        (FeatureUpdate("metadata.version", 22, UNSAFE), "Unsafe metadata downgrade is not supported"),
        (FeatureUpdate("metadata.version", 28, UPGRADE), "Can't downgrade the version"),
        (FeatureUpdate("metadata.version", 31, UPGRADE), "only supports versions 17-30"),
        (FeatureUpdate("metadata.version", 16, SAFE), "only supports versions 17-30"),
        (FeatureUpdate(GROUPS, 1, UPGRADE), "Broker 1 does not support this feature"),
        (FeatureUpdate("kraft.version", 2, UPGRADE), "only supports versions 0-1"),
        (FeatureUpdate("kraft.version", 1, UPGRADE), "Broker 1 does not support this feature"),
    ],
)
def test_update_on_records_is_rejected(update: FeatureUpdate, message: str) -> None:
    (reply,) = update_features(ON_RECORDS.with_broker(BROKER), [update]).replies
    assert reply.failure is not None
    assert message in (reply.failure.message or "")


@pytest.mark.parametrize(
    ("features", "code"),
    [
        (RANGES, None),
        ({**RANGES, "metadata.version": (7, 28)}, ErrorCode.UNSUPPORTED_VERSION),
        ({"metadata.version": (7, 30), TRANSACTIONS: (0, 2)}, ErrorCode.UNSUPPORTED_VERSION),
        ({TRANSACTIONS: (0, 2)}, ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_registration_covers_the_finalized_features(
    features: dict[str, tuple[int, int]], code: ErrorCode | None
) -> None:
    if code is None:
        ensure_registrable(ON_RECORDS, BROKER._replace(features=features))
        return
    with pytest.raises(KafkaError) as raised:
        ensure_registrable(ON_RECORDS, BROKER._replace(features=features))
    assert raised.value.code is code
