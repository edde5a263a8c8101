"""Consoles for tests: the application in this process, in front of a real broker."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.testclient import TestClient

from odradek.client.admin import Admin
from odradek.console.app import build
from odradek.console.settings import ConsoleSettings

T = TypeVar("T")

AT = "/c/test"


@contextmanager
def console(bootstrap: str, **settings: Any) -> Iterator[TestClient]:
    """A browser's view of a console for one cluster of the name `test`."""
    options = {"bootstrap_servers": bootstrap, **settings.pop("options", {})}
    app = build(ConsoleSettings(clusters={"test": options}, **settings))
    with TestClient(app, base_url="http://127.0.0.1:8080", follow_redirects=True) as client:
        yield client


def token(client: TestClient, path: str = AT + "/topics") -> str:
    """The token of the forms of this browser."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', client.get(path).text)
    assert found is not None
    return found[1]


def post(client: TestClient, path: str, **form: Any) -> Any:
    """Send a form with its token."""
    return client.post(path, data={"csrf": token(client), **form})


def ask(bootstrap: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """The result of work with an admin client."""
    return ask_as({"bootstrap_servers": bootstrap}, work)


def ask_as(options: Mapping[str, Any], work: Callable[[Admin], Awaitable[T]]) -> T:
    """The result of work with an admin client of these options."""

    async def session() -> T:
        async with Admin(**options) as admin:
            return await work(admin)

    return asyncio.run(session())


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "not within 60 s"
        time.sleep(0.05)
