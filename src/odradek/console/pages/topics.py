"""The list of topics: search, favourites, sizes, rates, pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        each
        for each in await view.topics()
        if (internal or not each.is_internal)
        and (not only or each.name in favourites)
        and text.lower() in each.name.lower()
    ]
    column, is_reversed = order_of(request, COLUMNS, "topic")
    # Only the rows of the page are made: there may be ten thousand topics.
    part = part_of(request, ordered(chosen, _key_of(column, figures), is_reversed=is_reversed), PAGE_ROWS)
    rows = [row(each, figures.get(each.name, {}), is_favourite=each.name in favourites) for each in part.rows]
    return page(
        request,
        "topics.html",
        title="Topics",
        view=view,
        part=part,
        rows=rows,
        q=text,
        internal=internal,
        only_favourites=only,
        sort=("-" if is_reversed else "") + column,
    )


def _key_of(column: str, figures: Mapping[str, Mapping[str, Any]]) -> Callable[[TopicInfo], Any]:
    """The order of topics."""
    if column in FIGURES:
        return lambda each: figures.get(each.name, {}).get(column)
    return {
        "topic": lambda each: each.name,
        "partitions": lambda each: len(each.partitions),
        "replicas": _replicas,
        "out_of_sync": _out_of_sync,
    }[column]


def _replicas(topic: TopicInfo) -> int:
    return max((len(each.replicas) for each in topic.partitions), default=0)


def _out_of_sync(topic: TopicInfo) -> int:
    return sum(len(each.isr) < len(each.replicas) for each in topic.partitions)


def row(topic: TopicInfo, figures: Mapping[str, Any], *, is_favourite: bool) -> dict[str, Any]:
    """A topic as a row; figures are None before the first sample."""
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "favourite": is_favourite,
        "partitions": len(topic.partitions),
        "replicas": _replicas(topic),
        "out_of_sync": _out_of_sync(topic),
        "leaderless": sum(each.leader < 0 for each in topic.partitions),
        **{name: figures.get(name) for name in FIGURES},
    }
