"""Golden transcripts of KIP-848 groups: `tests/transcripts/consumer_groups/*.txt`.

A line with `>` is what happens; the indented lines below it are all that came of it: answers and records.
`UPDATE_TRANSCRIPTS=1` writes what came of it now; read the difference before you commit it. Commands:

    > topic NAME has N partitions | topic NAME is deleted | MS ms pass | the coordinator restarts
    > MEMBER joins TOPIC... [instance=X] [regex=R] [assignor=A]
    > MEMBER reports | MEMBER reports nothing | MEMBER leaves | MEMBER leaves for a while
    > MEMBER subscribes TOPIC... | MEMBER commits TOPIC PARTITION OFFSET
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from odradek.groups.consumer.records import (
    CurrentAssignmentRecord,
    GroupEpochRecord,
    OldMetadataRecord,
    RegexRecord,
    SubscriptionRecord,
    TargetEpochRecord,
    TargetRecord,
)
from odradek.groups.offsets.records import OffsetRecord
from tests.unit.groups.consumer_member import ConsumerMember
from tests.unit.groups.virtual_shard import VirtualShard

DIRECTORY = Path(__file__).resolve().parents[2] / "transcripts" / "consumer_groups"


def parts(found: Any) -> str:
    """topic:0,1 ..."""
    topics = {topic_id.rstrip(b"#").decode(): sorted(partitions) for topic_id, partitions in found.items()}
    return " ".join(f"{name}:{','.join(map(str, topics[name]))}" for name in sorted(topics)) or "-"


def shown(record: Any) -> str:
    value = getattr(record, "value", None)
    who = getattr(record, "member_id", "")
    if isinstance(record, OffsetRecord):
        return f"offset {record.topic}-{record.partition} {'gone' if value is None else value.offset}"
    if isinstance(record, OldMetadataRecord):
        return "old metadata gone"
    if isinstance(record, RegexRecord):
        return f"regex {record.regex} {'gone' if value is None else ','.join(sorted(value.topics)) or '-'}"
    if isinstance(record, GroupEpochRecord):
        return f"group epoch {'gone' if value is None else value.epoch}"
    if isinstance(record, TargetEpochRecord):
        return f"target epoch {'gone' if value is None else value.epoch}"
    if isinstance(record, TargetRecord):
        return f"target of {who}: {'gone' if value is None else parts(value)}"
    if isinstance(record, SubscriptionRecord):
        return f"member {who}: {'gone' if value is None else ','.join(value.topics) or value.regex}"
    assert isinstance(record, CurrentAssignmentRecord)
    if value is None:
        return f"assignment of {who}: gone"
    return (
        f"assignment of {who}: epoch {value.previous_epoch}->{value.epoch} {value.state.name} "
        f"has {parts(value.assigned)} gives back {parts(value.revoking)}"
    )


class Player:
    def __init__(self) -> None:
        self.shard = VirtualShard()
        self.members: dict[str, ConsumerMember] = {}
        self.seen = 0

    def play(self, text: str) -> str:
        out: list[str] = []
        for line in text.splitlines():
            if line.startswith(">"):
                out.append(line)
                out += [f"    {found}" for found in self.act(line[1:].split()) + self.news()]
            elif not line.startswith("    "):
                out.append(line)
        return "\n".join(out) + "\n"

    def act(self, words: list[str]) -> list[str]:
        match words:
            case ["topic", name, "has", count, "partitions"]:
                self.shard.topic(name, int(count))
            case ["topic", name, "is", "deleted"]:
                self.shard.delete_topic(name)
            case [ms, "ms", "pass"]:
                self.shard.sleep(int(ms))
            case ["the", "coordinator", "restarts"]:
                self.shard.restart()
            case [name, "joins", *wanted]:
                fields = dict(word.split("=") for word in wanted if "=" in word)
                topics = [word for word in wanted if "=" not in word]
                self.members[name] = ConsumerMember(self.shard, name, *topics, **fields).join()
                return self.answer(name)
            case [name, "reports"]:
                self.members[name].beat()
                return self.answer(name)
            case [name, "reports", "nothing"]:
                self.members[name].beat(owned=None)
                return self.answer(name)
            case [name, "subscribes", *topics]:
                self.members[name].subscribe(*topics)
                return self.answer(name)
            case [name, "leaves", *for_a_while]:
                self.members[name].leave(-2 if for_a_while else -1)
                return self.answer(name)
            case [name, "commits", topic, partition, offset]:
                found = self.shard.commit("g", name, self.members[name].epoch, (topic, int(partition), int(offset)))
                return [f"{name}: {found[0].name if isinstance(found, list) else found.name}"]
            case _:
                raise ValueError(f"what is {words}?")
        return []

    def answer(self, name: str) -> list[str]:
        member = self.members[name]
        if member.error is not None:
            return [f"{name}: {member.error.name}"]
        return [f"{name}: epoch {member.epoch}, owns {parts(member.owned)}"]

    def news(self) -> list[str]:
        records = self.shard.records()
        found = [f"record: {shown(record)}" for record in records[self.seen :]]
        self.seen = len(records)
        if "g" in self.shard.coordinator.consumer.by_id:
            found.append(f"the group is {self.shard.coordinator.describe_consumer_group('g').state}")
        return found


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    played = Player().play(text)
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(played)
    assert played == text


def test_there_are_transcripts() -> None:
    assert len(list(DIRECTORY.glob("*.txt"))) >= 3
