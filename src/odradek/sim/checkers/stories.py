"""What a violation is about, and nothing else: of all that happened in a run, the events of those whom it names.

The violation's own words are the filter: partitions, offsets, records, producers, transactions, groups and clients that
it names, the other records of the transactions among them, and what happened to brokers and networks meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from odradek.records.topic_partition import PartitionKey
from odradek.sim.checkers.history import History, Seen, Send, Transaction

Event = tuple[float, str]

LINES: Final = 40
"""Of a story; more of them are left out in its middle."""
_AROUND_S: Final = 1.0

_RECORD: Final = re.compile(r"[\w-]+\.\d+/\d+:\d+")
_INSTANCE: Final = re.compile(r"[\w-]+\.\d+/\d+")
_TRANSACTION: Final = re.compile(r"#(\d+) \(")
_PARTITION: Final = re.compile(r"(?<![\w.-])([a-z_]+)-(\d+)(?![\w./])")
_CLIENT: Final = re.compile(r"(?<![\w.-])([a-z]+-\d+)(?=[ .,)]|$)")
_NUMBER: Final = re.compile(r"(?<![\w.:/#-])(\d+)(?![\w.:/])")
_TIME: Final = re.compile(r"\b(?:at|before|after|from|to) (\d+\.\d{3})\b")
"""When an event was seen; the time at which a record was sent is written in another way."""
_BROKERS: Final = re.compile(r"b\d+(\.\d+)? (serves|stops|is killed|loses power|does not start)|all is healed")
_FAULTS: Final = re.compile(r"fault: ")


class Nouns:
    """What the story of a violation names."""

    __slots__ = ("_clients", "_names", "_records", "groups", "offsets", "partitions", "transactions", "words")

    def __init__(self, story: str, history: History) -> None:
        self._records = set(_RECORD.findall(story))
        self.transactions = {int(number) for number in _TRANSACTION.findall(story)}
        known = {send.partition for send in history.sends.values()} | set(history.final)
        self.partitions = {(topic, int(index)) for topic, index in _PARTITION.findall(story)} & known
        self.offsets = {int(number) for number in _NUMBER.findall(story)}
        self.words = set(re.findall(r"[\w-]+", story))
        groups = {each.group for each in history.commits} | {each.group for each in history.owned}
        self.groups = (groups | {each.group for each in history.held}) & self.words
        self._names = self._records | set(_INSTANCE.findall(story))
        self._clients = tuple(f"{name}:" for name in _CLIENT.findall(story))

    def record(self, send: Send) -> bool:
        """Whether the violation names the record of this send."""
        if _name(send) in self._records:
            return True
        if self._records or self.transactions:
            return send.transaction is not None and send.transaction.number in self.transactions
        return not self.groups and send.partition in self.partitions and send.offset in self.offsets

    def note(self, text: str) -> bool:
        """Whether a line of the trace names one of the hosts or clients."""
        if self._records or self.transactions:
            return any(f"{name}:" in text for name in self._records)
        return text.startswith(self._clients) or any(name in text for name in self._names)


def story_of(violation: str, history: History, notes: Iterable[str]) -> list[str]:
    """The lines of the shortest story that belongs to what the violation says. `notes` is the trace: time and text."""
    nouns = Nouns(violation, history)
    sends = [send for send in history.sends.values() if nouns.record(send)]
    values = {send.value for send in sends if _name(send) in violation} or {send.value for send in sends}
    transactions = {send.transaction for send in sends if send.transaction is not None}
    transactions |= {each for each in history.transactions if each.number in nouns.transactions}
    events = [
        *(event for send in sends for event in _sent(send)),
        *(event for transaction in transactions for event in _ended(transaction)),
        *_read(history, values),
        *_looked(history, nouns),
    ]
    machines: list[Event] = []
    for note in notes:
        at, _, text = note.lstrip().partition(" ")
        if _FAULTS.match(text) or _BROKERS.match(text):
            machines.append((float(at), text))
        elif nouns.note(text):
            events.append((float(at), text))
    at_the_end = [*_read_at_the_end(history, values)]
    if not events and not at_the_end:
        return []
    times = [float(at) for at in _TIME.findall(violation)]
    until = max(times) + _AROUND_S if times else float("inf")
    events = [event for event in events if event[0] <= until]
    since, last = (min(events)[0], max(events)[0]) if events else (0.0, 0.0)
    # What happens to networks and clients after the last of these events has no effect on it; faults of files may.
    events += [
        (at, text)
        for at, text in machines
        if since - _AROUND_S <= at <= min(last + _AROUND_S, until) or (at <= until and _BROKERS.match(text))
    ]
    if not times:
        events += at_the_end
    return _shortened([f"{at:10.3f} {text}" for at, text in sorted(set(events))])


def _name(send: Send) -> str:
    return send.value.decode(errors="replace").rpartition(":")[0]


def _seen(seen: Seen) -> str:
    return f"{seen.value.decode(errors='replace').rpartition(':')[0]} at {_at(seen.partition)} {seen.offset}"


def _at(key: PartitionKey) -> str:
    return f"{key[0]}-{key[1]}"


def _sent(send: Send) -> Iterator[Event]:
    inside = f" in transaction #{send.transaction.number}" if send.transaction is not None else ""
    yield send.sent_at, f"{_name(send)} is sent to {_at(send.partition)}{inside}"
    if send.acked_at is not None:
        yield send.acked_at, f"{_name(send)} is acknowledged at {_at(send.partition)} {send.offset}"
    elif send.outcome_at is not None:
        yield send.outcome_at, f"{_name(send)} is given up: {send.error}"


def _ended(transaction: Transaction) -> Iterator[Event]:
    name = f"transaction {transaction.producer}#{transaction.number}"
    yield transaction.began_at, f"{name} begins"
    if transaction.commit_asked_at is not None:
        yield transaction.commit_asked_at, f"{name}: commit is asked for"
    if transaction.ended_at is not None:
        yield transaction.ended_at, f"{name} is {transaction.state}"


def _read(history: History, values: set[bytes]) -> Iterator[Event]:
    """Each client's first reading of each of the records."""
    read: set[tuple[str, bytes, int]] = set()
    for reader in history.readers:
        client = reader.name.rpartition(".")[0]
        for at, seen in reader.seen:
            if seen.value in values and (client, seen.value, seen.offset) not in read:
                read.add((client, seen.value, seen.offset))
                yield at, f"{reader.name} ({reader.isolation}) reads {_seen(seen)}"


def _read_at_the_end(history: History, values: set[bytes]) -> Iterator[Event]:
    for log in history.final.values():
        for kind, lines in (("", log.everything), (" committed", log.committed)):
            for seen in lines:
                if seen.value in values:
                    yield log.read_at, f"the final{kind} reader reads {_seen(seen)}"


def _looked(history: History, nouns: Nouns) -> Iterator[Event]:
    """Offsets that clients received (each for the first and for the last time), commits and assignments."""
    reports: dict[tuple[str, PartitionKey, int], list[Event]] = {}
    for look in history.looks:
        what = look.what.removeprefix("committed:")
        if what in nouns.words and look.partition in nouns.partitions and look.offset in nouns.offsets:
            text = f"{look.what} of {_at(look.partition)} is returned as {look.offset} (asked at {look.asked_at:.3f})"
            reports.setdefault((look.what, look.partition, look.offset), []).append((look.done_at, text))
    for events in reports.values():
        yield from (events[0], events[-1])
    for deletion in history.deletions:
        if deletion.partition in nouns.partitions and "earliest" in nouns.words and deletion.offset in nouns.offsets:
            text = f"records of {_at(deletion.partition)} below {deletion.offset}"
            yield deletion.asked_at, f"{text} are to be deleted"
            if deletion.kept_since is not None:
                yield deletion.kept_since, f"{text} are deleted"
    for commit in history.commits:
        if commit.group in nouns.groups and commit.partition in nouns.partitions and commit.offset in nouns.offsets:
            text = f"{commit.group}: {commit.member} commits {commit.offset} of {_at(commit.partition)}: {commit.state}"
            yield commit.done_at, text
    for owned in history.owned:
        if owned.group in nouns.groups and owned.generation in nouns.offsets and owned.partitions & nouns.partitions:
            yield owned.at, f"{owned.group}: {owned.member} has {sorted(owned.partitions)} in {owned.generation}"
    for held in history.held:
        if held.group in nouns.groups and held.epoch in nouns.offsets and held.member in nouns.words:
            yield held.since, f"{held.group}: {held.member} holds partition {held.partition[1]} until {held.until:.3f}"


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= LINES:
        return lines
    half = LINES // 2
    return [*lines[:half], f"{'...':>10} {len(lines) - 2 * half} more", *lines[-half:]]
