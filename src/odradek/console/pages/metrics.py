"""Plots of rates over the last samples, of the cluster or of one topic; and who is connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.broker_metrics import QUANTILES, REQUESTS, Latencies
from odradek.console.clusters import ClusterView, Rates
from odradek.console.pages.preferences import favourites_of
from odradek.console.pages.topic import found_topic
from odradek.console.paging import part_of
from odradek.console.plots import Plot, curve_of
from odradek.console.rendering import DASH, console_of, page, rate, size_rate

PAGE_ROWS: Final = 100
Label = Callable[[float | None], str]
"""How a rate is written."""

BUSIEST: Final = 10
"""Topics that the page of a cluster names."""
IDLE: Final = Rates(0.0, 0.0, 0.0)


async def show(request: Request) -> Response:
    """Rates of the cluster, and its busiest topics."""
    view = console_of(request).view_of(request)
    last = view.history[-1] if view.history else None
    busiest = [] if last is None else sorted(last.topics.items(), key=lambda each: each[1].records_in, reverse=True)
    return page(
        request,
        "metrics.html",
        title="Metrics",
        view=view,
        plots=_plots(view, None) + _latency_plots(view),
        failures=sorted(view.brokers.failures.items()),
        busiest=busiest[:BUSIEST],
    )


async def show_topic(request: Request) -> Response:
    """Rates of a topic. Raises HTTPException, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    return page(
        request,
        "topic_metrics.html",
        title=f"{topic.name}: metrics",
        view=view,
        topic=topic,
        plots=_plots(view, topic.name),
        favourite=topic.name in favourites_of(request, view.name),
    )


async def show_clients(request: Request) -> Response:
    """Members of the groups that the last sample has described."""
    view = console_of(request).view_of(request)
    text = request.query_params.get("q", "").strip()
    rows = [
        (member.client_id, member.client_host.removeprefix("/"), group, member)
        for group, found in view.groups.described.items()
        for member in found.members
        if any(text.lower() in each.lower() for each in (member.client_id, member.client_host, group))
    ]
    rows.sort(key=lambda each: (each[0], each[1], each[2], each[3].member_id))
    hosts = {host for _, host, _, _ in rows}
    return page(
        request,
        "clients.html",
        title="Clients",
        view=view,
        part=part_of(request, rows, PAGE_ROWS),
        q=text,
        hosts=len(hosts),
        is_counted=view.brokers.is_configured,
        software=sorted(view.brokers.software.items(), key=lambda each: (-each[1], each[0])),
    )


def _plots(view: ClusterView, topic: str | None) -> list[tuple[str, str, Plot | None]]:
    """Title, current value and plot of each rate; a topic that a sample does not have was idle then."""

    def drawn(title: str, label: Label, pick: Callable[[Rates], float | None]) -> tuple[str, str, Plot | None]:
        points = [
            (each.at_s, value)
            for each in view.history
            if each.total is not None
            and (value := pick(each.total if topic is None else each.topics.get(topic, IDLE))) is not None
        ]
        return title, label(points[-1][1] if points else None), curve_of(points, label)

    return [
        drawn("Records in", rate, lambda each: each.records_in),
        drawn("Bytes in, as stored by leaders", size_rate, lambda each: each.bytes_in),
        drawn("Records out, by commits of groups", rate, lambda each: each.records_out),
    ]


def _latency_plots(view: ClusterView) -> list[tuple[str, str, Plot | None]]:
    """Title, current value and plot of what brokers report: nothing without their URLs."""
    if not view.brokers.is_configured:
        return []

    def drawn(title: str, pick: Callable[[Latencies], float | None]) -> tuple[str, str, Plot | None]:
        points = [(each.at_s, value) for each in view.brokers.history if (value := pick(each)) is not None]
        return title, _ms(points[-1][1] if points else None), curve_of(points, _ms)

    def latency(name: str, quantile: str) -> tuple[str, str, Plot | None]:
        return drawn(f"{name} requests, quantile {quantile}", lambda each: each.latencies_ms.get((name, quantile)))

    found = [latency(name, quantile) for name in REQUESTS for quantile in QUANTILES]
    return [*found, drawn("Delay of the event loop, quantile 0.99", lambda each: each.delay_ms)]


def _ms(number: float | None) -> str:
    return DASH if number is None else f"{number:.3g} ms"
