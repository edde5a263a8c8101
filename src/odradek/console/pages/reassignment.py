"""Reassignments: what runs, plans with the bytes of each broker before and after, their execution and their end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.network.metadata import TopicInfo
from odradek.client.reports.balance import sized_replicas
from odradek.client.reports.balance_plan import Proposal, Replica, applied, loads, propose
from odradek.client.reports.moves import request_moves
from odradek.client.reports.reassignment import Move
from odradek.client.reports.replication_factor import with_factor
from odradek.client.reports.throttles import remove_throttles, throttle
from odradek.console.clusters import ClusterView
from odradek.console.forms import FormError, confirm, field, number, see
from odradek.console.pages.topic import found_topic
from odradek.console.paging import part_of
from odradek.console.rendering import console_of, link, page
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

MAX_MOVES: Final = 1_000
"""Moves of one plan: a large cluster is evened out in several."""
DEFAULT_TOLERANCE: Final = 10
PAGE_ROWS: Final = 100
_MOVE: Final = re.compile(
    r"(?P<topic>[\w.-]{1,249}):(?P<partition>\d{1,10})=(?P<before>[\d,]+)>(?P<after>[\d,]+)", re.ASCII
)


class Bar(NamedTuple):
    """The bytes, replicas and preferred leaderships of a broker before and after a plan."""

    broker: int
    before: tuple[int, int, int]
    after: tuple[int, int, int]


async def show(request: Request) -> Response:
    """Moving partitions and bytes by broker. Raises KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    moving = await view.admin.replicas.reassignments()
    racks = await _racks(view)
    stored = loads(await sized_replicas(view.admin), racks)
    return page(
        request,
        "reassignment.html",
        title="Reassignment",
        view=view,
        part=part_of(request, sorted(moving.items()), PAGE_ROWS),
        bars=[Bar(broker, each, each) for broker, each in sorted(stored.items())],
        most=max([1, *(each[0] for each in stored.values())]),
        racks=racks,
        tolerance=DEFAULT_TOLERANCE,
    )


async def plan(request: Request) -> Response:
    """Moves that even out the brokers, or that empty some. Raises FormError, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    asked = request.query_params
    leaving = [number(each, "leaving") for each in asked.get("leaving", "").replace(",", " ").split()]
    tolerance = number(asked.get("tolerance", "").strip() or str(DEFAULT_TOLERANCE), "tolerance", most=100)
    racks = await _racks(view)
    partitions = await sized_replicas(view.admin)
    unknown = set(leaving) - {*racks, *(broker for each in partitions.values() for broker in each.replicas)}
    if unknown:
        raise FormError(f"leaving: there is no broker {min(unknown)}.")
    try:
        # In a thread: it takes seconds for ten thousand partitions.
        proposals = await asyncio.to_thread(
            propose, partitions, racks, leaving=leaving, tolerance=tolerance / 100, most_moves=MAX_MOVES
        )
    except ValueError as error:
        raise FormError(f"{error}.") from error
    return await _preview(request, view, "Plan", partitions, proposals, racks)


async def plan_factor(request: Request) -> Response:
    """Moves that change the number of replicas of a topic. Raises HTTPException, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    factor = number(request.query_params.get("factor", ""), "factor", least=1, most=32_767)
    racks = await _racks(view)
    partitions = await sized_replicas(view.admin)
    wanted = [place for place in partitions if place.topic == topic.name]
    try:
        proposals = with_factor(partitions, wanted, racks, factor)
    except ValueError as error:
        raise FormError(f"{error}.") from error
    return await _preview(request, view, f"{topic.name}: {factor} replicas", partitions, proposals, racks)


async def _preview(
    request: Request,
    view: ClusterView,
    title: str,
    partitions: Mapping[TopicPartition, Replica],
    proposals: Sequence[Proposal],
    racks: Collection[int],
) -> Response:
    before, after = loads(partitions, racks), loads(applied(partitions, proposals), racks)
    bars = [Bar(broker, before[broker], after.get(broker, (0, 0, 0))) for broker in sorted(before)]
    return page(
        request,
        "reassignment_plan.html",
        title=title,
        view=view,
        part=part_of(request, proposals, PAGE_ROWS),
        bars=bars,
        most=max([1, *(max(each.before[0], each.after[0]) for each in bars)]),
        moved_bytes=sum(each.moved_bytes for each in proposals),
        moves="\n".join(
            f"{each.place.topic}:{each.place.partition}={_listed(each.before)}>{_listed(each.after)}"
            for each in proposals
        ),
        running=len(await view.admin.replicas.reassignments()),
    )


async def execute(request: Request) -> Response:
    """Start the moves of a plan that the form shows; list those that stay rejected. Raises FormError, KafkaError,
    ClientError."""
    view = console_of(request).view_of(request)
    confirm(request, view.name)
    moves = _moves(field(request, "moves"))
    text = field(request, "throttle", "").strip()
    rate = number(text, "throttle", least=1) if text else None
    running = await view.admin.replicas.reassignments()
    if running:
        raise FormError(f"{len(running)} reassignments run: wait for their end or cancel them. Nothing was changed.")
    await _check_current(view, moves)
    brokers = sorted(await _racks(view))
    if rate is not None:
        await throttle(view.admin, moves, brokers, rate=rate, log_dir_rate=None)
    rejected = await request_moves(view.admin, {each.place: each.after for each in moves})
    console_of(request).record_change(
        request,
        "reassign",
        view.name,
        moves={str(each.place): [list(each.before), list(each.after)] for each in moves if each.place not in rejected},
        rejected={str(place): str(error) for place, error in rejected.items()},
        throttle=rate,
    )
    view.forget_topics()
    if rejected:
        return _rejected(request, view, "Rejected moves", len(moves), rejected)
    return see(link(f"/c/{view.name}/reassignment"))


async def cancel(request: Request) -> Response:
    """Cancel all reassignments, or that of one partition; list those that were not. Raises FormError, KafkaError,
    ClientError."""
    view = console_of(request).view_of(request)
    topic = field(request, "topic", "")
    running = await view.admin.replicas.reassignments()
    if topic:
        wanted = [TopicPartition(topic, number(field(request, "partition"), "partition", most=2**31 - 1))]
        confirm(request, str(wanted[0]))
    else:
        confirm(request, view.name)
        wanted = sorted(running)
    if not wanted or wanted[0] not in running:
        raise FormError("No such reassignment runs. Nothing was changed.")
    failed = await request_moves(view.admin, dict.fromkeys(wanted))
    console_of(request).record_change(
        request,
        "cancel reassignment",
        str(wanted[0]) if topic else view.name,
        partitions=[str(place) for place in wanted if place not in failed],
        rejected={str(place): str(error) for place, error in failed.items()},
    )
    view.forget_topics()
    if failed:
        return _rejected(request, view, "Moves that were not cancelled", len(wanted), failed)
    return see(link(f"/c/{view.name}/reassignment"))


def _rejected(
    request: Request, view: ClusterView, title: str, total: int, rejected: Mapping[TopicPartition, KafkaError]
) -> Response:
    """Every rejected move with its error. The status is 409: the request was right, the cluster is not ready for it."""
    return page(
        request,
        "reassignment_rejected.html",
        title=title,
        status=409,
        view=view,
        total=total,
        rejected=sorted(rejected.items()),
    )


async def unthrottle(request: Request) -> Response:
    """Remove replication throttles from all brokers and topics. Raises FormError, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    confirm(request, view.name)
    if await view.admin.replicas.reassignments():
        raise FormError("Reassignments run: remove throttles after their end. Nothing was changed.")
    await remove_throttles(view.admin, [each.name for each in await view.topics()], sorted(await _racks(view)))
    console_of(request).record_change(request, "remove throttles", view.name)
    return see(link(f"/c/{view.name}/reassignment"))


async def _check_current(view: ClusterView, moves: Sequence[Move]) -> None:
    """Raise FormError unless the replicas are those that the plan was made from."""
    described = await view.admin.describe_topics(sorted({each.place.topic for each in moves}))
    known: dict[TopicPartition, Any] = {
        TopicPartition(topic.name, each.partition): tuple(each.replicas)
        for topic in described.values()
        if isinstance(topic, TopicInfo)
        for each in topic.partitions
    }
    for each in moves:
        if known.get(each.place) != each.before:
            raise FormError(f"The replicas of {each.place} have changed: make a new plan. Nothing was changed.")


async def _racks(view: ClusterView) -> dict[int, str | None]:
    """Racks of live brokers by id."""
    return {each.node_id: each.rack for each in (await view.admin.describe_cluster()).brokers}


def _listed(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _moves(text: str) -> list[Move]:
    """Lines of `TOPIC:PARTITION=1,2>1,3`. Raises FormError."""
    found: dict[TopicPartition, Move] = {}
    for line in text.split():
        parts = _MOVE.fullmatch(line)
        if parts is None:
            raise FormError(f"moves: {line[:80]!r}: TOPIC:PARTITION=1,2>1,3 expected.")
        place = TopicPartition(parts["topic"], number(parts["partition"], "partition", most=2**31 - 1))
        before, after = (
            tuple(number(each, "broker", most=2**31 - 1) for each in parts[name].split(","))
            for name in ("before", "after")
        )
        if place in found or len(set(after)) < len(after):
            raise FormError(f"moves: {line[:80]!r} names a partition or a broker twice.")
        found[place] = Move(place, before, after)
    if not found:
        raise FormError("The plan has no moves.")
    return list(found.values())
