"""The form that writes a record, empty or with the contents of a stored one."""

from __future__ import annotations

from contextlib import aclosing
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from odradek.client.producer.producer import Producer
from odradek.console.clusters import ClusterView
from odradek.console.forms import FormError, field, number, see
from odradek.console.messages.masks import RawRecord
from odradek.console.messages.query import MessageQuery, QueryError
from odradek.console.messages.reading import RAW, read
from odradek.console.pages.preferences import favourites_of
from odradek.console.pages.topic import found_topic
from odradek.console.rendering import console_of, link, page


class Draft(NamedTuple):
    """Fields of the form. Each part is text, or hex where it is not UTF-8."""

    key: str = ""
    key_form: str = "none"
    value: str = ""
    value_form: str = "text"
    headers: str = ""


async def show(request: Request) -> Response:
    """The form; with `partition` and `offset` it has that record. Raises HTTPException, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    draft = Draft()
    if "offset" in request.query_params:
        record = await _stored(view, topic.name, dict(request.query_params))
        if console_of(request).settings.masks.apply(record) != record:
            raise HTTPException(403, "Parts of this record are hidden, so it cannot be produced again.")
        draft = draft_of(record)
        if not has_headers(draft, record):
            raise HTTPException(409, "A header has a name that this form cannot have: the record cannot be edited.")
    return page(
        request,
        "produce.html",
        title=f"{topic.name}: produce",
        view=view,
        topic=topic,
        draft=draft,
        partition=request.query_params.get("partition", ""),
        favourite=topic.name in favourites_of(request, view.name),
    )


async def send(request: Request) -> Response:
    """Write the record and show it. Raises FormError, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    key = content(field(request, "key", ""), field(request, "key_form", "text"), "key")
    value = content(field(request, "value", ""), field(request, "value_form", "text"), "value")
    headers = headers_of(field(request, "headers", ""))
    chosen = field(request, "partition", "").strip()
    partition = number(chosen, "partition", most=2**31 - 1) if chosen else None
    if partition is not None and partition not in [each.partition for each in topic.partitions]:
        raise FormError(f"The topic has no partition {partition}.")
    # Bounds and names are those of the admin client, which every client knows.
    async with Producer[bytes, bytes](**view.options) as producer:
        written = await producer.send_and_wait(topic.name, value, key, headers, partition)
    console_of(request).record_change(
        request, "produce", topic.name, partition=written.partition, offset=written.offset
    )
    at = link(
        f"/c/{view.name}/topics/{topic.name}/messages",
        partition=written.partition, offset=written.offset, limit=1, **{"from": "offset"},
    )  # fmt: skip
    return see(at)


async def _stored(view: ClusterView, topic: str, fields: dict[str, str]) -> RawRecord:
    """The record at a place. Raises HTTPException."""
    try:
        query = MessageQuery.parse({**fields, "from": "offset", "limit": "1", "q": ""})
        if query.partition is None:
            raise QueryError("partition: a number expected")
        async with aclosing(read(view.options, topic, query, RAW)) as reading:
            async for progress in reading:
                for record in progress.found:
                    if record.offset == query.offset:
                        return record
    except QueryError as error:
        raise HTTPException(400, str(error)) from error
    raise HTTPException(404, "There is no such record: retention or compaction may have removed it.")


def draft_of(record: RawRecord) -> Draft:
    """The fields of the form for a record."""
    key, key_form = _text(record.key)
    value, value_form = _text(record.value)
    headers = "\n".join(name if each is None else f"{name}={_header(each)}" for name, each in record.headers)
    return Draft(key, key_form, value, value_form, headers)


def has_headers(draft: Draft, record: RawRecord) -> bool:
    """Whether the form would send the headers of the record: a name may have a line end or an equals sign."""
    try:
        return headers_of(draft.headers) == list(record.headers)
    except FormError:
        return False


def content(text: str, form: str, name: str) -> bytes | None:
    """The bytes of a field: text, hex, or null for `none`. Raises FormError."""
    if form == "none":
        return None
    if form == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise FormError(f"{name}: pairs of hex digits expected.") from None
    if form != "text":
        raise FormError(f"{name}: text, hex or none expected.")
    # Browsers send line ends of text areas as CR LF.
    return text.replace("\r\n", "\n").encode()


def headers_of(text: str) -> list[tuple[str, bytes | None]]:
    """`name=value` lines; `name=hex:00ff` has bytes, and `name` alone has null. Raises FormError."""
    found: list[tuple[str, bytes | None]] = []
    # Not `splitlines`: a value may have other characters that end lines, such as U+2028.
    for line in text.replace("\r\n", "\n").split("\n"):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not name:
            raise FormError(f"headers: {line!r}: NAME=VALUE expected.")
        is_hex = value.startswith("hex:")
        found.append((name, content(value.removeprefix("hex:"), "hex" if is_hex else "text", name) if equals else None))
    return found


def _text(data: bytes | None) -> tuple[str, str]:
    if data is None:
        return "", "none"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.hex(" "), "hex"
    # A text area would change carriage returns and lose NUL.
    return (data.hex(" "), "hex") if "\r" in text or "\0" in text else (text, "text")


def _header(data: bytes) -> str:
    text, form = _text(data)
    return f"hex:{data.hex()}" if form == "hex" or "\n" in text or text.startswith("hex:") else text
