"""`odradek pipeline run` with a file of connectors and tables: one process, which a signal ends."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from odradek.testing.blocking import BlockingBroker
from tests.integration.waiting import until


def test_file_of_a_connector_and_a_table_runs_in_one_process(tmp_path: Path) -> None:
    """Both read the same topic. A password comes from a file of the folder of secrets."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "db.properties").write_text(f"url=sqlite:///{tmp_path}/orders.db\n")
    sink = {"connector.class": "SqlSink", "topics": "orders", "auto.create": True,
            "connection.url": f"${{file:{tmp_path}/secrets/db.properties:url}}"}  # fmt: skip
    table = {"topic": "orders", "path": str(tmp_path / "lake"), "commit.interval.ms": 0}
    path = tmp_path / "orders.yml"
    path.write_text(json.dumps({"runner": "local", "connectors": {"to-db": sink}, "tables": {"orders": table}}))

    def rows() -> list[tuple[int]]:
        try:
            return sqlite3.connect(tmp_path / "orders.db").execute("SELECT id FROM orders").fetchall()
        except sqlite3.OperationalError:
            return []

    with BlockingBroker() as broker:
        broker.topic("orders")
        broker.produce("orders", '{"id": 1}')
        line = [sys.executable, "-m", "odradek.cli.main", "pipeline", "run", "--secrets",
                str(tmp_path / "secrets"), "--bootstrap-server", broker.bootstrap_servers, str(path)]  # fmt: skip
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "odradek pipeline ready connectors=to-db tables=orders\n"
            until(lambda: rows() == [(1,)], "the row in the database")
            assert process.stdout.readline().startswith("committed table=orders rows=1 ")
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.communicate()
    assert DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().column("id").to_pylist() == [1]


def test_stopped_pipeline_with_a_failed_table_is_not_started_again(tmp_path: Path) -> None:
    """A signal to stop was followed by a restart, as the table had failed before."""
    sink = {"connector.class": "FileStreamSink", "topics": "lines", "file": str(tmp_path / "lines")}
    table = {"topic": "lines", "path": str(tmp_path / "lake"), "commit.interval.ms": 0}
    write_deltalake(tmp_path / "lake", pa.table({"other": [1]}))
    path = tmp_path / "lines.yml"
    path.write_text(json.dumps({"connectors": {"to-file": sink}, "tables": {"lines": table}}))
    with BlockingBroker() as broker:
        broker.topic("lines")
        broker.produce("lines", '{"n": 1}')
        line = [sys.executable, "-m", "odradek.cli.main", "pipeline", "run", "--restarts", "3", "--backoff", "600",
                "--bootstrap-server", broker.bootstrap_servers, str(path)]  # fmt: skip
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            assert any("table lines stops" in each for each in iter(process.stderr.readline, ""))
            process.terminate()
            _, err = process.communicate(timeout=60)
            assert process.returncode == 1
            assert "restart 1 of 3" not in err
        finally:
            process.kill()
            process.communicate()
