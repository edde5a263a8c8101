"""G1c (Adya): transactions that have read from each other in a circle.

A committed transaction depends on another committed one if it read a record that the other wrote. What is read is
committed before it is read, so these dependencies follow time, and a circle of them shows that a client read what was
not committed yet. Circles of writes alone (G0) are no violation: transactions that write to the same partitions at the
same time may interleave in each of them as they like. Kafka promises that each is seen as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.sim.checkers.history import COMMITTED, History, Seen, Transaction, Violation

Dependencies = dict[Transaction, dict[Transaction, Seen]]
"""Of each transaction those that it read from, with a record that shows it."""


def check_cycles(history: History, promises: object) -> None:
    """Raises Violation with the shortest circle."""
    read_from = _dependencies(history)
    _drop_what_leads_nowhere(read_from)
    circles = [circle for start in read_from if (circle := _circle(start, read_from))]
    if not circles:
        return
    circle = min(circles, key=len)
    steps = (f"{who} read {read_from[who][source]} of {source}" for who, source in _steps(circle))
    raise Violation("circular information flow", "; ".join(steps))


def _dependencies(history: History) -> Dependencies:
    found: Dependencies = {}
    for transaction in history.transactions:
        if transaction.state != COMMITTED:
            continue
        for seen in transaction.read:
            send = history.sends.get(seen.value)
            source = None if send is None else send.transaction
            if source is not None and source is not transaction and source.state == COMMITTED:
                found.setdefault(transaction, {}).setdefault(source, seen)
    return found


def _drop_what_leads_nowhere(read_from: Dependencies) -> None:
    """Remove transactions that read from no remaining one, repeatedly: the remaining ones lead into a cycle."""
    while True:
        ends = [who for who, sources in read_from.items() if not any(source in read_from for source in sources)]
        if not ends:
            return
        for who in ends:
            del read_from[who]


def _circle(start: Transaction, read_from: Dependencies) -> list[Transaction]:
    """The shortest way from the transaction back to itself; empty if there is no such way."""
    came_from: dict[Transaction, Transaction] = {}
    reached = [start]
    for who in reached:
        for source in read_from.get(who, ()):
            if source is start:
                way = [who]
                while way[-1] is not start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if source not in came_from:
                came_from[source] = who
                reached.append(source)
    return []


def _steps(circle: list[Transaction]) -> Iterator[tuple[Transaction, Transaction]]:
    for index, who in enumerate(circle):
        yield who, circle[(index + 1) % len(circle)]
