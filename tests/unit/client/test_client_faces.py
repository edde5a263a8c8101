"""The asyncio clients and their blocking faces have the same public methods, parameters and types."""

import inspect
import re
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.admin.blocking_admin import BlockingAdmin
from odradek.client.blocking_clients import BlockingDelivery, BlockingProducer, BlockingTransactionalProducer
from odradek.client.consumer.blocking_consumer import BlockingConsumer
from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.accumulator import Delivery
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import TransactionalProducer
from odradek.client.share.blocking_share_consumer import BlockingShareConsumer
from odradek.client.share.share_consumer import ShareConsumer

SENDER = "the sender of the same event loop asks or calls it"
ABSENT: dict[type, dict[str, str]] = {
    Producer: {
        "cluster": "connections belong to the event loop",
        "sender": "a part for TransactionalProducer",
        "forget_failure": "for TransactionalProducer",
    },
    TransactionalProducer: {
        "producer": "an asyncio client; its methods are here",
        "is_open": SENDER,
        "taking": SENDER,
        "may_send": SENDER,
        "failed": SENDER,
    },
    Consumer: {"cluster": "connections belong to the event loop"},
    Admin: {"cluster": "connections belong to the event loop"},
    ShareConsumer: {},
    Delivery: {},
}
"""Public names that blocking faces lack, and why."""
ADDED: dict[type, dict[str, str]] = {
    BlockingProducer: {"wrap": "a face of a producer that a test or a simulation has made"},
    BlockingTransactionalProducer: {},
    BlockingConsumer: {
        "wrap": "a face of a consumer that a test or a simulation has made",
        "iterate": "`for` with an end; `async for` has asyncio.timeout",
    },
    BlockingAdmin: {},
    BlockingShareConsumer: {},
    BlockingDelivery: {},
}
"""Public names that only blocking faces have, and why."""
DIFFERENT: dict[tuple[type, str], str] = {
    (BlockingDelivery, "result"): "it waits; asyncio has `await`",
    (BlockingProducer, "flush"): "timeout_s: asyncio has asyncio.timeout",
    (BlockingTransactionalProducer, "flush"): "timeout_s: asyncio has asyncio.timeout",
    (BlockingConsumer, "commit_async"): "a task of the event loop cannot be awaited in a thread; callbacks report",
}
"""Methods whose parameters or results differ, and why."""
PAIRS: list[tuple[Any, Any]] = [
    (Producer, BlockingProducer),
    (TransactionalProducer, BlockingTransactionalProducer),
    (Consumer, BlockingConsumer),
    (ShareConsumer, BlockingShareConsumer),
    (Admin, BlockingAdmin),
]
COUNTERPARTS = (
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsyncGenerator\[(.*), None\]", r"Iterator[\1]"),
    (r"\bDelivery\b", "BlockingDelivery"),
)
"""Types of asyncio methods, and what they are for threads."""


def public(client: type) -> set[str]:
    return {name for name in dir(client) if not name.startswith("_")}


def of_threads(text: object) -> object:
    for pattern, other in COUNTERPARTS:
        text = re.sub(pattern, other, text) if isinstance(text, str) else text
    return text


def shape(member: Any, *, is_asyncio: bool) -> Any:
    """What callers see: parameters with types and defaults, the type of the result; the type of a property."""
    if isinstance(member, property):
        return "property"
    if not callable(member):
        return "attribute"
    signature = inspect.signature(member)
    change = of_threads if is_asyncio else lambda text: text
    parameters = [
        (each.name, each.kind, each.default, change(each.annotation)) for each in signature.parameters.values()
    ]
    return parameters[not inspect.ismethod(member) :], change(signature.return_annotation)


def differences(asynchronous: type, blocking: type) -> list[str]:
    found = [f"{blocking.__name__} lacks {each}" for each in public(asynchronous) - public(blocking)]
    found += [f"only {blocking.__name__} has {each}" for each in public(blocking) - public(asynchronous)]
    for name in public(asynchronous) & public(blocking):
        there, here = getattr(asynchronous, name), getattr(blocking, name)
        if "attribute" in (shape(there, is_asyncio=True), shape(here, is_asyncio=False)):
            continue  # a slot there, a property here
        if shape(there, is_asyncio=True) != shape(here, is_asyncio=False):
            found.append(f"{blocking.__name__}.{name} differs")
        if inspect.iscoroutinefunction(here):
            found.append(f"{blocking.__name__}.{name} is a coroutine function")
    return sorted(found)


def allowed(asynchronous: type, blocking: type) -> list[str]:
    name = blocking.__name__
    return sorted(
        [f"{name} lacks {each}" for each in ABSENT[asynchronous]]
        + [f"only {name} has {each}" for each in ADDED[blocking]]
        + [f"{name}.{each} differs" for kind, each in DIFFERENT if kind is blocking]
    )


def is_method(client: type, name: str) -> bool:
    return inspect.isroutine(getattr(client, name))


@pytest.mark.parametrize(("asynchronous", "blocking"), [*PAIRS, (Delivery, BlockingDelivery)])
def test_blocking_face_has_the_methods_of_the_asyncio_client(asynchronous: type, blocking: type) -> None:
    assert differences(asynchronous, blocking) == allowed(asynchronous, blocking)


def test_parts_of_the_blocking_admin_have_the_methods_of_the_asyncio_ones() -> None:
    asynchronous, blocking = Admin(), BlockingAdmin()
    parts = sorted(public(Admin) - {"cluster", "config"} - {name for name in public(Admin) if is_method(Admin, name)})
    assert len(parts) == 12
    for name in parts:
        there, here = type(getattr(asynchronous, name)), type(getattr(blocking, name))
        assert here.__name__ == f"Blocking{there.__name__}"
        assert differences(there, here) == []


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_blocking_face_can_be_used_in_the_same_statements(asynchronous: type, blocking: type) -> None:
    for one, other in (("__aenter__", "__enter__"), ("__aexit__", "__exit__"), ("__aiter__", "__iter__")):
        assert hasattr(asynchronous, one) == hasattr(blocking, other)


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_constructors_take_the_same_arguments(asynchronous: type, blocking: type) -> None:
    there, here = (inspect.signature(each).parameters for each in (asynchronous, blocking))
    seams = {"network", "random", "clock"}  # `wrap` takes a client that has them
    assert {*there} - {*here} == seams & {*there}
    assert {*here} - {*there} == {"blocking"}


class One:
    async def kept(self, number: int = 1) -> str:
        return str(number)

    async def changed(self, number: int = 1) -> str:
        return str(number)

    async def dropped(self) -> None: ...


class Other:
    def kept(self, number: int = 1) -> str:
        return str(number)

    def changed(self, number: int = 2) -> str:
        return str(number)

    def added(self) -> None: ...


def test_comparison_finds_what_differs() -> None:
    assert differences(One, Other) == ["Other lacks dropped", "Other.changed differs", "only Other has added"]
