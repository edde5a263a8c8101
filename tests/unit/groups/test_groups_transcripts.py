"""Golden transcripts of whole group histories: `tests/transcripts/groups/*.txt`.

A line with `>` is what happens; the indented lines below it are all that came of it: answers, records, changes of
state. `UPDATE_TRANSCRIPTS=1` writes what came of it now; read the difference before you commit it. Member ids are
numbered in the order of their appearance. Commands:

    > NAME joins [instance=X] [session=MS] [rebalance=MS] [protocols=a,b] [type=T] [version=N] [forgetful]
    > NAME syncs [OTHER=assignment ...]        the leader says what everybody gets
    > NAME heartbeats | leaves | commits TOPIC PARTITION OFFSET
    > outsider commits TOPIC PARTITION OFFSET
    > MS ms pass | the coordinator restarts | appends fail with CODE | appends succeed | the group is described
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from odradek.groups.classic.records import ClassicGroupRecord
from odradek.groups.events import JoinResult, LeavingMember, SyncResult
from odradek.groups.offsets.records import OffsetRecord
from odradek.groups.records import GroupRecord
from odradek.wire.errors import ErrorCode
from tests.unit.groups.virtual_shard import RANGE, VirtualShard

DIRECTORY = Path(__file__).resolve().parents[2] / "transcripts" / "groups"


class Player:
    """Plays one transcript."""

    def __init__(self) -> None:
        self.shard = VirtualShard()
        self.member_ids: dict[str, str] = {}
        self.instances: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.asked: dict[int, str] = {}
        self.numbers: dict[str, str] = {}
        self.seen_records = 0
        self.seen_state = "Dead"

    def play(self, text: str) -> str:
        out: list[str] = []
        for line in text.splitlines():
            if line.startswith(">"):
                out.append(line)
                self.shown: list[str] = []
                self.act(line[1:].split())
                out += [f"    {shown}" for shown in self.shown + self.news()]
            elif not line.startswith("    "):
                out.append(line)
        return "\n".join(out) + "\n"

    # --- what happens ---

    def act(self, words: list[str]) -> None:
        match words:
            case [name, "joins", *options]:
                self.join(name, dict(option.partition("=")[::2] for option in options))
            case [name, "syncs", *parts]:
                self.sync(name, dict(part.split("=") for part in parts))
            case [name, "heartbeats"]:
                member = self.member_ids.get(name, "?")
                error = self.shard.heartbeat("g", member, self.generations.get(name, -1), self.instances.get(name))
                self.shown.append(f"{name}: {error.name}")
            case [name, "leaves"]:
                (error,) = self.shard.leave("g", LeavingMember(self.member_ids[name], self.instances.get(name)))
                self.shown.append(f"{name}: {error.name}")
            case [name, "commits", topic, partition, offset]:
                self.commit(name, (topic, int(partition), int(offset)))
            case [ms, "ms", "pass"]:
                self.shard.sleep(int(ms))
            case ["the", "coordinator", "restarts"]:
                self.shard.restart()
            case ["appends", "fail", "with", code]:
                self.shard.refuse = ErrorCode[code]
            case ["appends", "succeed"]:
                self.shard.refuse = None
            case ["the", "group", "is", "described"]:
                self.describe()
            case _:
                raise ValueError(f"what is {words}?")

    def join(self, name: str, options: dict[str, str]) -> None:
        if "forgetful" in options:
            self.member_ids.pop(name, None)
        if "instance" in options:
            self.instances[name] = options["instance"]
        version = int(options.get("version", "9"))
        protocols = tuple((p, RANGE[0][1]) for p in options.get("protocols", "range").split(","))
        token = self.shard.join(
            "g",
            self.member_ids.get(name, ""),
            client_id=name,
            instance=self.instances.get(name),
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "30000")),
            protocol_type=options.get("type", "consumer"),
            protocols=protocols,
            member_id_required=version >= 4,
            can_skip_assignment=version >= 9,
        )
        self.asked[token] = name

    def sync(self, name: str, parts: dict[str, str]) -> None:
        assignments = {self.member_ids[other]: part.encode() for other, part in parts.items()}
        generation = self.generations.get(name, -1)
        instance = self.instances.get(name)
        token = self.shard.sync("g", self.member_ids.get(name, "?"), generation, assignments, instance=instance)
        self.asked[token] = name

    def commit(self, name: str, offset: tuple[str, int, int]) -> None:
        member, generation = self.member_ids.get(name, ""), self.generations.get(name, -1)
        found = self.shard.commit("g", member, generation, offset, instance=self.instances.get(name))
        code = found[0] if isinstance(found, list) else found
        self.shown.append(f"{name}: {code.name}")

    # --- what came of it ---

    def number(self, member_id: str | None) -> str:
        if not member_id:
            return "-"
        prefix = re.sub(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "", member_id)
        return self.numbers.setdefault(member_id, f"{prefix}#{len(self.numbers) + 1}")

    def news(self) -> list[str]:
        found = []
        for token in sorted(self.asked):
            if token in self.shard.answers:
                name = self.asked.pop(token)
                found.append(f"{name}: {self.answer(name, self.shard.answers[token])}")
        records = self.shard.records()
        found += [f"record: {self.record(record)}" for record in records[self.seen_records :]]
        self.seen_records = len(records)
        state = self.shard.state()
        if state != self.seen_state:
            found.append(f"the group is {state}")
            self.seen_state = state
        return found

    def answer(self, name: str, answer: Any) -> str:
        if isinstance(answer, SyncResult):
            return f"synced {answer.error.name} assignment={answer.assignment.decode() or '-'}"
        assert isinstance(answer, JoinResult)
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_ids[name] = answer.member_id
        if answer.error is not ErrorCode.NONE:
            return f"joined {answer.error.name} member={self.number(answer.member_id)}"
        self.member_ids[name] = answer.member_id
        self.generations[name] = answer.generation_id
        members = ",".join(self.number(member.member_id) for member in answer.members) or "-"
        return (
            f"joined NONE member={self.number(answer.member_id)} generation={answer.generation_id} "
            f"protocol={answer.protocol_name} leader={self.number(answer.leader)} members={members} "
            f"skip={'yes' if answer.skip_assignment else 'no'}"
        )

    def record(self, record: GroupRecord) -> str:
        if isinstance(record, OffsetRecord):
            return f"offset {record.topic}-{record.partition} {'gone' if record.value is None else record.value.offset}"
        assert isinstance(record, ClassicGroupRecord)
        if record.value is None:
            return "group gone"
        value = record.value
        members = ",".join(f"{self.number(m.member_id)}={m.assignment.decode() or '-'}" for m in value.members) or "-"
        leader = self.number(value.leader)
        return (
            f"group generation={value.generation_id} protocol={value.protocol_name} leader={leader} members={members}"
        )

    def describe(self) -> None:
        group = self.shard.coordinator.describe_groups(["g"])[0]
        self.shown.append(f"{group.error.name} {group.state} type={group.protocol_type or '-'}")
        for member in group.members:
            instance = member.group_instance_id or "-"
            part = member.assignment.decode() or "-"
            self.shown.append(f"{self.number(member.member_id)} instance={instance} assignment={part}")


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    played = Player().play(text)
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(played)
    assert played == text


def test_there_are_transcripts() -> None:
    assert len(list(DIRECTORY.glob("*.txt"))) >= 5
