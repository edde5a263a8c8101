"""A producer that lives as long as a web application: one for all requests, started and closed with the server.

The application is a plain ASGI callable: uvicorn, hypercorn and granian run it. In FastAPI and Starlette, the producer
belongs into the function that is passed as `lifespan=`:

    @asynccontextmanager
    async def lifespan(app):
        async with Producer(bootstrap_servers=...) as app.state.producer:
            yield

    app = FastAPI(lifespan=lifespan)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Self

from odradek.client import CallTimedOut, DeliveryTimedOut, Producer
from odradek.testing import BlockingBroker

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Shop:
    """POST writes the body to `orders`, and answers 202 once it is acknowledged, 503 if the cluster is away."""

    def __init__(self, servers: str, patience_ms: int = 2_000) -> None:
        # The client is made within the event loop that serves the requests, in the lifespan.
        self._servers = servers
        self._patience_ms = patience_ms
        self._producer: Producer[bytes, bytes] | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "lifespan.startup"
        async with Producer(
            bootstrap_servers=self._servers,
            max_block_ms=self._patience_ms,  # for metadata and memory
            delivery_timeout_ms=self._patience_ms,  # for the acknowledgement
            request_timeout_ms=self._patience_ms // 2,
        ) as self._producer:
            await send({"type": "lifespan.startup.complete"})
            assert (await receive())["type"] == "lifespan.shutdown"
        # Closing has written what was queued.
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        assert self._producer is not None
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status = 405
        if scope["method"] == "POST":
            try:
                await self._producer.send_and_wait("orders", body)
                status = 202
            except (CallTimedOut, DeliveryTimedOut):
                status = 503
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Server:
    """As much of an ASGI server as the tests need."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._to_shop: asyncio.Queue[Message] = asyncio.Queue()
        self._from_shop: asyncio.Queue[Message] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self._life = asyncio.create_task(self._shop({"type": "lifespan"}, self._to_shop.get, self._from_shop.put))
        await self._to_shop.put({"type": "lifespan.startup"})
        assert (await self._from_shop.get())["type"] == "lifespan.startup.complete"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._to_shop.put({"type": "lifespan.shutdown"})
        await self._life
        assert (await self._from_shop.get())["type"] == "lifespan.shutdown.complete"

    async def request(self, method: str, body: bytes = b"") -> int:
        """The status of the answer."""
        answer: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            answer.append(message)

        await self._shop({"type": "http", "method": method, "path": "/"}, receive, send)
        return int(answer[0]["status"])


def test_requests_share_one_producer(make_kafka_broker: Callable[[], BlockingBroker]) -> None:
    broker = make_kafka_broker()
    broker.topic("orders")

    async def main() -> list[int]:
        async with Server(Shop(broker.bootstrap_servers)) as server:
            posts = [server.request("POST", b"order %d" % number) for number in range(20)]
            return [*await asyncio.gather(*posts), await server.request("GET")]

    assert asyncio.run(main()) == [202] * 20 + [405]
    assert {record.value for record in broker.records("orders")} == {b"order %d" % number for number in range(20)}


def test_request_is_answered_503_when_the_cluster_is_away(make_kafka_broker: Callable[[], BlockingBroker]) -> None:
    broker = make_kafka_broker()
    broker.topic("orders")
    broker.stop()

    async def main() -> int:
        async with Server(Shop(broker.bootstrap_servers, patience_ms=200)) as server:
            return await server.request("POST", b"order")

    assert asyncio.run(main()) == 503
