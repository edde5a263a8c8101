"""Topics of dead letters: why records failed, and their way back to the topics they came from."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from fnmatch import fnmatchcase
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.transactions import TransactionalProducer
from odradek.client.reports.dead_letters import (
    CLASS,
    Letter,
    OffsetBeyondEnd,
    UnknownOrigin,
    UnknownTopic,
    read_letters,
    redrive_group,
    redrive_id,
    send_again,
    wanted_of,
)
from odradek.console.clusters import ClusterView
from odradek.console.forms import FormError, confirm, field, fields, number
from odradek.console.messages.decoding import show as shown
from odradek.console.messages.query import MessageQuery
from odradek.console.messages.reading import Readers, read
from odradek.console.pages.preferences import favourites_of
from odradek.console.pages.topic import found_topic
from odradek.console.paging import part_of
from odradek.console.rendering import console_of, page

PAGE_ROWS: Final = 100
NEWEST: Final = 100
"""Letters that the page of a topic shows."""
MAX_REDRIVEN: Final = 10_000
"""Letters that one form sends again."""
REDRIVE_S: Final = 60.0
"""Limit for a preview or a redrive: rounds that are complete stay."""
UNKNOWN: Final = "?"


async def show_all(request: Request) -> Response:
    """Topics whose names are those of dead letters. Raises KafkaError, ClientError."""
    console = console_of(request)
    view = console.view_of(request)
    patterns = [each.lower() for each in console.settings.dead_letters]
    figures = view.topic_figures()
    rows = [
        {"topic": each.name, "partitions": len(each.partitions), **_figures(figures.get(each.name, {}))}
        for each in await view.topics()
        if any(fnmatchcase(each.name.lower(), pattern) for pattern in patterns)
    ]
    part = part_of(request, rows, PAGE_ROWS)
    return page(
        request,
        "dead_letters.html",
        title="Dead letters",
        view=view,
        part=part,
        patterns=console.settings.dead_letters,
    )


async def show(request: Request) -> Response:
    """The newest letters of a topic, with their reasons. Raises HTTPException, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    settings = console_of(request).settings
    query = MessageQuery(limit=NEWEST, committed=True)
    letters: list[Letter] = []
    with console_of(request).reading():
        readers = Readers(settings.masks, settings.schemas)
        async with aclosing(read(view.options, topic.name, query, readers)) as reading:
            async for progress in reading:
                letters += [Letter.of(each) for each in progress.found]
    reasons = Counter((each.topic or UNKNOWN, each.errors.get(CLASS, UNKNOWN)) for each in letters)
    return page(
        request,
        "dead_letters_topic.html",
        title=f"{topic.name}: dead letters",
        view=view,
        topic=topic,
        rows=[(each, shown(each.record.key, "auto"), shown(each.record.value, "auto")) for each in letters],
        reasons=reasons.most_common(),
        group=redrive_group(topic.name),
        favourite=topic.name in favourites_of(request, view.name),
    )


async def preview(request: Request) -> Response:
    """Where a redrive would send letters; the page has its form. Raises FormError, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    limits = _limits(dict(request.query_params))
    counts: Counter[str] = Counter()
    skipped = 0
    with console_of(request).reading():
        async for letters in _rounds(view, topic.name, limits["records"]):
            wanted = wanted_of(letters, limits["redrives"])
            skipped += len(letters) - len(wanted)
            counts.update(each.topic or UNKNOWN for each in wanted)
    known = await _possible_targets(view)
    return page(
        request,
        "dead_letters_preview.html",
        title=f"{topic.name}: redrive",
        view=view,
        topic=topic,
        targets=sorted(counts.items()),
        missing=sorted(counts.keys() - known),
        skipped=skipped,
        limits=limits,
        favourite=topic.name in favourites_of(request, view.name),
    )


async def redrive(request: Request) -> Response:
    """Send letters again to the topics of the preview, in transactions. Raises FormError, KafkaError, ClientError.

    A header names the target, and any writer of letters can choose it: targets outside of the preview end it.
    """
    view, topic = await found_topic(request)
    confirm(request, topic.name)
    limits = _limits({name: field(request, name, "") for name in ("records", "redrives")})
    targets = frozenset(fields(request, "target"))
    if not targets or not targets <= await _possible_targets(view):
        raise FormError("The preview has no target, or one that is missing or internal. Nothing was sent.")
    group = redrive_group(topic.name)
    sent: Counter[str] = Counter()
    end = ""
    try:
        # First the producer, then the offsets: an earlier redrive that still runs is fenced before they are read.
        async with TransactionalProducer(**view.options, transactional_id=redrive_id(group)) as producer:
            async for letters in _rounds(view, topic.name, limits["records"]):
                wanted = wanted_of(letters, limits["redrives"])
                others = sorted({each.topic or UNKNOWN for each in wanted} - targets)
                if others:
                    end = f"Stopped before a letter for {others[0]}, which is not in the preview."
                    break
                sent += await send_again(producer, group, letters, wanted, None)
    except UnknownOrigin as error:
        end = f"Stopped: the headers of {error} do not name its topic."
    finally:
        if sent:
            console_of(request).record_change(request, "redrive", topic.name, sent=dict(sent), group=group)
    return page(
        request,
        "dead_letters_done.html",
        title=f"{topic.name}: redriven",
        view=view,
        topic=topic,
        sent=sorted(sent.items()),
        end=end,
        favourite=topic.name in favourites_of(request, view.name),
    )


async def _possible_targets(view: ClusterView) -> frozenset[str]:
    return frozenset(each.name for each in await view.topics() if not each.is_internal)


async def _rounds(view: ClusterView, topic: str, most: int) -> AsyncIterator[list[Letter]]:
    """Rounds of letters from the group's offsets on. Raises HTTPException, KafkaError, ClientError."""
    deadline = asyncio.get_running_loop().time() + REDRIVE_S
    async with _consumer(view.options) as consumer:
        try:
            async for letters in read_letters(consumer, topic, redrive_group(topic), max_records=most):
                yield letters
                if asyncio.get_running_loop().time() > deadline:
                    return
        except UnknownTopic as error:
            raise HTTPException(404, f"{error}.") from error
        except OffsetBeyondEnd as error:
            raise HTTPException(409, f"{error}.") from error


@asynccontextmanager
async def _consumer(options: Mapping[str, Any]) -> AsyncIterator[Consumer]:
    chosen = {**options, "isolation_level": "read_committed", "allow_auto_create_topics": False}
    async with Consumer(**chosen) as consumer:
        yield consumer


def _limits(given: Mapping[str, str]) -> dict[str, Any]:
    """`records`: the most letters; `redrives`: skip letters sent that often, None for none. Raises FormError."""
    records, redrives = given.get("records", "").strip(), given.get("redrives", "").strip()
    return {
        "records": number(records, "records", least=1, most=MAX_REDRIVEN) if records else MAX_REDRIVEN,
        "redrives": number(redrives, "redrives", least=1, most=2**31 - 1) if redrives else None,
    }


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in ("records", "size_bytes", "records_per_second")}
