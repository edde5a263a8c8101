"""ApiVersions: the answer's table, which is encoded once for each version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.api_18_api_versions import handle
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import apis_for_clients
from odradek.api.requests.session import Authentication, Session
from odradek.metadata.image import ClusterImage
from odradek.wire.apis import ApiKey
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


def listed(version: int, authentication: Authentication = Authentication.NOT_REQUIRED) -> dict[int, tuple[int, int]]:
    session = Session("PLAINTEXT", "h")
    session.authentication = authentication
    services: Any = SimpleNamespace(telemetry=None, image=ClusterImage)
    connection: Any = SimpleNamespace(session=session)
    answer: Any = handle(ApiVersionsRequest("app", "1"), RequestContext(services, version, 1, "app", connection))
    out = bytearray()
    answer.encode(out, version)
    decoded, end = ApiVersionsResponse.decode(memoryview(out), 0, version)
    assert end == len(out)
    return {row.api_key: (row.min_version, row.max_version) for row in decoded.api_keys}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_api_versions_lists_what_clients_may_send(version: int) -> None:
    expected = {key: (spec.min_version, spec.max_version) for key, spec in apis_for_clients().items()}
    expected[ApiKey.PRODUCE] = (0, expected[ApiKey.PRODUCE][1])
    assert listed(version) == expected
    assert listed(version) == expected


def test_api_versions_lists_sasl_only_where_clients_log_in() -> None:
    assert ApiKey.SASL_HANDSHAKE not in listed(3)
    assert ApiKey.SASL_HANDSHAKE in listed(3, Authentication.REQUIRED)
