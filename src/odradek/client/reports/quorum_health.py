"""What an operator should look at in the quorum that keeps a cluster's metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from odradek.client.admin import Admin
from odradek.client.admin.topology import QuorumDescription
from odradek.client.errors import UnsupportedByBroker
from odradek.client.reports.health_problem import HealthProblem, Severity
from odradek.wire.errors import ErrorCode, KafkaError

_PATIENCE_SECONDS: Final = 5.0
"""An election takes a second or two; a quorum that does not answer for longer has no majority."""
_SILENT_MS: Final = 10_000
"""Voters fetch several times in a second."""


async def find_quorum_problems(admin: Admin) -> list[HealthProblem]:
    """A quorum without a leader, and voters that do not fetch; empty where the client may not ask."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            found = await admin.describe_quorum()
    except UnsupportedByBroker:
        return []
    except (KafkaError, TimeoutError) as error:
        if isinstance(error, KafkaError) and error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return []
        reason = "no majority of controllers: the quorum has no leader, and nothing can be changed"
        return [HealthProblem("quorum", Severity.CRITICAL, reason, 1, ())]
    return list(of_quorum(found))


def of_quorum(found: QuorumDescription) -> Iterator[HealthProblem]:
    """Voters that have not fetched for long, as the leader knows."""
    times = {each.replica_id: each.last_fetch_timestamp_ms or 0 for each in found.voters}
    newest = max(times.values(), default=0)
    silent = sorted(node for node, fetched in times.items() if newest - fetched > _SILENT_MS)
    if silent:
        names = tuple(f"controller {node}" for node in silent)
        reason = "voters do not fetch from the leader of the quorum"
        yield HealthProblem("absent controllers", Severity.WARNING, reason, len(names), names)
