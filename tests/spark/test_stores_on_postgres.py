"""The ledger of batches on a real PostgreSQL, without Spark: who comes second, who dies in the middle."""

import contextlib
import json
import threading
from pathlib import Path

import psycopg
import pytest

from odradek.spark.stores.databases import create_statement, insert_statement
from odradek.spark.stores.patience import Patience
from odradek.spark.stores.sql import Ledger, read_rows
from tests.spark.postgres import PostgresServer

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def ledger(postgres: PostgresServer, tmp_path: Path) -> Ledger:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "a query"}))
    for batch_id in range(3):
        (tmp_path / "offsets" / str(batch_id)).write_text('v1\n{}\n{"in": {"0": 7}}')
    made = Ledger(postgres.database, tmp_path.name, str(tmp_path))
    with contextlib.closing(postgres.database.connect()) as connection:
        made.create(connection)
    return made


def test_who_comes_second_with_a_batch_waits_and_then_skips(ledger: Ledger) -> None:
    outcome: list[bool] = []
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

    def second() -> None:
        with contextlib.closing(ledger.database.connect()) as connection, ledger.batch(connection, 0) as new:
            outcome.append(new)

    thread = threading.Thread(target=second)
    with contextlib.closing(ledger.database.connect()) as connection, ledger.batch(connection, 0) as new:
        assert new
        thread.start()
        while not connection.execute(waiting).fetchone()[0]:
            thread.join(0.01)
        assert outcome == []
    thread.join(60)
    assert outcome == [False]


def test_who_dies_in_the_middle_leaves_nothing(ledger: Ledger) -> None:
    database = ledger.database
    table = f"t-{ledger.name}"
    columns = [("a", "int"), ("b", "binary"), ("at", "timestamp")]
    insert = insert_statement(database, table, ["a", "b"], ("a",))
    with contextlib.closing(database.connect()) as connection:
        connection.execute(create_statement(database, table, columns, ("a",)))

    def die() -> None:
        with contextlib.closing(database.connect()) as dead, ledger.batch(dead, 0):
            dead.execute(insert, (1, b"x"))
            with contextlib.closing(database.connect()) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (dead.info.backend_pid,))
            dead.execute(insert, (2, b"y"))

    with pytest.raises(psycopg.OperationalError) as lost:
        die()
    assert database.is_away(lost.value)
    assert read_rows(database, table, ["a"]) == []
    with contextlib.closing(database.connect()) as connection, ledger.batch(connection, 0) as new:
        assert new
        connection.execute(insert, (1, b"z"))
    assert read_rows(database, table, ["a", "b"]) == [(1, b"z")]


def test_a_server_that_restarts_is_waited_for(ledger: Ledger, postgres: PostgresServer) -> None:
    postgres.crash()
    pauses = 0

    def sleep(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 2:
            postgres.start()

    def work() -> str:
        return ledger.starting_offsets("nothing yet")

    found = Patience(first_s=0).run(work, away=ledger.database.is_away, sleep=sleep)
    assert (found, pauses >= 2) == ("nothing yet", True)
