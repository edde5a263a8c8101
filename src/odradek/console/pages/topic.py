"""A topic: its partitions with replicas, offsets and directories; its settings; the groups that read it."""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from odradek.client.admin import ConfigResource, ConfigResourceType, raise_first
from odradek.client.model import EARLIEST, LATEST
from odradek.client.network.metadata import TopicInfo
from odradek.client.reports.activity import topic_group_rows
from odradek.client.reports.directories import replica_rows
from odradek.client.reports.topics import id_text
from odradek.console.clusters import ClusterView
from odradek.console.pages.preferences import favourites_of
from odradek.console.paging import part_of
from odradek.console.rendering import console_of, page
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

PAGE_ROWS: Final = 100


async def found_topic(request: Request) -> tuple[ClusterView, TopicInfo]:
    """The cluster and the topic that the path names. Raises HTTPException, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    name = request.path_params["topic"]
    found = (await view.admin.describe_topics([name]))[name]
    if isinstance(found, KafkaError):
        raise HTTPException(404, f"The topic {name} cannot be described: {found.message}")
    return view, found


async def show(request: Request) -> Response:
    """Partitions of a topic, 100 on a page. Raises KafkaError, ClientError, HTTPException."""
    view, topic = await found_topic(request)
    partitions = sorted(topic.partitions, key=lambda each: each.partition)
    wanted = request.query_params.get("state", "")
    if wanted == "out-of-sync":
        partitions = [each for each in partitions if len(each.isr) < len(each.replicas)]
    part = part_of(request, partitions, PAGE_ROWS)
    shown = [TopicPartition(topic.name, each.partition) for each in part.rows]
    led = [place for place, each in zip(shown, part.rows, strict=True) if each.leader >= 0]
    starts = raise_first(await view.admin.list_offsets(dict.fromkeys(led, EARLIEST))) if led else {}
    ends = raise_first(await view.admin.list_offsets(dict.fromkeys(led, LATEST))) if led else {}
    replicas = await replica_rows(view.admin, shown) if shown else {}
    return page(
        request,
        "topic.html",
        title=topic.name,
        view=view,
        topic=topic,
        topic_id=id_text(topic.topic_id),
        part=part,
        state=wanted,
        starts={place.partition: each.offset for place, each in starts.items()},
        ends={place.partition: each.offset for place, each in ends.items()},
        replicas=replicas,
        figures=view.partition_figures(topic.name, [each.partition for each in part.rows]),
        favourite=topic.name in favourites_of(request, view.name),
    )


async def show_settings(request: Request) -> Response:
    """Settings of a topic. Raises KafkaError, ClientError, HTTPException."""
    view, topic = await found_topic(request)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
    entries = raise_first(await view.admin.describe_configs([resource], documentation=True))[resource]
    own = "all" not in request.query_params
    chosen = [
        each
        for each in sorted(entries.values(), key=lambda each: (each.is_default, each.name))
        if not own or not each.is_default
    ]
    return page(
        request,
        "topic_settings.html",
        title=f"{topic.name}: settings",
        view=view,
        topic=topic,
        entries=chosen,
        names=sorted(entries),
        total=len(entries),
        only_own=own,
        favourite=topic.name in favourites_of(request, view.name),
    )


async def show_groups(request: Request) -> Response:
    """Groups with offsets of a topic, by the last sample. Raises KafkaError, ClientError, HTTPException."""
    view, topic = await found_topic(request)
    return page(
        request,
        "topic_groups.html",
        title=f"{topic.name}: groups",
        view=view,
        topic=topic,
        is_sampled=view.sample is not None,
        part=part_of(request, [] if view.sample is None else topic_group_rows(view.sample, topic.name), PAGE_ROWS),
        favourite=topic.name in favourites_of(request, view.name),
    )
