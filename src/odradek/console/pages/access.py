"""Who may do what, and how much: ACLs, SCRAM users, client quotas."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.admin import raise_first
from odradek.console.rendering import console_of, page
from odradek.wire.errors import KafkaError


async def show(request: Request) -> Response:
    """All of them; a part that the user may not see has a message instead. Raises ClientError."""
    view = console_of(request).view_of(request)
    failures = {"acls": "", "users": "", "quotas": ""}
    acls, users, quotas = [], {}, {}
    try:
        acls = sorted(await view.admin.acls.describe())
    except KafkaError as error:
        failures["acls"] = str(error)
    try:
        users = raise_first(await view.admin.users.describe())
    except KafkaError as error:
        failures["users"] = str(error)
    try:
        quotas = await view.admin.quotas.describe()
    except KafkaError as error:
        failures["quotas"] = str(error)
    return page(
        request, "access.html", title="Access", view=view, acls=acls, users=users, quotas=quotas, failures=failures
    )
