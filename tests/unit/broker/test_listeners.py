"""What a broker with several listeners tells its clients, and how it names itself."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from odradek.broker.config import BrokerConfig
from odradek.broker.lifecycle import Broker
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


def test_clients_of_each_listener_are_told_its_own_address(tmp_path: Path) -> None:
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
            second = broker._server._listeners[1].port
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
