"""An outbox: a change of the database and the event that reports it happen both or neither.

The application writes the event into a table, in the transaction of the change. A relay sends the rows in their order
and deletes them once they are acknowledged. A relay that dies in between sends rows again: readers skip events whose
ids they have seen. Run one relay at a time. SQLite stands for any database with transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

from odradek.client import Producer
from odradek.testing import Simulation, eventually, search

TABLES = """
CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER CHECK (balance >= 0));
CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT, key TEXT, value TEXT);
INSERT INTO accounts VALUES ('anna', 10), ('ben', 0);
"""


def transfer(connection: sqlite3.Connection, giver: str, taker: str, amount: int) -> None:
    """Move money and report it. Raises sqlite3.IntegrityError, without an event, if the giver has too little."""
    add = "UPDATE accounts SET balance = balance + ? WHERE name = ?"
    event = "INSERT INTO outbox (topic, key, value) VALUES ('transfers', ?, ?)"
    with connection:
        connection.execute(event, (giver, f"{giver} gives {taker} {amount}"))
        connection.execute(add, (amount, taker))
        connection.execute(add, (-amount, giver))


async def relay(servers: str, connection: sqlite3.Connection, pause_s: float = 0.2) -> None:
    """Send the rows of the outbox, until cancelled."""
    async with Producer(bootstrap_servers=servers) as producer:
        while True:
            rows = connection.execute("SELECT id, topic, key, value FROM outbox ORDER BY id LIMIT 500").fetchall()
            if not rows:
                await asyncio.sleep(pause_s)
                continue
            for number, topic, key, value in rows:
                await producer.send(topic, value.encode(), key.encode(), {"event-id": str(number).encode()})
            await producer.flush()  # raises if a record was lost: nothing is deleted then
            with connection:
                connection.execute("DELETE FROM outbox WHERE id <= ?", (rows[-1][0],))


async def scenario(sim: Simulation) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        await sim.topic("transfers")
        sim.program("relay", lambda: relay(sim.bootstrap_servers, connection))

        async def trade() -> int:
            rejected = 0
            for number in range(20):
                giver, taker = ("anna", "ben") if number % 3 else ("ben", "anna")
                try:
                    transfer(connection, giver, taker, 1 + number % 2)
                except sqlite3.IntegrityError:
                    rejected += 1
                await asyncio.sleep(1)
            return rejected

        trading = asyncio.create_task(trade())
        await sim.faults(20, ["kill program", "kill", "reset", "cut"])
        rejected = await trading
        await eventually(lambda: connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,), 120)
        # What a reader does: skip the events it has seen.
        events = {dict(record.headers)["event-id"]: record.value for record in await sim.records("transfers")}
        assert rejected > 0
        assert len(events) == 20 - rejected
        balances = {"anna": 10, "ben": 0}
        for value in events.values():
            giver, _, taker, amount = (value or b"").decode().split()
            balances[giver] -= int(amount)
            balances[taker] += int(amount)
            assert balances[giver] >= 0, "the events are out of order"
        assert balances == dict(connection.execute("SELECT name, balance FROM accounts"))


def test_events_agree_with_the_database() -> None:
    search(scenario, range(6))
