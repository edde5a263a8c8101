"""`odradek dlq` on a running broker."""

import json
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from bench.peers.broker import BrokerProcess
from odradek.cli.main import main
from odradek.client.blocking import Blocking
from odradek.records.topic_partition import TopicPartition
from odradek.spark import dead_letters as names
from tests.integration.conftest import RawClient
from tests.integration.raw_transactions import await_markers
from tests.spark.support import Record, Topics

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def topics(odradek_broker: BrokerProcess) -> Iterator[Topics]:
    with Blocking() as blocking:
        yield Topics(odradek_broker.bootstrap, blocking)


@pytest.fixture
def run(odradek_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(line: str) -> tuple[int, str, str]:
        status = main([*line.split(), "--bootstrap-server", odradek_broker.bootstrap])
        return (status, *capsys.readouterr())

    return call


def letter(topic: str, offset: int, value: bytes, *more: tuple[str, bytes]) -> Record:
    headers = (
        (names.TOPIC, topic.encode()),
        (names.PARTITION, b"1"),
        (names.OFFSET, b"%d" % offset),
        (names.CLASS, b"ValueError"),
        (names.MESSAGE, b"no number"),
        *more,
    )
    return Record(value, b"k", (("own", b"header"), *headers), partition=offset % 2)


def values(topics: Topics, topic: str) -> list[bytes]:
    client = RawClient(topics.bootstrap)
    await_markers(client, topic, 2)
    client.close()
    return sorted(bytes(each.value or b"") for each in topics.read(topic, committed=True))


def test_letters_are_listed_and_go_back_once(run: Run, topics: Topics) -> None:
    origin, other, dlq = topics.create(2), topics.create(2), topics.create(2, f"dlq-{uuid4().hex[:8]}")
    topics.fill(dlq, [letter(origin, 0, b"a"), letter(other, 1, b"b"), letter(origin, 2, b"c")])
    status, out, _ = run(f"dlq list --topic {dlq} -o json")
    assert status == 0
    listed = json.loads(out)
    assert [each["value"] for each in listed] == ["a", "c", "b"]
    assert listed[0]["origin"] == f"{origin}-1@0"
    assert listed[0]["error"] == "ValueError: no number"
    status, out, _ = run(f"dlq redrive --topic {dlq} -o json")
    assert (status, json.loads(out)) == (
        0,
        sorted(({"topic": origin, "records": 2}, {"topic": other, "records": 1}), key=lambda row: str(row["topic"])),
    )
    assert run(f"dlq redrive --topic {dlq}")[:2] == (0, f"nothing to redrive in {dlq} for group {dlq}-redrive\n")
    assert (values(topics, origin), values(topics, other)) == ([b"a", b"c"], [b"b"])
    (back,) = topics.read(other, committed=True)
    assert [(name, bytes(value or b"")) for name, value in back.headers] == [("own", b"header"), (names.REDRIVES, b"1")]
    assert bytes(back.key or b"") == b"k"
    assert sum(topics.group_offsets(f"{dlq}-redrive").values()) >= 3


def test_letters_that_came_back_too_often_are_passed_over(run: Run, topics: Topics) -> None:
    origin, dlq = topics.create(2), topics.create(2)
    topics.fill(dlq, [letter(origin, 0, b"a", (names.REDRIVES, b"3")), letter(origin, 1, b"b")])
    status, out, _ = run(f"dlq redrive --topic {dlq} --max-redrives 3")
    assert status == 0
    assert "1 records were skipped" in out
    assert values(topics, origin) == [b"b"]
    assert run(f"dlq redrive --topic {dlq} --from-beginning --to {origin}")[0] == 2
    status, out, _ = run(f"dlq redrive --topic {dlq} --from-beginning --to {origin} --dry-run -o json")
    assert (status, json.loads(out)) == (0, [{"topic": origin, "records": 2}])
    assert run(f"dlq redrive --topic {dlq} --from-beginning --to {origin} --yes")[0] == 0
    assert values(topics, origin) == [b"a", b"b", b"b"]


def test_letters_may_be_redriven_a_few_at_a_time(run: Run, topics: Topics) -> None:
    origin, dlq = topics.create(2), topics.create(2)
    topics.fill(dlq, [letter(origin, 2 * n, b"%d" % n) for n in range(5)])
    for expected in (2, 4, 5):
        assert run(f"dlq redrive --topic {dlq} --max-records 2")[0] == 0
        assert len(values(topics, origin)) == expected


def test_redrive_sends_nothing_of_a_round_with_a_letter_without_origin(run: Run, topics: Topics) -> None:
    origin, dlq = topics.create(2), topics.create(2)
    topics.fill(dlq, [letter(origin, 0, b"a"), Record(b"stray", partition=0)])
    status, _, err = run(f"dlq redrive --topic {dlq}")
    assert (status, err) == (1, f"odradek dlq: the headers of {dlq}-0@1 do not name its topic: use --to\n")
    assert values(topics, origin) == []
    assert topics.group_offsets(f"{dlq}-redrive") == {}


def test_letters_are_not_passed_over_by_an_offset_beyond_the_end(run: Run, topics: Topics) -> None:
    """As where a topic lost records, or was restored from a backup that is older than the group's offsets."""
    origin, dlq = topics.create(2), topics.create(2)
    topics.fill(dlq, [letter(origin, 2 * n, b"%d" % n) for n in range(3)])
    group = f"--group {dlq}-redrive --topic {dlq}"
    topics.set_group_offset(f"{dlq}-redrive", TopicPartition(dlq, 0), 7)
    for action in ("list", "redrive", "redrive --dry-run"):
        status, _, err = run(f"dlq {action} --topic {dlq}")
        assert status == 1
        assert f"group {dlq}-redrive has the offset 7 of {dlq}-0, which ends at 3" in err
    assert run(f"groups --reset-offsets {group} --to-earliest --execute")[0] == 0
    assert run(f"dlq redrive --topic {dlq}")[0] == 0
    assert values(topics, origin) == [b"0", b"1", b"2"]


def test_a_topic_that_does_not_exist(run: Run) -> None:
    status, _, err = run("dlq list --topic nothing-here")
    assert (status, err) == (1, "odradek dlq: there is no topic nothing-here\n")
