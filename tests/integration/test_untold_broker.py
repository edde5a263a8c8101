"""A broker that starts while it cannot get metadata from the controller: clients wait, as before its start."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.peers.broker import BrokerProcess
from bench.peers.zookeeper import free_ports
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.metadata import MetadataRequest


@pytest.mark.timeout(120)
def test_client_listeners_are_closed_until_the_broker_knows_the_cluster(
    tmp_path: Path, connect: Callable[[str], Any]
) -> None:
    ports = free_ports(4)
    controller, newcomer = (
        BrokerProcess(
            tmp_path / str(number),
            {
                "node.id": number,
                "listeners": f"PLAINTEXT://127.0.0.1:{own[0]},BROKERS://127.0.0.1:{own[1]}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
                "inter.broker.listener.name": "BROKERS",
                "odradek.metadata.store": tmp_path / "metadata.sqlite",
                "broker.session.timeout.ms": 60_000,
            },
            own[0],
        )
        for number, own in ((1, ports[:2]), (2, ports[2:]))
    )
    versions = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    try:
        controller.start()
        os.kill(controller.pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(newcomer.start)
            try:
                while (client := _connected(connect, newcomer.bootstrap)) is None:
                    assert not starting.done(), starting.exception()
                asked = client.send(versions, 3)
                while (broker := _connected(connect, f"127.0.0.1:{ports[3]}")) is None:
                    assert not starting.done(), starting.exception()
                assert broker.call(versions, 3).error_code == 0
                assert not select.select([client.socket], [], [], 0)[0]
            finally:
                os.kill(controller.pid, signal.SIGCONT)
            starting.result(60)
        assert client.receive(asked).error_code == 0
    finally:
        for each in (controller, newcomer):
            each.kill()


@pytest.mark.timeout(120)
def test_metadata_waits_until_the_broker_knows_the_cluster(tmp_path: Path, connect: Callable[[str], Any]) -> None:
    brokers = [
        BrokerProcess(
            tmp_path / str(number),
            {
                "node.id": number,
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "odradek.metadata.store": tmp_path / "metadata.sqlite",
                "broker.session.timeout.ms": 60_000,
            },
            port,
        )
        for number, port in enumerate(free_ports(2), start=1)
    ]
    controller, newcomer = brokers
    try:
        controller.start()
        os.kill(controller.pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(newcomer.start)
            try:
                while (client := _connected(connect, newcomer.bootstrap)) is None:
                    assert not starting.done(), starting.exception()
                asked = client.send(MetadataRequest(topics=None), 12)
                # It serves, and had the other request first.
                versions = ApiVersionsRequest(client_software_name="t", client_software_version="1")
                assert connect(newcomer.bootstrap).call(versions, 3).error_code == 0
                assert not select.select([client.socket], [], [], 0)[0]
                assert not starting.done()
            finally:
                os.kill(controller.pid, signal.SIGCONT)
            starting.result(60)
        assert {broker.port for broker in client.receive(asked).brokers} == {broker.port for broker in brokers}
    finally:
        for broker in brokers:
            broker.kill()


def _connected(connect: Callable[[str], Any], bootstrap: str) -> Any:
    try:
        return connect(bootstrap)
    except ConnectionRefusedError:
        return None
