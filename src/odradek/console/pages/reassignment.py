"""Reassignments that run, and the stored bytes of each broker."""

from __future__ import annotations

from collections import Counter

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.reports.balance import sized_replicas
from odradek.console.rendering import console_of, page


async def show(request: Request) -> Response:
    """Moving partitions and bytes by broker. Raises KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    moving = await view.admin.replicas.reassignments()
    stored: Counter[int] = Counter({each.node_id: 0 for each in (await view.admin.describe_cluster()).brokers})
    for replica in (await sized_replicas(view.admin)).values():
        for broker in replica.replicas:
            stored[broker] += replica.size_bytes
    return page(
        request,
        "reassignment.html",
        title="Reassignment",
        view=view,
        moving=sorted(moving.items()),
        stored=sorted(stored.items()),
        most=max([*stored.values(), 1]),
    )
