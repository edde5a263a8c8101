"""Spark queries, as far as the cluster knows them: exactly-once writers, and groups that commit without members."""

from __future__ import annotations

import time
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.admin import GroupState
from odradek.client.reports.spark_queries import MARKER_PREFIX, writing_queries
from odradek.console.paging import cut, part_of
from odradek.console.rendering import console_of, page

PAGE_ROWS: Final = 50


async def show(request: Request) -> Response:
    """Queries that write, and groups that read without members. Raises KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    text = request.query_params.get("q", "").strip().lower()
    listed = [each for each in await view.admin.groups.list() if text in each.group_id.lower()]
    figures = view.group_figures()
    part = part_of(request, [each.group_id for each in listed if each.group_id.startswith(MARKER_PREFIX)], PAGE_ROWS)
    readers: list[dict[str, Any]] = [
        {"group": each.group_id, **figures.get(each.group_id, {})}
        for each in listed
        if each.state is GroupState.EMPTY and not each.group_id.startswith(MARKER_PREFIX)
    ]
    readers.sort(key=lambda each: (-(each.get("records_per_second") or 0), each["group"]))
    return page(
        request,
        "queries.html",
        title="Spark queries",
        view=view,
        q=request.query_params.get("q", ""),
        part=part,
        writers=await writing_queries(view.admin, part.rows),
        batches={name: row["records_per_second"] for name, row in figures.items()},
        prefix=MARKER_PREFIX,
        readers=cut(readers, "1", PAGE_ROWS),
        now_ms=time.time_ns() // 1_000_000,
    )
