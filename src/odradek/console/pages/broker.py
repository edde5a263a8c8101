"""A broker: its log directories, and its settings with source and documentation."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from odradek.client.admin import ConfigEntry, ConfigResource, ConfigResourceType, raise_first
from odradek.client.reports.directories import directory_rows
from odradek.console.rendering import console_of, page


async def show(request: Request) -> Response:
    """A live broker. Raises HTTPException, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    broker = request.path_params["broker"]
    cluster = await view.admin.describe_cluster()
    found = next((each for each in cluster.brokers if each.node_id == broker), None)
    if found is None:
        raise HTTPException(404, f"No broker with the id {broker} is alive.")
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker))
    entries = raise_first(await view.admin.describe_configs([resource], documentation=True))[resource]
    text, shows_all = request.query_params.get("q", "").strip(), "all" in request.query_params
    chosen = [
        each
        for each in sorted(entries.values(), key=lambda each: (each.is_default, each.name))
        if (_contains(each, text) if text else shows_all or not each.is_default)
    ]
    return page(
        request,
        "broker.html",
        title=f"Broker {broker}",
        view=view,
        broker=found,
        is_controller=broker == cluster.controller_id,
        directories=[each for each in await directory_rows(view.admin) if each["broker"] == broker],
        entries=chosen,
        total=len(entries),
        q=text,
        shows_all=shows_all,
    )


def _contains(entry: ConfigEntry, text: str) -> bool:
    """Whether the name or the value has the text, in any case. The protocol gives no values of secrets."""
    return text.lower() in entry.name.lower() or text.lower() in (entry.value or "").lower()
