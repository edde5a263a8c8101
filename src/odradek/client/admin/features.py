"""Features of the cluster and their levels (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.client.admin.enums import FeatureUpgradeType
from odradek.client.admin.requests import AdminRequests, failure_of, raise_failure
from odradek.version import __version__
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeatureUpdate,
    UpdateFeaturesResponse,
)


class VersionSpan(NamedTuple):
    """From the lowest to the highest level, both included."""

    min_version: int
    max_version: int


class FeatureMetadata(NamedTuple):
    """`finalized` are the levels in effect, `supported` those a broker offers; `epoch` is None where it is unknown."""

    finalized: dict[str, VersionSpan]
    supported: dict[str, VersionSpan]
    epoch: int | None


class FeatureUpdate(NamedTuple):
    """The level that a feature gets; 0 disables the feature, which is a downgrade."""

    max_version_level: int
    upgrade_type: FeatureUpgradeType = FeatureUpgradeType.UPGRADE


class FeaturesAdmin:
    """`admin.features`.

    Example:

        features = await admin.features.describe()
        print(features.finalized["transaction.version"], features.supported["transaction.version"])
        print(await admin.features.update({"transaction.version": FeatureUpdate(2)}, validate_only=True))
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe(self, broker_id: int | None = None) -> FeatureMetadata:
        """Features as a broker reports them (None: some broker). Raises KafkaError."""
        request = ApiVersionsRequest("odradek", __version__)
        if broker_id is None:
            response = await self._requests.to_any(request, ApiVersionsResponse)
        else:
            response = await self._requests.to_broker(broker_id, request, ApiVersionsResponse)
        raise_failure(response.error_code)
        return FeatureMetadata(
            {e.name: VersionSpan(e.min_version_level, e.max_version_level) for e in response.finalized_features},
            {e.name: VersionSpan(e.min_version, e.max_version) for e in response.supported_features},
            None if response.finalized_features_epoch < 0 else response.finalized_features_epoch,
        )

    async def update(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False, timeout_ms: int = 60_000
    ) -> dict[str, KafkaError | None]:
        """Change levels of features, all or none. Raises KafkaError where the broker rejects the request as a whole."""

        def adapt(request: Any, version: int) -> None:
            request.validate_only = validate_only and version >= 1
            request.feature_updates = [
                UpdateFeaturesRequestFeatureUpdate(
                    name,
                    each.max_version_level,
                    version == 0 and each.upgrade_type is not FeatureUpgradeType.UPGRADE,
                    each.upgrade_type if version >= 1 else FeatureUpgradeType.UPGRADE,
                )
                for name, each in updates.items()
            ]

        response = await self._requests.to_controller(
            UpdateFeaturesRequest(timeout_ms), UpdateFeaturesResponse, adapt=adapt
        )
        if response.error_code and response.error_code != ErrorCode.FEATURE_UPDATE_FAILED:
            raise_failure(response.error_code, response.error_message)
        answers = {each.feature: failure_of(each.error_code, each.error_message) for each in response.results}
        common = failure_of(response.error_code, response.error_message)
        return {name: answers.get(name) or common for name in updates}
