"""Golden transcripts of a transactional id's history: `tests/transcripts/transactions/*.txt`.

A line with `>` is what happens; the indented lines below it are all that came of it: answers, records, markers that are
to be written. `UPDATE_TRANSCRIPTS=1` writes what came of it now; read the difference before you commit it. Commands:

    > NAME begins [timeout=MS]             InitProducerId of a new instance
    > NAME recovers                        InitProducerId with the id and epoch that it has
    > NAME adds PARTITION ... [v2]         v2 is transaction.version 2, here and below
    > NAME verifies PARTITION ...
    > NAME commits | aborts [v2] [again]   again is with the id and epoch before the last answer
    > markers are written | MS ms pass | the coordinator restarts | the epoch is EPOCH | it is described
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.transactions.events import AddPartitions, Markers, ProducerResult, TransactionDecision
from odradek.transactions.records import NO_EPOCH, TransactionRecord, decode_record
from odradek.wire.errors import ErrorCode
from tests.unit.transactions.conftest import Shard

DIRECTORY = Path(__file__).resolve().parents[2] / "transcripts" / "transactions"
NOBODY = (-1, -1)


class Player:
    """Plays one transcript; the transactional id is `tx`, the topic `topic`."""

    def __init__(self) -> None:
        self.shard = Shard()
        self.producers: dict[str, list[tuple[int, int]]] = {}
        self.seen_records = 0
        self.seen_markers: set[Markers] = set()

    def play(self, text: str) -> str:
        out: list[str] = []
        for line in text.splitlines():
            if line.startswith(">"):
                out.append(line)
                self.shown: list[str] = []
                self.act(line[1:].split())
                self.news()
                out += [f"    {shown}" for shown in self.shown]
            elif not line.startswith("    "):
                out.append(line)
        return "\n".join(out) + "\n"

    def act(self, words: list[str]) -> None:
        match words:
            case ["markers", "are", "written"]:
                self.shard.write_markers()
            case [ms, "ms", "pass"]:
                self.shard.now_ms += int(ms)
                self.shard.expire()
            case ["the", "coordinator", "restarts"]:
                self.seen_markers.clear()
                self.shard.restart()
            case ["the", "epoch", "is", epoch]:
                found = self.shard.coordinator.transactions["tx"]._replace(
                    producer_epoch=int(epoch), last_producer_epoch=NO_EPOCH
                )
                self.shard.obey(TransactionDecision((TransactionRecord("tx", found),)))
                for known in self.producers.values():
                    known.append((found.producer_id, found.producer_epoch))
            case ["it", "is", "described"]:
                self.describe()
            case [name, "begins", *options]:
                timeout_ms = int(options[0].removeprefix("timeout=")) if options else 60_000
                self.answered(name, self.shard.init(timeout_ms=timeout_ms))
            case [name, "recovers"]:
                self.answered(name, self.shard.init(producer=self.producer(name)))
            case [name, "adds", *partitions]:
                version = 2 if "v2" in partitions else 0
                wanted = [int(partition) for partition in partitions if partition != "v2"]
                self.shown.append(f"{name}: {self.shard.add(self.producer(name), *wanted, version=version).name}")
            case [name, "verifies", *partitions]:
                self.verify(name, [int(partition) for partition in partitions])
            case [name, "commits" | "aborts" as how, *options]:
                producer = self.producer(name, 1 if "again" in options else 0)
                version = 2 if "v2" in options else 0
                self.answered(name, self.shard.end(producer, commit=how == "commits", version=version))
            case _:
                raise ValueError(f"what is {words}?")

    def producer(self, name: str, age: int = 0) -> tuple[int, int]:
        known = self.producers.get(name, [NOBODY])
        return known[max(-1 - age, -len(known))]

    def answered(self, name: str, result: ProducerResult) -> None:
        shown = f"{name}: {result.error.name}"
        if result.producer_id >= 0:
            shown += f" producer={result.producer_id} epoch={result.producer_epoch}"
            known = self.producers.setdefault(name, [])
            if result.error is ErrorCode.NONE and known[-1:] != [(result.producer_id, result.producer_epoch)]:
                known.append((result.producer_id, result.producer_epoch))
        self.shown.append(shown)

    def verify(self, name: str, partitions: list[int]) -> None:
        wanted = AddPartitions("tx", *self.producer(name), frozenset(("topic", index) for index in partitions))
        for (_, index), code in sorted(self.shard.coordinator.verify_partitions(wanted).items()):
            self.shown.append(f"{index}: {code.name}")

    def describe(self) -> None:
        found = self.shard.coordinator.describe("tx")
        self.shown.append(f"{found.error.name} {found.state} partitions={_listed(found.partitions)}")

    def news(self) -> None:
        for key, value in self.shard.log[self.seen_records :]:
            record = decode_record(key, value)
            assert record is not None
            self.shown.append(f"record: {_shown(record)}")
        self.seen_records = len(self.shard.log)
        for markers in self.shard.markers:
            if markers not in self.seen_markers:
                self.seen_markers.add(markers)
                end = "commit" if markers.commit else "abort"
                self.shown.append(
                    f"to write: {end} producer={markers.producer_id} epoch={markers.producer_epoch} "
                    f"in {_listed(markers.partitions)}"
                )
        self.seen_markers.intersection_update(self.shard.markers)


def _listed(partitions: frozenset[tuple[str, int]]) -> str:
    return ",".join(str(index) for _, index in sorted(partitions)) or "-"


def _shown(record: TransactionRecord) -> str:
    value = record.value
    if value is None:
        return "tombstone"
    shown = f"{value.state.title} producer={value.producer_id} epoch={value.producer_epoch}"
    if value.previous_producer_id != value.producer_id:
        shown += f" previous={value.previous_producer_id}"
    if value.next_producer_id >= 0:
        shown += f" next={value.next_producer_id}"
    return f"{shown} partitions={_listed(value.partitions)} version={value.client_version}"


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    played = Player().play(text)
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(played)
    assert played == text
