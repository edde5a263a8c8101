"""Tables of topics, queried with Spark SQL as docs/TABLES.md says, and with DuckDB."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import load_catalog

from odradek.cli.main import main
from odradek.testing.blocking import BlockingBroker
from tests.newcomer.pages import Page

pytestmark = pytest.mark.xdist_group("spark")


def test_tables_of_the_page_are_queried_with_spark_sql(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both formats; DuckDB finds the same in them."""
    guide = Page("docs/TABLES.md")
    specifications = re.findall(r"^```yaml\n(.*?)^```$", guide.text, re.MULTILINE | re.DOTALL)
    for name, text in zip(("tables.yml", "iceberg.yml"), specifications, strict=False):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("odradek.broker.log_output.configure_logging", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    with BlockingBroker() as broker:
        monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", broker.bootstrap_servers)
        produce = guide.commands("Try it")[0].replace("| odradek ", f"| {sys.executable} -m odradek.cli.main ")
        subprocess.run(["bash", "-c", produce], check=True, timeout=60)
        for command in (guide.commands("Try it")[2], guide.commands("Iceberg")[0]):
            assert main(shlex.split(command)[1:]) == 0
    capsys.readouterr()
    (example,) = [each for each in guide.programs() if each.section == "Spark SQL"]
    exec(example.code, {})
    assert capsys.readouterr().out == example.shown
    catalog = load_catalog("default", uri="sqlite:///catalog.db", warehouse="lake/iceberg")
    orders = catalog.load_table("sales.orders").scan().to_arrow()
    catalog.close()
    spark.createDataFrame(orders).createOrReplaceTempView("iceberg_orders")
    query = "SELECT item, price, __offset FROM {} WHERE price > 1 ORDER BY item"
    expected = [("milk", 1.5, 1), ("tea", 4.0, 0)]
    assert [tuple(each) for each in spark.sql(query.format("iceberg_orders")).collect()] == expected
    found = duckdb.sql(query.format("orders"))
    assert found is not None
    assert found.fetchall() == expected
