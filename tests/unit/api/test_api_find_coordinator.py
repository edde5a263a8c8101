"""FindCoordinator where the coordinators' topic is only being made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from odradek.api import api_10_find_coordinator as api
from odradek.metadata.image import ClusterImage
from odradek.wire.errors import ErrorCode


def test_find_coordinator_is_not_available_for_a_new_unknown_topic() -> None:
    """The controller may take its time to notify, or the topic be gone again."""

    class Controller:
        async def auto_create(self, _names: Sequence[str]) -> dict[str, ErrorCode]:
            return {}

    services: Any = SimpleNamespace(
        authorization=None,
        audit=None,
        controller=Controller(),
        image=ClusterImage,
        unreachable=frozenset(),
        leadership=None,
    )
    context: Any = SimpleNamespace(denied=None, services=services)
    found = asyncio.run(api._find(0, "group", context))
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_failed_search_names_no_broker() -> None:
    context: Any = SimpleNamespace(denied=None, services=SimpleNamespace())
    found = asyncio.run(api._find(9, "key", context))
    assert (found.key, found.node_id, found.host, found.port) == ("key", -1, "", -1)
    assert found.error_code == ErrorCode.INVALID_REQUEST
