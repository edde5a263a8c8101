"""The HTTP listener on real sockets of the loopback: what is served, what is rejected, what is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.observability import http_connection
from odradek.broker.observability.http_listener import HttpAddress, HttpListener, http_address
from odradek.broker.observability.http_messages import HttpRequest, HttpResponse, text_response
from odradek.ports.network import TcpNetwork


async def hello(request: HttpRequest) -> HttpResponse:
    return text_response(200, f"hello {request.query.get('name', ['stranger'])[0]}")


async def broken(_request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a mistake")


async def large(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, "text/plain", [b"x" * 1_000_000] * 8)


@asynccontextmanager
async def listening() -> AsyncIterator[HttpListener]:
    listener = HttpListener(TcpNetwork(), {"/hello": hello, "/broken": broken, "/large": large})
    listener.listen(HttpAddress("127.0.0.1", 0))
    try:
        yield listener
    finally:
        listener.close()


async def exchange(listener: HttpListener, data: bytes) -> bytes:
    """What the listener answers until it closes the connection."""
    host, _, port = listener.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


def get(target: str, *headers: str) -> bytes:
    lines = [f"GET {target} HTTP/1.1", "Host: here", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


def answer_to(data: bytes) -> bytes:
    async def run() -> bytes:
        async with listening() as listener:
            return await exchange(listener, data)

    return asyncio.run(run())


def test_request_is_answered_with_its_query() -> None:
    answer = answer_to(get("/hello?name=you"))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\nhello you\n")


def test_head_has_the_length_and_no_body() -> None:
    answer = answer_to(get("/hello").replace(b"GET", b"HEAD"))
    assert b"Content-Length: 15\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_large_answer_arrives_whole() -> None:
    assert len(answer_to(get("/large")).partition(b"\r\n\r\n")[2]) == 8_000_000


def test_connection_serves_one_request_after_the_other() -> None:
    first = b"GET /hello?name=a HTTP/1.1\r\nHost: here\r\n\r\n"
    answer = answer_to(first + get("/hello?name=b"))
    assert answer.index(b"hello a") < answer.index(b"hello b")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (get("/missing"), b"404"),
        (get("/broken"), b"500"),
        (b"POST /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"GET /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody", b"413"),
        (b"GET /hello HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01 not http\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nHost: h\r\nX: " + b"y" * 40_000 + b"\r\n\r\n", b"431"),
        (b"GET http://[bad/hello HTTP/1.1\r\nHost: h\r\n\r\n", b"400"),
    ],
    ids=["missing", "broken", "post", "body", "no host", "tls", "headers", "target"],
)
def test_request_is_rejected_with_its_status(data: bytes, status: bytes) -> None:
    assert answer_to(data).startswith(b"HTTP/1.1 " + status)


def test_mistake_of_a_handler_is_not_shown_to_the_peer() -> None:
    assert b"a mistake" not in answer_to(get("/broken"))


def test_peer_that_sends_no_whole_request_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "IDLE_SECONDS", 0.01)
    assert answer_to(b"GET /hello HTTP/1.1\r\n") == b""


def test_connection_that_sends_requests_is_not_idle() -> None:
    """The time of an earlier request would end it while a scraper uses it."""
    timers: list[asyncio.TimerHandle] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def noted(delay: float, *arguments: Any) -> asyncio.TimerHandle:
            timer = call_later(delay, *arguments)
            if delay == http_connection.IDLE_SECONDS:
                timers.append(timer)
            return timer

        loop.call_later = noted  # type: ignore[assignment, method-assign]
        async with listening() as listener:
            host, _, port = listener.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            for _ in range(3):
                writer.write(b"GET /hello HTTP/1.1\r\nHost: here\r\n\r\n")
                await reader.readuntil(b"hello stranger\n")
            assert len(timers) > 3
            assert [timer.cancelled() for timer in timers] == [True] * (len(timers) - 1) + [False]
            writer.close()

    asyncio.run(run())


def test_connections_above_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.observability.http_listener.MOST_CONNECTIONS", 1)

    async def run() -> bytes:
        async with listening() as listener:
            host, _, port = listener.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /hello HTTP/1.1\r\nHost: here\r\n\r\n")
            await reader.readuntil(b"hello stranger\n")
            try:
                return await exchange(listener, b"")
            finally:
                writer.close()

    assert asyncio.run(run()) == b""


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9644", ("127.0.0.1", 9644)),
        (":9644", ("127.0.0.1", 9644)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:0", ("::1", 0)),
    ],
)
def test_http_address_without_host_is_loopback(text: str, address: tuple[str, int]) -> None:
    assert http_address(text) == address


@pytest.mark.parametrize("text", ["here", "127.0.0.1:", "127.0.0.1:70000", "http://127.0.0.1:9644"])
def test_http_address_is_rejected_when_it_is_invalid(text: str) -> None:
    with pytest.raises(ConfigError, match=r"odradek.http.listener"):
        http_address(text)


@pytest.mark.parametrize(
    ("text", "is_loopback"), [("9644", True), ("localhost:9644", True), ("[::1]:9644", True), ("10.0.0.1:9644", False)]
)
def test_http_address_is_loopback_when_only_this_machine_reaches_it(text: str, is_loopback: bool) -> None:
    """A broker warns of the others: whoever reaches them reads what the broker does."""
    address = http_address(text)
    assert address is not None
    assert address.is_loopback is is_loopback
