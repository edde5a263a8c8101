"""The list of topics: search, favourites, sizes, rates, pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.network.metadata import TopicInfo
from odradek.console.pages.preferences import favourites_of
from odradek.console.paging import order_of, ordered, part_of
from odradek.console.rendering import console_of, page

PAGE_ROWS: Final = 50
COLUMNS: Final = (
    "topic", "partitions", "replicas", "out_of_sync", "records", "size_bytes", "records_per_second",
    "bytes_per_second",
)  # fmt: skip
FIGURES: Final = ("records", "size_bytes", "records_per_second", "bytes_per_second")


async def show(request: Request) -> Response:
    """One page of topics. Raises KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    asked = request.query_params
    text, internal, only = asked.get("q", "").strip(), "internal" in asked, "favourites" in asked
    favourites = favourites_of(request, view.name)
    figures = view.topic_figures()
    chosen = [
        row(each, figures.get(each.name, {}), is_favourite=each.name in favourites)
        for each in await view.topics()
        if (internal or not each.is_internal)
        and (not only or each.name in favourites)
        and text.lower() in each.name.lower()
    ]
    column, is_reversed = order_of(request, COLUMNS, "topic")
    part = part_of(request, ordered(chosen, lambda each: each[column], is_reversed=is_reversed), PAGE_ROWS)
    return page(
        request,
        "topics.html",
        title="Topics",
        view=view,
        part=part,
        q=text,
        internal=internal,
        only_favourites=only,
        sort=("-" if is_reversed else "") + column,
    )


def row(topic: TopicInfo, figures: Mapping[str, Any], *, is_favourite: bool) -> dict[str, Any]:
    """A topic as a row; figures are None before the first sample."""
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "favourite": is_favourite,
        "partitions": len(topic.partitions),
        "replicas": max((len(each.replicas) for each in topic.partitions), default=0),
        "out_of_sync": sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
        "leaderless": sum(each.leader < 0 for each in topic.partitions),
        **{name: figures.get(name) for name in FIGURES},
    }
