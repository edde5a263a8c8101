"""Levels of features: which may be chosen, that all change or none, and that the choice outlasts a restart."""

from __future__ import annotations

import asyncio

import pytest

from odradek.controller.features import FeatureUpdate, update_features
from odradek.metadata.changes import load_image
from odradek.metadata.features import finalized, level_in_force
from odradek.metadata.image import ClusterImage
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.wire.errors import ErrorCode

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
