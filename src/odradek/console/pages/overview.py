"""The overview of a cluster: health with reasons, brokers, disks, rates."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.reports.activity import broker_rows
from odradek.client.reports.cluster import look
from odradek.client.reports.directories import directory_rows
from odradek.client.reports.health import find_problems
from odradek.console.rendering import console_of, page


async def show(request: Request) -> Response:
    """The overview. Raises KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    state = await look(view.admin)
    problems = [each.row() for each in await find_problems(view.admin)]
    before, now = view.samples
    rates = {} if now is None else {row["broker"]: row for row in broker_rows(before, now)}
    measured = [row for row in rates.values() if row["records_per_second"] is not None]
    return page(
        request,
        "overview.html",
        title="Overview",
        view=view,
        state=state,
        problems=problems,
        rates=rates,
        directories=await directory_rows(view.admin),
        topics=len(await view.topics()),
        records_per_second=sum(row["records_per_second"] for row in measured) if measured else None,
    )
