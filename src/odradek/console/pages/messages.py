"""Records of a topic: a page of them, a stream of a search or of new records, a download."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from odradek.client.errors import ClientError
from odradek.client.network.metadata import TopicInfo
from odradek.console.clusters import ClusterView
from odradek.console.messages.decoding import ShownRecord, document_of, show_record
from odradek.console.messages.filters import FilterError
from odradek.console.messages.masks import RawRecord
from odradek.console.messages.query import FILTERS, FORMS, FROM, MessageQuery, QueryError
from odradek.console.messages.reading import Progress, Readers, read
from odradek.console.messages.schema_decoding import Origin, RecordPlace
from odradek.console.pages.preferences import favourites_of
from odradek.console.pages.topic import found_topic
from odradek.console.rendering import console_of, figure, fragment, page, size
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import KafkaError

PROGRESS_S: Final = 0.5
"""Least time between two notices of progress."""
LOGIN_ENDED: Final = "The login has ended."
FAILURES: Final = (QueryError, FilterError, KafkaError, ClientError, CorruptRecords)


async def show(request: Request) -> Response:
    """The form with a page of records, or with a stream. Raises HTTPException, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    records: list[RawRecord] = []
    origins: dict[RecordPlace, Origin] = {}
    message, end = "", ""
    query = MessageQuery()
    try:
        query = MessageQuery.parse(request.query_params)
        if not query.is_stream:
            with console_of(request).reading():
                records, origins, end = await _collected(request, view, query)
    except (QueryError, FilterError) as error:
        message = str(error)
    records.sort(key=lambda each: (each.timestamp, each.offset), reverse=query.start == "newest")
    shown = [show_record(each, query.form, origins.get((each.partition, each.offset))) for each in records]
    return _form(request, view, topic, query, shown, message, end)


def _form(
    request: Request,
    view: ClusterView,
    topic: TopicInfo,
    query: MessageQuery,
    records: list[ShownRecord],
    message: str,
    end: str,
) -> HTMLResponse:
    stream = None
    if query.is_stream and not message:
        stream = f"{request.url.path}/stream?{request.url.query}"
    return page(
        request,
        "messages.html",
        title=f"{topic.name}: messages",
        view=view,
        status=400 if message else 200,
        topic=topic,
        asked=query,
        records=records,
        message=message,
        end=end,
        stream=stream,
        fields=dict(request.query_params),
        download=f"{request.url.path}/download?{request.url.query}",
        choices={"from": FROM, "filter": FILTERS, "form": FORMS},
        favourite=topic.name in favourites_of(request, view.name),
    )


async def _collected(
    request: Request, view: ClusterView, query: MessageQuery
) -> tuple[list[RawRecord], dict[RecordPlace, Origin], str]:
    found: list[RawRecord] = []
    origins: dict[RecordPlace, Origin] = {}
    end = ""
    async with aclosing(_progress(request, view, query)) as reading:
        async for each in reading:
            found += each.found
            origins |= each.origins
            end = each.end
    return found, origins, end


def _progress(request: Request, view: ClusterView, query: MessageQuery) -> AsyncGenerator[Progress, None]:
    settings = console_of(request).settings
    return read(view.options, request.path_params["topic"], query, Readers(settings.masks, settings.schemas))


async def stream(request: Request) -> Response:
    """Found records as server-sent events: `record` (HTML), `progress` (text), `end` (text). Raises HTTPException."""
    view = console_of(request).view_of(request)
    try:
        query = MessageQuery.parse(request.query_params)
    except QueryError as error:
        raise HTTPException(400, str(error)) from error
    return StreamingResponse(
        _events(request, view, query), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


async def _events(request: Request, view: ClusterView, query: MessageQuery) -> AsyncIterator[str]:
    last = 0.0
    try:
        with console_of(request).reading():
            async with aclosing(_progress(request, view, query)) as reading:
                async for each in reading:
                    if not console_of(request).has_access(request):
                        yield _event("end", LOGIN_ENDED)
                        return
                    for record in each.found:
                        origin = each.origins.get((record.partition, record.offset))
                        shown = show_record(record, query.form, origin)
                        yield _event("record", fragment(request, "record.html", view=view, record=shown, is_open=False))
                    if each.end:
                        yield _event("end", f"{each.end} {_counts(each)}")
                        return
                    if time.monotonic() - last >= PROGRESS_S:
                        last = time.monotonic()
                        yield _event("progress", _counts(each))
    except FAILURES as error:
        yield _event("end", f"Failed: {error}")
    except HTTPException as error:
        yield _event("end", str(error.detail))


def _counts(progress: Progress) -> str:
    text = f"{figure(progress.scanned)} records and {size(progress.scanned_bytes)} read."
    if progress.failed:
        text += f" The expression failed on {figure(progress.failed)} records: {progress.why}"
    return text


def _event(name: str, text: str) -> str:
    """A server-sent event. Every kind of line end in the text begins a new data line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n" + "".join(f"data: {each}\n" for each in lines) + "\n"


async def download(request: Request) -> Response:
    """Found records as JSON lines. Raises HTTPException, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    try:
        query = MessageQuery.parse(request.query_params)
    except QueryError as error:
        raise HTTPException(400, str(error)) from error
    if query.start == "live":
        raise HTTPException(400, "New records have no end: choose another start for a download.")
    lines = _lines(request, view, query)
    try:
        # Before the response begins, so that an error is a page and not an incomplete file.
        first = await anext(lines)
    except (QueryError, FilterError) as error:
        raise HTTPException(400, str(error)) from error
    return StreamingResponse(
        _chained(first, lines),
        media_type="application/x-ndjson",
        headers={"content-disposition": f'attachment; filename="{topic.name}.jsonl"'},
    )


async def _lines(request: Request, view: ClusterView, query: MessageQuery) -> AsyncGenerator[str, None]:
    """Lines as they are found. Raises HTTPException, QueryError, FilterError, KafkaError, ClientError."""
    console = console_of(request)
    with console.reading():
        async with aclosing(_progress(request, view, query)) as found:
            async for each in found:
                if not console.has_access(request):
                    raise HTTPException(403, LOGIN_ENDED)
                yield "".join(json.dumps(document_of(record), ensure_ascii=False) + "\n" for record in each.found)


async def _chained(first: str, others: AsyncGenerator[str, None]) -> AsyncIterator[str]:
    async with aclosing(others):
        yield first
        async for each in others:
            yield each
