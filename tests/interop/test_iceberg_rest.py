"""Iceberg tables in a catalog behind Apache Iceberg's REST server: the tables' runner and a connector."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from bench.peers import iceberg_rest
from bench.servers import free_port
from odradek.cli.main import main
from odradek.testing.blocking import BlockingBroker
from tests.integration.waiting import until
from tests.interop.connect_workers import odradek

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@contextmanager
def served(port: int, folder: Path) -> Iterator[dict[str, str]]:
    """The settings of the catalog while its server runs, which is killed at the end."""
    try:
        line = iceberg_rest.command()
    except LookupError as error:
        pytest.skip(str(error))
    uri = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{uri}/v1/config", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    with (folder / "catalog.log").open("ab") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log, env=iceberg_rest.settings(port, folder))
    try:
        until(answers, "the catalog serves")
        yield {"catalog.type": "rest", "catalog.uri": uri}
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def ids(catalog: dict[str, str], table: str) -> list[Any]:
    given = {name.removeprefix("catalog."): text for name, text in catalog.items()}
    try:
        loaded = load_catalog("default", **given).load_table(table)
    except Exception as error:  # the client's errors for "no such table" have no common class
        if "NoSuch" in type(error).__name__:
            return []
        raise
    return sorted(loaded.scan().to_arrow().column("id").to_pylist())


def test_runner_and_sink_write_tables_of_a_rest_catalog(tmp_path: Path) -> None:
    """The catalog is killed between two runs, and while a connector has rows to commit."""
    port = free_port()
    with BlockingBroker() as broker:
        broker.topic("orders", configs={"odradek.table.format": "iceberg"})
        for number in range(2):
            broker.produce("orders", json.dumps({"id": number}))
            with served(port, tmp_path) as catalog:
                words = [part for each in catalog.items() for part in ("--set", "=".join(each))]
                servers = ["--bootstrap-server", broker.bootstrap_servers]
                assert main(["tables", "run", "--warehouse", "sales", "--once", *words, *servers]) == 0
                assert ids(catalog, "sales.orders") == list(range(number + 1))
        sink = {"connector.class": "IcebergSink", "topics": "orders", "table.name": "sales.copies", **catalog,
                "errors.retry.delay.max.ms": "200"}  # fmt: skip
        with odradek(tmp_path, broker.bootstrap_servers, "copies") as (rest, _):
            with served(port, tmp_path):
                rest.call("PUT", "connectors/copies/config", sink)
                until(lambda: ids(catalog, "sales.copies") == [0, 1], "the first rows")
            broker.produce("orders", json.dumps({"id": 2}))
            with served(port, tmp_path):
                until(lambda: ids(catalog, "sales.copies") == [0, 1, 2], "the row of the outage")
