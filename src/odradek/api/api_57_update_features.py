"""UpdateFeatures (KIP-584).

Version notes: 0 allows a downgrade by a flag; 1 names the kind of change and may only validate; 2 answers with one
error for all, since all updates are made or none (KIP-1022).
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasController
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.features import FeatureUpdate, UpdatedFeature, UpgradeType
from odradek.wire.apis import ApiKey
from odradek.wire.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeatureUpdate,
    UpdateFeaturesResponse,
    UpdateFeaturesResponseFeature,
)


@api(ApiKey.UPDATE_FEATURES)
async def handle(request: UpdateFeaturesRequest, context: RequestContext[HasController]) -> UpdateFeaturesResponse:
    """Raise or lower the levels of features, or only validate that.

    From version 2 on one failure rejects all of them.
    """
    updates = [
        FeatureUpdate(update.feature, update.max_version_level, _upgrade_type(update, context.version))
        for update in request.feature_updates
    ]
    updated = await context.services.controller.update_features(updates, validate_only=request.validate_only)
    if context.version >= 2:
        for name, failure in updated:
            if failure is not None:
                message = (
                    "The update failed for all features since the following feature had an error: "
                    f"{failure.message or name}"
                )
                return UpdateFeaturesResponse(0, failure.code, message)
        return UpdateFeaturesResponse(error_message=None)
    return UpdateFeaturesResponse(error_message=None, results=[_result(result) for result in updated])


def _upgrade_type(update: UpdateFeaturesRequestFeatureUpdate, version: int) -> int:
    if version > 0:
        return update.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE


def _result(result: UpdatedFeature) -> UpdateFeaturesResponseFeature:
    if result.failure is None:
        return UpdateFeaturesResponseFeature(result.name, 0, None)
    return UpdateFeaturesResponseFeature(result.name, result.failure.code, result.failure.message)
