"""Consumer groups: the list, a group with members, lag and its history, and new offsets with a preview."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from odradek.client.admin import GroupDescription, GroupState, raise_first
from odradek.client.reports.groups import add_lag_seconds, member_rows, offset_rows, state_row
from odradek.client.reports.offset_resets import ResetError, plan_reset, within
from odradek.console.clusters import ClusterView
from odradek.console.forms import FormError, confirm, field, number, see
from odradek.console.messages.query import QueryError, time_of
from odradek.console.paging import order_of, ordered, part_of
from odradek.console.plots import curve_of
from odradek.console.rendering import console_of, link, page
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

PAGE_ROWS: Final = 50
COLUMNS: Final = ("group", "state", "type", "partitions", "lag", "records_per_second", "lag_per_second")
FIGURES: Final = ("partitions", "lag", "records_per_second", "lag_per_second")
WAYS: Final = ("to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "to-datetime", "by-duration")
_INACTIVE: Final = (GroupState.EMPTY, GroupState.DEAD)


async def show_all(request: Request) -> Response:
    """One page of groups. Raises KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    text = request.query_params.get("q", "").strip()
    figures = view.group_figures()
    rows = [
        {
            "group": each.group_id,
            "state": each.state,
            "type": each.type,
            "coordinator": each.coordinator_id,
            **{name: figures.get(each.group_id, {}).get(name) for name in FIGURES},
        }
        for each in await view.admin.groups.list()
        if text.lower() in each.group_id.lower()
    ]
    column, is_reversed = order_of(request, COLUMNS, "group")
    part = part_of(request, ordered(rows, lambda each: each[column], is_reversed=is_reversed), PAGE_ROWS)
    sort = ("-" if is_reversed else "") + column
    return page(request, "groups.html", title="Groups", view=view, part=part, q=text, sort=sort)


async def show(request: Request) -> Response:
    """A group. Raises HTTPException, KafkaError, ClientError."""
    view, group = await _found(request)
    view.groups.want(group.group_id)
    timeline = view.groups.timelines.get(group.group_id)
    rows = await offset_rows(view.admin, group)
    await add_lag_seconds(view.admin, rows, time.time_ns() // 1_000_000)
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    history = [(each.at_s, float(each.lags[group.group_id])) for each in view.history if group.group_id in each.lags]
    return page(
        request,
        "group.html",
        title=group.group_id,
        view=view,
        group=group,
        state=state_row(group, view.admin),
        rows=[row for row in rows if row["topic"] is not None],
        members=member_rows(group),
        lag=sum(lags) if lags else None,
        lag_seconds=max((row["lag_seconds"] for row in rows if row["lag_seconds"] is not None), default=None),
        plot=curve_of(history),
        rebalances=[] if timeline is None else list(reversed(timeline.rebalances)),
        now_s=time.time(),
        is_inactive=group.state in _INACTIVE,
        ways=WAYS,
        topics=sorted({row["topic"] for row in rows if row["topic"] is not None}),
    )


async def preview(request: Request) -> Response:
    """What a reset would change; the form on the page sets it. Raises FormError, KafkaError, ClientError."""
    view, group = await _found(request)
    fields = request.query_params
    way, text = fields.get("way", ""), fields.get("target", "").strip()
    if way not in WAYS:
        raise FormError(f"way: {', '.join(WAYS)} expected.")
    current = {place: at.offset for place, at in (await view.admin.groups.offsets(group.group_id)).items()}
    topic = fields.get("topic", "").strip()
    partitions = await _partitions(view, topic) if topic else list(current)
    notes: list[str] = []
    try:
        planned = await plan_reset(view.admin, way, target_of(way, text), partitions, current, {}, notes.append)
    except ResetError as error:
        raise FormError(f"{error}.") from error
    changes = [
        {"place": place, "before": current.get(place), "after": offset} for place, offset in sorted(planned.items())
    ]
    return page(
        request,
        "group_preview.html",
        title=f"{group.group_id}: new offsets",
        view=view,
        group=group,
        changes=changes,
        notes=notes,
        is_inactive=group.state in _INACTIVE,
    )


async def reset(request: Request) -> Response:
    """Set the offsets of the preview, each of which may have been edited. Raises FormError, KafkaError, ClientError."""
    view, group = await _found(request, field(request, "group"))
    confirm(request, group.group_id)
    if group.state not in _INACTIVE:
        raise FormError(f"Offsets can be set only while a group is inactive; this one is {group.state}.")
    wanted = _planned(request.state.form)
    if not wanted:
        raise FormError("No partition was chosen.")
    notes: list[str] = []
    earliest = await plan_reset(view.admin, "to-earliest", 0, list(wanted), {}, {}, notes.append)
    latest = await plan_reset(view.admin, "to-latest", 0, list(wanted), {}, {}, notes.append)
    for place, offset in wanted.items():
        within(place, offset, earliest[place], latest[place], notes.append)
    if notes:
        raise FormError(f"{'; '.join(notes)}. Nothing was changed.")
    results = await view.admin.groups.alter_offsets(group.group_id, wanted)
    done = {str(place): offset for place, offset in wanted.items() if results.get(place) is None}
    if done:
        # Also where other partitions have failed.
        console_of(request).record_change(request, "set offsets", group.group_id, offsets=done)
    raise_first(results)
    return see(link(f"/c/{view.name}/group", name=group.group_id))


async def delete(request: Request) -> Response:
    """Delete an empty group with its offsets. Raises FormError, KafkaError, ClientError."""
    view, group = await _found(request, field(request, "group"))
    confirm(request, group.group_id)
    raise_first(await view.admin.groups.delete([group.group_id]))
    console_of(request).record_change(request, "delete group", group.group_id)
    return see(link(f"/c/{view.name}/groups"))


def target_of(way: str, text: str) -> int:
    """The number behind a way: an offset, a shift, a time in ms, or a time before now. Raises FormError."""
    if way == "to-offset":
        return number(text, "target")
    if way == "shift-by":
        return number(text, "target", least=-(2**63))
    if way == "to-datetime":
        try:
            return time_of(text)
        except QueryError as error:
            raise FormError(f"{error}.") from error
    if way == "by-duration":
        return time.time_ns() // 1_000_000 - number(text, "target: minutes") * 60_000
    return 0


def _planned(form: Sequence[tuple[str, str]]) -> dict[TopicPartition, int]:
    """Fields `offset:TOPIC:PARTITION`; an empty one leaves its partition. Raises FormError."""
    found = {}
    for name, value in form:
        if not name.startswith("offset:") or not value.strip():
            continue
        topic, _, partition = name.removeprefix("offset:").rpartition(":")
        found[TopicPartition(topic, number(partition, name))] = number(value, name)
    return found


async def _partitions(view: ClusterView, topic: str) -> list[TopicPartition]:
    found: Any = raise_first(await view.admin.describe_topics([topic]))[topic]
    return [TopicPartition(topic, each.partition) for each in found.partitions]


async def _found(request: Request, name: str | None = None) -> tuple[ClusterView, GroupDescription]:
    """The group of the query or form. Raises HTTPException, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    wanted = request.query_params.get("name", "") if name is None else name
    found = (await view.admin.groups.describe([wanted]))[wanted]
    if isinstance(found, KafkaError):
        raise HTTPException(404, f"The group cannot be described: {found.message}")
    return view, found
