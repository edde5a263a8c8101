"""Addresses that a broker with several listeners returns to clients, and the one that it registers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.ports import Ports
from odradek.ports.network import Stream, TcpListener, TcpNetwork
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse


async def described_at(bootstrap: str) -> MetadataResponse:
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    frame = bytearray(4)
    encode_request_header(frame, 3, 12, 1, "test")
    MetadataRequest(None).encode(frame, 12)
    frame[0:4] = (len(frame) - 4).to_bytes(4, "big")
    writer.write(frame)
    size = int.from_bytes(await reader.readexactly(4), "big")
    answer = memoryview(await reader.readexactly(size))
    writer.close()
    _, position = parse_response_header(answer, 3, 12)
    return MetadataResponse.decode(answer, position, 12)[0]


def serve(data_dir: Path, **settings: str) -> Broker:
    return Broker(BrokerConfig({"log.dirs": str(data_dir)} | {n.replace("_", "."): v for n, v in settings.items()}))


def test_clients_of_each_listener_receive_its_own_address(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, MetadataResponse, MetadataResponse]:
        broker = serve(
            tmp_path,
            listeners="INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            inter_broker_listener_name="INSIDE",
            advertised_listeners="OUTSIDE://broker.example:19092,INSIDE://127.0.0.1:0",
        )
        await broker.start()
        try:
            second = broker.listeners[1].listener.port
            return second, await described_at(broker.bootstrap), await described_at(f"127.0.0.1:{second}")
        finally:
            await broker.stop()

    second, inside, outside = asyncio.run(scenario())
    assert [(node.host, node.port) for node in outside.brokers] == [("broker.example", 19092)]
    (node,) = inside.brokers
    assert node.host == "127.0.0.1"
    assert node.port not in (0, second)


def test_an_ipv6_address_is_written_in_brackets(tmp_path: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")

    async def scenario() -> tuple[str, MetadataResponse]:
        broker = serve(tmp_path, listeners="PLAINTEXT://[::1]:0")
        await broker.start()
        try:
            return broker.bootstrap, await described_at(broker.bootstrap)
        finally:
            await broker.stop()

    bootstrap, answer = asyncio.run(scenario())
    (node,) = answer.brokers
    assert node.host == "::1"
    assert bootstrap == f"[::1]:{node.port}"


class AllInterfaces(TcpNetwork):
    """Reports a socket as bound to all interfaces, which is bound to the loopback address."""

    __slots__ = ()

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> TcpListener:
        assert host == ""
        listener = super().listen("127.0.0.1", port, accept)
        listener.host = "0.0.0.0"
        return listener

    def own_host(self) -> str:
        return "kafka1.example.org"


def test_broker_on_all_interfaces_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> Broker:
        config = BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://:0"})
        broker = Broker(config, Ports(network=AllInterfaces()))
        await broker.start()
        await broker.stop()
        return broker

    with caplog.at_level(logging.INFO, "odradek.broker"):
        broker = asyncio.run(scenario())
    host, _, port = broker.bootstrap.rpartition(":")
    assert (host, broker.bound) == ("kafka1.example.org", f"0.0.0.0:{port}")
    logged = [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "odradek.broker"]
    assert any(text.endswith(f" serves on 0.0.0.0:{port}") for _, text in logged)
    assert any("without authentication" in text for level, text in logged if level == logging.WARNING)
    assert any(f"receive the address kafka1.example.org:{port};" in text for _, text in logged)
