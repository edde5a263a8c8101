"""The command line on a running broker: `main` in this process, and the real program where processes matter."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from bench.peers.broker import BrokerProcess
from odradek.cli.main import main
from odradek.client.consumer.consumer import Consumer
from odradek.ports.disk import SystemDisk

PROGRAM = [sys.executable, "-m", "odradek.cli.main"]


class Outcome(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def run(
    odradek_broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Runs a command line in this process, against the broker; `stdin` is what it reads."""
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", odradek_broker.bootstrap)

    def call(line: str, *more: str, stdin: str | bytes | None = None) -> Outcome:
        reader = None
        if stdin is not None:
            read, write = os.pipe()
            os.write(write, stdin.encode() if isinstance(stdin, str) else stdin)
            os.close(write)
            reader = os.fdopen(read)
            monkeypatch.setattr(sys, "stdin", reader)
        try:
            status = main([*line.split(), *more])
        finally:
            if reader is not None:
                reader.close()
        return Outcome(status, *capsys.readouterr())

    yield call
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture
def topic(run: Run) -> str:
    """A topic of two partitions with a name of its own."""
    name = f"cli-{uuid4().hex[:12]}"
    assert run(f"topics --create --topic {name} --partitions 2").status == 0
    return name


@pytest.fixture
def filled(run: Run, topic: str) -> str:
    """Partition 0 has the values 0 to 9, partition 1 nothing."""
    lines = "".join(f"k{number}:{number}\n" for number in range(10))
    keyed = "--reader-property parse.key=true --reader-property key.separator=:"
    assert run(f"produce --topic {topic} --partition 0 {keyed}", stdin=lines).status == 0
    return topic


# --- topics ---


def test_a_topic_from_its_creation_to_its_deletion(run: Run):
    name = f"cli-{uuid4().hex[:12]}"
    created = run(f"topics --create --topic {name} --partitions 3 --config retention.ms=60000")
    assert (created.status, created.out) == (0, f"Created topic {name}.\n")
    assert name in run("topics --list").lines
    assert {"topic": name} in run("topics --list -o json").json
    described = run(f"topics --describe --topic {name}").lines
    assert described[0].startswith(f"Topic: {name}\tTopicId: ")
    assert "\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=60000" in described[0]
    assert [line.split("\t")[2] for line in described[1:]] == ["Partition: 0", "Partition: 1", "Partition: 2"]
    assert run(f"topics --alter --topic {name} --partitions 4").status == 0
    found = run(f"topics --describe --topic {name} -o json").json
    assert [each["partition"] for each in found[0]["partitions"]] == [0, 1, 2, 3]
    assert run(f"topics --delete --topic {name}").out == f"Deleted topic {name}.\n"
    assert run(f"topics --list --topic {name}").out == ""


def test_a_topic_that_exists_or_does_not(run: Run, topic: str):
    again = run(f"topics --create --topic {topic}")
    assert again.status == 1
    assert again.err.startswith("odradek topics: TOPIC_ALREADY_EXISTS: ")
    assert run(f"topics --create --topic {topic} --if-not-exists").status == 0
    for action in ("--describe", "--delete", "--alter --partitions 3"):
        gone = run(f"topics {action} --topic no-{topic}")
        assert (gone.status, gone.err) == (1, f"odradek topics: topic no-{topic} does not exist\n")
        assert run(f"topics {action} --topic no-{topic} --if-exists").status == 0


def test_names_of_topics_are_literal_unless_regex_is_given(run: Run, topic: str):
    run(f"topics --create --topic {topic}-b --partitions 1")
    assert run(f"topics --list --topic {topic}.*").lines == []
    assert run(f"topics --list --topic {topic}.* --regex").lines == [topic, f"{topic}-b"]
    assert run(f"topics --list --topic {topic}.* --apache-compatible").lines == [topic, f"{topic}-b"]
    assert run(f"topics --list --topic {topic}-b,nothing").lines == [f"{topic}-b"]
    missing = run(f"topics --describe --topic {topic}-b,nothing")
    assert (missing.status, missing.err) == (1, "odradek topics: topic nothing does not exist\n")
    hinted = run(f"topics --describe --topic {topic}.*")
    assert hinted.err.endswith("does not exist; names are literal, --regex makes them regular expressions\n")


def test_deletion_does_not_match_other_topics(run: Run, topic: str):
    for name in (f"{topic}.b", f"{topic}xb"):
        run(f"topics --create --topic {name} --partitions 1")
    assert run(f"topics --delete --topic {topic}.b").out == f"Deleted topic {topic}.b.\n"
    assert run(f"topics --list --topic {topic}.* --regex").lines == [topic, f"{topic}xb"]


def test_deletion_of_several_topics_needs_yes(run: Run, topic: str):
    run(f"topics --create --topic {topic}-b --partitions 1")
    for choice in (f"--topic {topic}.* --regex", f"--topic {topic},{topic}-b"):
        refused = run(f"topics --delete {choice}")
        assert (refused.status, refused.out) == (2, "")
        assert refused.err == f"odradek topics: this would delete 2 topics ({topic}, {topic}-b): confirm with --yes\n"
    assert len(run(f"topics --list --topic {topic}.* --regex").lines) == 2
    assert run(f"topics --delete --topic {topic}.* --regex --yes").status == 0
    assert run(f"topics --list --topic {topic}.* --regex").lines == []


def test_a_regex_does_not_delete_internal_topics(run: Run, filled: str):
    run(f"consume --topic {filled} --group g-{filled} --from-beginning -n 1")
    refused = run("topics --delete --topic __consumer.* --regex --yes")
    assert (refused.status, "internal topics only" in refused.err) == (1, True)
    assert run("topics --delete --topic __consumer_offsets").status == 2
    assert "__consumer_offsets" in run("topics --list").lines


def test_kafka_topics_deletes_by_pattern_without_a_question(run: Run, topic: str):
    run(f"topics --create --topic {topic}-b --partitions 1")
    assert run(f"topics --delete --topic {topic}.* --apache-compatible").status == 0
    assert run(f"topics --list --topic {topic}.* --regex").lines == []


def test_a_positional_topic_is_described(run: Run, topic: str):
    assert run(f"topics {topic}").out == run(f"topics --describe --topic {topic}").out
    assert topic in run("topics").lines


def test_deletion_of_several_groups_needs_yes(run: Run, filled: str):
    groups = [f"{filled}-{each}" for each in "ab"]
    named = " ".join(f"--group {each}" for each in groups)
    for each in groups:
        run(f"groups --reset-offsets --group {each} --topic {filled} --to-latest --execute")
    for line in (f"groups --delete {named}", f"groups --reset-offsets {named} --all-topics --to-earliest --execute"):
        assert run(line).status == 2
        assert run(f"{line} -o json").status == 2
    assert run(f"groups --delete {named} --yes").status == 0


def test_deletion_in_several_partitions_needs_yes(run: Run, filled: str):
    run(f"produce --topic {filled} --partition 1", stdin="x\n")
    planned = run(f"delete-records --topic {filled} --before -1 --dry-run -o json").json
    assert [(each["start"], each["before"], each["count"]) for each in planned] == [(0, 10, 10), (0, 1, 1)]
    refused = run(f"delete-records --topic {filled} --before -1")
    assert refused.status == 2
    assert f"{filled}-0: offsets 0 to 9" in refused.err
    assert len(run(f"consume --topic {filled} --offset start -e").lines) == 11
    assert run(f"delete-records --topic {filled} --before -1 --yes").status == 0
    assert run(f"consume --topic {filled} --offset start -e").lines == []


def test_a_misspelled_field_writes_nothing(run: Run, topic: str):
    refused = run(f"produce --topic {topic} -i json", stdin='{"value":"a"}\n{"vlaue":"x"}\n{"value":"b"}\n')
    assert refused.status == 1
    assert refused.err.startswith("odradek produce: line 2: unknown field 'vlaue'")
    assert "null" not in run(f"consume --topic {topic} --offset start -e").lines


def test_healthy_topics_have_nothing_to_report(run: Run, topic: str):
    for report in ("under-replicated", "unavailable", "under-min-isr"):
        assert run(f"topics --describe --topic {topic} --{report}-partitions").out == ""
    assert len(run(f"topics --describe --topic {topic} --at-min-isr-partitions").lines) == 2
    assert run(f"topics --describe --topic {topic} --topics-with-overrides").out == ""


def test_fewer_partitions_are_rejected(run: Run, topic: str):
    refused = run(f"topics --alter --topic {topic} --partitions 1")
    assert refused.status == 1
    assert "INVALID_PARTITIONS" in refused.err


# --- produce and consume ---


def test_keys_values_and_headers_arrive(run: Run, topic: str):
    properties = (
        "--reader-property parse.key=true --reader-property parse.headers=true --reader-property null.marker=NULL"
    )
    sent = run(f"produce --topic {topic} {properties} -o json", stdin="h:1\tk\tv\nNULL\tk\tNULL\r\n")
    assert [json.loads(line)["offset"] for line in sent.lines] == [0, 1]
    found = [json.loads(line) for line in run(f"consume --topic {topic} --offset start -e -o json").lines]
    assert [(each["key"], each["value"], each["headers"]) for each in found] == [
        ("k", "v", [{"key": "h", "value": "1"}]),
        ("k", None, []),
    ]


def test_old_names_of_options_work_with_a_warning(run: Run, topic: str):
    sent = run(f"produce --topic {topic} --property parse.key=true --producer-property acks=1", stdin="k\tv\n")
    assert sent.status == 0
    assert "Use --reader-property instead" in sent.err
    assert "Use --command-property instead" in sent.err
    read = run(f"consume --topic {topic} --from-beginning -n 1 --property print.key=true")
    assert read.out == "k\tv\n"
    assert "Use --formatter-property instead" in read.err


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_records(codec: str, run: Run, topic: str):
    assert run(f"produce --topic {topic} -z {codec} --sync", stdin="one\ntwo\n").status == 0
    assert sorted(run(f"consume --topic {topic} --offset start -e").lines) == ["one", "two"]


def test_a_line_without_its_key_ends_with_an_error(run: Run, topic: str):
    failed = run(f"produce --topic {topic} --reader-property parse.key=true", stdin="k\tv\nonly\n")
    assert failed.status == 1
    assert failed.err == "odradek produce: line 2: there is no key separator: 'only'\n"


def test_lines_before_a_bad_one_are_sent(run: Run, topic: str):
    lines = "".join(f'{{"value":"{number}"}}\n' for number in range(500))
    failed = run(f"produce --topic {topic} -i json", stdin=f'{lines}{{"vlaue":"x"}}\n')
    assert failed.status == 1
    assert failed.err.startswith("odradek produce: line 501: ")
    assert len(run(f"consume --topic {topic} --offset start -e").lines) == 500


def unread_bytes(pipe: int) -> int:
    """What the other end of a pipe has not read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_lines_before_a_signal_are_sent(number: int, status: int, odradek_broker: BrokerProcess, run: Run, topic: str):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # The batch waits for more records for a minute: the signal ends that.
    writer = subprocess.Popen(
        [*PROGRAM, "produce", "--topic", topic, "--timeout", "60000", "-b", odradek_broker.bootstrap],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    assert writer.stdin is not None
    pipe = writer.stdin.fileno()
    writer.stdin.write("a\nb\n")
    writer.stdin.flush()
    while unread_bytes(pipe):
        time.sleep(0.02)
    writer.send_signal(number)
    _, err = writer.communicate(timeout=60)
    assert (writer.returncode, err) == (status, "")
    assert sorted(run(f"consume --topic {topic} --offset start -e").lines) == ["a", "b"]


def test_a_partition_that_is_not_there(run: Run, topic: str):
    failed = run(f"produce --topic {topic} --partition 9", stdin="x\n")
    assert failed.status == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in failed.err
    failed = run(f"consume --topic {topic} --partition 9")
    assert (failed.status, failed.out) == (1, "")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--from-beginning --partition 0 -e", range(10)),
        ("--offset 7 -e", [7, 8, 9]),
        ("--offset -2 -e", [8, 9]),
        ("--offset +8 -e", [8, 9]),
        ("--offset 3:6", [3, 4, 5]),
        ("--offset 8:99", [8, 9]),
        ("--offset 99:", []),
        ("--offset :end", range(10)),
        ("--offset -3:8", [7]),
        ("--offset @-1h:end", range(10)),
        ("--offset latest -e", []),
        ("--offset @2000-01-01 -n 2", [0, 1]),
        ("--from-beginning --max-messages 3", [0, 1, 2]),
        ("--offset earliest -n 0", []),
    ],
)
def test_where_reading_begins_and_ends(options: str, expected: list[int], run: Run, filled: str):
    read = run(f"consume --topic {filled} {options}")
    assert read.status == 0
    assert read.lines == [str(each) for each in expected]
    assert read.err == f"Processed a total of {len(expected)} messages\n"


def test_reading_ends_when_nothing_came_for_so_long(run: Run, filled: str):
    for timeout_ms in (700, 5_000, 30_000):
        read = run(f"consume --topic {filled} --from-beginning --timeout-ms {timeout_ms}")
        assert read.status == 0
        assert read.err == f"Processed a total of {len(read.lines)} messages\n"
        assert read.lines == [str(each) for each in range(len(read.lines))]
        if len(read.lines) == 10:
            return
        # The machine was busy elsewhere for so long.
    raise AssertionError(f"{len(read.lines)} of 10 records")


def test_formats_of_records(run: Run, filled: str):
    assert run(f"consume --topic {filled} --offset 4:5", "-f", r"%t/%p/%o %k=%v{hex}\n").out == f"{filled}/0/4 k4=34\n"
    assert run(f"consume --topic {filled} --offset 4:5 -o tsv").out.split("\t")[4:] == ["k4", "4\n"]
    parts = "--formatter-property print.offset=true --formatter-property print.key=true"
    assert run(f"consume --topic {filled} --offset 4:5 {parts}").out == "Offset:4\tk4\t4\n"
    nothing = run(
        f"consume --topic {filled} --offset 4:5 --formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter"
    )
    assert (nothing.out, nothing.err) == ("", "Processed a total of 1 messages\n")


def test_what_cannot_be_printed_ends_reading_or_is_skipped(run: Run, topic: str):
    run(f"produce --topic {topic} --partition 0", stdin=b"12345678\nshort\n87654321\n")
    line = f"consume --topic {topic} --offset start -e --value-deserializer LongDeserializer"
    failed = run(line)
    assert failed.status == 1
    assert f"{topic}-0 offset 1: a long has 8 bytes, not 5" in failed.err
    skipped = run(f"{line} --skip-message-on-error")
    assert skipped.status == 0
    assert len(skipped.lines) == 2


def test_a_group_does_not_commit_what_cannot_be_printed(run: Run, topic: str):
    run(f"produce --topic {topic} --partition 0", stdin=b"12345678\nshort\n87654321\n")
    line = f"consume --topic {topic} --group {topic} --from-beginning -e --value-deserializer LongDeserializer"
    failed = run(line)
    assert (failed.status, len(failed.lines)) == (1, 1)
    assert failed.err.startswith("Processed a total of 1 messages\n")
    places = run(f"groups --describe --group {topic} -o json").json
    assert [each["current_offset"] for each in places if each["partition"] == 0] == [1]
    assert len(run(f"{line} --skip-message-on-error").lines) == 1


def test_topics_by_pattern(run: Run, filled: str):
    run(f"topics --create --topic {filled}-too --partitions 1")
    run(f"produce --topic {filled}-too", stdin="more\n")
    read = run(f"consume --include {filled}.* --from-beginning -e")
    assert sorted(read.lines) == sorted([*map(str, range(10)), "more"])


def test_json_lines_can_be_produced_again(run: Run, filled: str):
    copied = run(f"consume --topic {filled} --offset start -e -o json").out
    name = f"{filled}-copy"
    run(f"topics --create --topic {name} --partitions 1")
    assert run(f"produce --topic {name} -i json", stdin=copied).status == 0
    form = r"%k %v %d\n"
    again = run(f"consume --topic {name} --offset start -e", "-f", form)
    assert again.out == run(f"consume --topic {filled} --offset start -e", "-f", form).out


def test_delimiters_of_keys_and_records(run: Run, topic: str):
    assert run(f"produce {topic} -p 0 -K : -D ;", stdin="a:1\n;b:2;c:3").status == 0
    read = run(f"consume {topic} --offset start -e -q -K = -D |")
    assert (read.out, read.err) == ("a=1\n|b=2|c=3|", "")


def test_kcat_options_produce_consume_and_list(run: Run, topic: str, odradek_broker: BrokerProcess):
    server = odradek_broker.bootstrap
    assert run(f"-P -b {server} -t {topic} -p 1 -K : -k none", stdin="a:1\n\n2\n").status == 0
    read = run(f"-C -b {server} -t {topic} -e -f", r"%p %o %k=%s\n")
    assert (read.status, read.out, read.err) == (0, "1 0 a=1\n1 1 none=2\n", "")
    assert run(f"-C -b {server} -t {topic} -p 1 -o -1 -c 1").lines == ["2"]
    listed = run(f"-L -b {server} -t {topic}").lines
    assert listed[0] == f"Metadata for {topic} (from {server}):"
    assert f'  topic "{topic}" with 2 partitions:' in listed
    (described,) = run(f"-L -J -b {server} -t {topic}").json["topics"]
    assert [(each["partition"], each["replicas"], each["isrs"]) for each in described["partitions"]] == [
        (0, [{"id": 1}], [{"id": 1}]), (1, [{"id": 1}], [{"id": 1}])
    ]  # fmt: skip
    assert run(f"-L -b {server} -t no-{topic}").status == 1


# --- groups ---


def test_group_continues_where_it_stopped(run: Run, filled: str):
    group = f"g-{filled}"
    assert run(f"consume --topic {filled} --group {group} --from-beginning -n 4").lines == ["0", "1", "2", "3"]
    assert run(f"consume --topic {filled} --group {group} --from-beginning -n 2").lines == ["4", "5"]
    assert run(f"consume --topic {filled} --group {group} -e").lines == ["6", "7", "8", "9"]
    assert group in run("groups --list").lines
    assert any(line.split() == [group, "Empty"] for line in run("groups --list --state empty").lines)
    described = run(f"groups --describe --group {group}")
    assert described.lines[0].split()[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert described.lines[1].split() == [group, filled, "0", "10", "10", "0", "-", "-", "-"]
    assert "has no active members" in described.err
    state = run(f"groups --describe --group {group} --state -o json").json
    assert [(each["state"], each["member_count"]) for each in state] == [("Empty", 0)]


def test_offsets_are_reset(run: Run, filled: str, tmp_path: Path):
    group = f"g-{filled}"

    def reset(options: str) -> list[int]:
        done = run(f"groups --reset-offsets --group {group} {options} -o json")
        assert done.status == 0
        return [each["new_offset"] for each in done.json]

    def committed() -> list[int]:
        return [each["current_offset"] for each in run(f"groups --describe --group {group} -o json").json]

    topic = f"--topic {filled}:0"
    assert reset(f"{topic} --to-latest --execute") == [10] == committed()
    assert reset(f"{topic} --to-earliest --dry-run") == [0]
    assert committed() == [10]
    assert reset("--all-topics --to-offset 4 --execute") == [4] == committed()
    assert reset("--all-topics --shift-by -3 --execute") == [1] == committed()
    assert reset("--all-topics --shift-by 50") == [10]
    assert reset(f"--topic {filled} --to-current") == [1, 0]
    assert reset(f"{topic} --by-duration PT1H") == [0]
    assert reset(f"{topic} --to-datetime 2100-01-01T00:00:00.000") == [10]
    exported = run(f"groups --reset-offsets --group {group} {topic} --to-offset 6 --export").out
    assert exported == f"{filled},0,6\n"
    file = tmp_path / "offsets.csv"
    file.write_text(exported)
    assert reset(f"--from-file {file} --execute") == [6] == committed()
    assert run(f"consume --topic {filled} --group {group} -e").lines == ["6", "7", "8", "9"]


def test_offsets_and_groups_are_deleted(run: Run, filled: str):
    group = f"g-{filled}"
    run(f"groups --reset-offsets --group {group} --topic {filled} --to-earliest --execute")
    deleted = run(f"groups --delete-offsets --group {group} --topic {filled}:1")
    assert deleted.lines[1].split() == [filled, "1", "Successful"]
    assert len(run(f"groups --describe --group {group} -o json").json) == 1
    assert run(f"groups --delete --group {group}").status == 0
    again = run(f"groups --delete --group {group}")
    assert again.status == 1
    assert "GROUP_ID_NOT_FOUND" in again.err
    missing = run(f"groups --describe --group {group} -o json")
    assert missing.status == 1
    assert missing.json["error"]["code"] == "GROUP_ID_NOT_FOUND"


def test_members_and_a_group_that_is_at_work(odradek_broker: BrokerProcess, filled: str):
    """A consumer of this process is the member; the commands are processes of their own."""
    group = f"g-{filled}"

    async def outcome(line: str) -> Outcome:
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *line.split(),
            "--bootstrap-server",
            odradek_broker.bootstrap,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return Outcome(process.returncode, out.decode(), err.decode())

    async def scenario() -> None:
        consumer = Consumer(
            filled,
            bootstrap_servers=odradek_broker.bootstrap,
            group_id=group,
            client_id="watched",
            auto_offset_reset="earliest",
        )
        async with consumer:
            async with asyncio.timeout(60):
                while not consumer.assignment():
                    await consumer.poll(200)
            members = await outcome(f"groups --describe --group {group} --members -o json")
            assert [each["client_id"] for each in members.json] == ["watched"]
            assert members.json[0]["assignment"] == [{"topic": filled, "partitions": [0, 1]}]
            offsets = await outcome(f"groups --describe --group {group} -o json")
            assert [each["client_id"] for each in offsets.json] == ["watched", "watched"]
            refused = await outcome(f"groups --reset-offsets --group {group} --topic {filled} --to-latest --execute")
            assert refused.status == 1
            assert "this one is Stable" in refused.err
            kept = await outcome(f"groups --delete --group {group}")
            assert kept.status == 1
            assert "NON_EMPTY_GROUP" in kept.err

    asyncio.run(scenario())


# --- configs, offsets, records, cluster ---


def test_deleting_an_unknown_setting_changes_nothing(run: Run, topic: str):
    run(f"configs --alter --topic {topic} --add-config retention.ms=70000")
    failed = run(f"configs --alter --topic {topic} --delete-config retention.ms,retention.mss")
    assert failed.status == 1
    assert failed.err == f"odradek configs: topic {topic} has no setting retention.mss; nothing was changed\n"
    found = run(f"configs --describe --topic {topic} -o json").json
    assert [each["name"] for each in found[0]["configs"]] == ["retention.ms"]


def test_settings_of_a_topic(run: Run, topic: str):
    line = "cleanup.policy=[compact,delete],retention.ms=70000"
    changed = run(f"configs --alter --topic {topic} --add-config {line}")
    assert (changed.status, changed.out) == (0, f"Completed updating config for topic {topic}.\n")
    described = run(f"configs --describe --entity-type topics --entity-name {topic}").lines
    assert described[0] == f"Dynamic configs for topic {topic} are:"
    assert described[1].startswith("  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:")
    assert len(described) == 3
    run(f"configs --alter --topic {topic} --delete-config cleanup.policy")
    found = run(f"configs --describe --topic {topic} -o json").json
    assert [(each["name"], each["value"]) for each in found[0]["configs"]] == [("retention.ms", "70000")]
    every = run(f"configs --describe --topic {topic} --all -o tsv").lines
    assert f"topics\t{topic}\tcleanup.policy\tdelete\tDEFAULT_CONFIG\tfalse\tfalse" in every


def test_settings_that_cannot_be(run: Run, topic: str):
    for setting in ("no.such.thing=1", "retention.ms=soon"):
        refused = run(f"configs --alter --topic {topic} --add-config {setting}")
        assert refused.status == 1
        assert refused.err.startswith("odradek configs: INVALID_CONFIG: ")
    missing = run(f"configs --describe --topic no-{topic} -o json")
    assert missing.status == 1
    assert missing.json["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_settings_of_brokers(run: Run):
    assert "Dynamic configs for broker 1 are:" in run("configs --describe --entity-type brokers").lines
    found = run("configs --describe --broker 1 --all -o json").json
    assert {each["name"] for each in found[0]["configs"]} > {"log.retention.hours", "num.partitions"}


def test_offsets_by_time(run: Run, filled: str):
    assert run(f"offsets --topic {filled}").lines == [f"{filled}:0:10", f"{filled}:1:0"]
    assert run(f"offsets --topic-partitions {filled}:0 --time earliest").lines == [f"{filled}:0:0"]
    assert run(f"offsets --topic {filled} --partitions 0 --time -1h -o tsv").lines[0].split("\t")[:3] == [
        filled,
        "0",
        "0",
    ]
    found = run(f"offsets --topic {filled} --partitions 0 --time max-timestamp -o json").json
    assert 0 <= found[0]["offset"] <= 9
    assert run("offsets --topic nothing-like-this").status == 1


def test_the_oldest_records_are_deleted(run: Run, filled: str, tmp_path: Path):
    deleted = run(f"delete-records --topic {filled}:0 --before 4")
    assert deleted.lines[1].split() == [filled, "0", "4"]
    assert run(f"consume --topic {filled} --offset start -n 1").lines == ["4"]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": [{"topic": filled, "partition": 0, "offset": 99}], "version": 1}))
    refused = run(f"delete-records --offset-json-file {file} -o json")
    assert refused.status == 1
    assert refused.json[0]["error"] == "OFFSET_OUT_OF_RANGE"


def test_the_cluster(run: Run, odradek_broker: BrokerProcess):
    described = run("cluster -o json").json
    assert [(each["host"], each["port"]) for each in described["brokers"]] == [("127.0.0.1", odradek_broker.port)]
    assert described["cluster_id"] in run("cluster cluster-id").out
    usable = {each["api"]: each["usable"] for each in run("cluster api-versions -o json").json}
    assert usable["Produce"] == 13


def test_completion_names_topics_and_groups(run: Run, topic: str, odradek_broker: BrokerProcess):
    line = f"completion --complete topics --bootstrap-server {odradek_broker.bootstrap} --describe --topic {topic[:-2]}"
    assert run(line).lines == [topic]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("groups --reset-offsets --group g --topic {topic}:0,9 --to-earliest", "there is no {topic}-9"),
        ("delete-records --topic {topic}:9 --before 0", "there is no {topic}-9"),
        ("configs --describe --broker 99", "broker 99 is not running"),
        ("cluster balance --decommission 99", "there is no such broker"),
    ],
)
def test_what_does_not_exist_is_reported_at_once(run: Run, topic: str, line: str, expected: str):
    """Brokers are asked again for what may be about to be made; the longest wait would be `--timeout`."""
    done = run(f"{line.format(topic=topic)} --timeout 600000")
    assert (done.status, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert expected.format(topic=topic) in done.err


@pytest.mark.parametrize(
    "line",
    [
        "topics --create --topic {topic}-more --partitions 9999999999",
        "delete-records --topic {topic}:0 --before 99999999999999999999",
        "consume --topic {topic} --offset @99999999999999999999 -e",
    ],
)
def test_number_beyond_kafkas_protocol_is_a_mistake(run: Run, topic: str, line: str):
    done = run(line.format(topic=topic))
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert "a value does not fit into Kafka's protocol" in done.err


def test_brokers_of_another_cluster_are_not_restarted(run: Run, tmp_path: Path):
    home = tmp_path / "three"
    (home / "broker-1").mkdir(parents=True)
    properties = "version=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\n"
    (home / "broker-1" / "meta.properties").write_text(properties)
    lock = SystemDisk().lock(str(home / ".lock"))
    with subprocess.Popen(["sleep", "60"]) as broker:
        (home / "odradek-processes.json").write_text(json.dumps({"brokers": {"1": broker.pid}}))
        try:
            done = run(f"cluster restart --rolling --patience 1 --data-dir {home}")
            assert broker.poll() is None
        finally:
            broker.kill()
            lock.release()
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "holds brokers of cluster 4L6g3nShT-eMCtK--X86sw" in done.err


def test_file_without_offsets_of_the_group_is_an_error(run: Run, filled: str, tmp_path: Path):
    file = tmp_path / "offsets.csv"
    file.write_text(f"another,{filled},0,5\n")
    done = run(f"groups --reset-offsets --group g-{filled} --execute --from-file {file}")
    assert (done.status, done.out) == (1, "")
    assert done.err == f"odradek groups: group g-{filled}: {file} has no offsets of it\n"


# --- as a process ---


def process(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60, **options)


def test_a_broker_that_is_not_there_is_one_line_and_status_1():
    failed = process("topics", "--list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "300", "-o", "json")
    assert failed.returncode == 1
    assert failed.stderr.startswith("odradek topics: cannot reach a broker: 127.0.0.1:1: ")
    assert failed.stderr.count("\n") == 1
    assert json.loads(failed.stdout)["error"]["code"] == "UNREACHABLE"


def test_a_pipe_from_a_file_to_a_reader_that_stops_early(odradek_broker: BrokerProcess, topic: str, tmp_path: Path):
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(50_000)))
    server = ["--bootstrap-server", odradek_broker.bootstrap]
    with lines.open() as file:
        sent = process("produce", "--topic", topic, "--partition", "0", *server, stdin=file)
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, "", "")
    everything = process("consume", "--topic", topic, "--from-beginning", "-e", *server)
    assert everything.stdout == lines.read_text()
    reader = subprocess.Popen(
        [*PROGRAM, "consume", "--topic", topic, "--from-beginning", *server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline() == "0\n"
    reader.stdout.close()
    # It notices when it writes again.
    process("produce", "--topic", topic, *server, input="".join(f"{number}\n" for number in range(50_000)))
    assert reader.wait(60) == 0
    assert "Traceback" not in reader.stderr.read()
    reader.stderr.close()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_group_commits_only_what_its_reader_can_have(odradek_broker: BrokerProcess, topic: str, unbuffered: str):
    """A pipe takes 64 KiB. Python writes past its own buffers in containers, which set PYTHONUNBUFFERED."""
    server = ["--bootstrap-server", odradek_broker.bootstrap]
    lines = "".join(f"{number:0500}\n" for number in range(4_000))
    assert process("produce", "--topic", topic, "--partition", "0", *server, input=lines).returncode == 0
    group = f"g-{topic}-{unbuffered or 0}"
    reader = subprocess.Popen(
        [*PROGRAM, "consume", "--topic", topic, "--group", group, "--from-beginning", *server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert reader.stdout is not None
    assert reader.stdout.read(500).isdigit()
    reader.stdout.close()
    assert reader.wait(60) == 0
    found = json.loads(process("groups", "--describe", "--group", group, "-o", "json", *server).stdout)
    assert sum(each["current_offset"] or 0 for each in found if each["partition"] == 0) < 1_000


def test_produce_sends_all_lines_when_its_reader_has_gone(odradek_broker: BrokerProcess, topic: str, tmp_path: Path):
    server = ["--bootstrap-server", odradek_broker.bootstrap]
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(30_000)))
    with lines.open() as file:
        sender = subprocess.Popen(
            [*PROGRAM, "produce", "--topic", topic, "--partition", "0", "-o", "json", *server],
            stdin=file,
            stdout=subprocess.PIPE,
        )
    assert sender.stdout is not None
    assert json.loads(sender.stdout.readline())["offset"] == 0
    sender.stdout.close()
    assert sender.wait(60) == 0
    assert process("offsets", "--topic-partitions", f"{topic}:0", *server).stdout == f"{topic}:0:30000\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_reading_in_order(number: int, status: int, odradek_broker: BrokerProcess, filled: str):
    server = ["--bootstrap-server", odradek_broker.bootstrap]
    group = f"g-{filled}"
    # Whoever runs the tests in the background hands on that SIGINT is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    reader = subprocess.Popen(
        [*PROGRAM, "consume", "--topic", filled, "--group", group, "--from-beginning", *server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    assert reader.stdout is not None
    assert [reader.stdout.readline() for _ in range(10)] == [f"{each}\n" for each in range(10)]
    reader.send_signal(number)
    _, err = reader.communicate(timeout=60)
    assert reader.returncode == status
    assert err == "Processed a total of 10 messages\n"
    described = process("groups", "--describe", "--group", group, "-o", "json", *server)
    assert json.loads(described.stdout)[0]["current_offset"] == 10


def test_a_setting_without_effect_is_named(run: Run, topic: str):
    changed = run("configs --alter --broker-defaults --add-config num.io.threads=16")
    assert (changed.status, changed.out) == (0, "Completed updating default config for brokers in the cluster.\n")
    assert changed.err.startswith("odradek configs: num.io.threads has no effect in this version: sizes of thread")
    effective = run(f"configs --alter --topic {topic} --add-config retention.ms=60000")
    assert (effective.status, effective.err) == (0, "")
    run("configs --alter --broker-defaults --delete-config num.io.threads")


def test_a_new_topics_setting_without_effect_is_named(run: Run, topic: str):
    created = run(f"topics --create --topic {topic}-new --partitions 1 --config local.retention.ms=1000")
    assert created.status == 0
    assert created.err.startswith("odradek topics: local.retention.ms has no effect in this version: ")


@pytest.mark.parametrize("options", ["-e", "--offset earliest -e", "--offset start:end", "--group missing -e"])
def test_reading_to_the_end_does_not_create_a_missing_topic(run: Run, options: str):
    topic = f"missing-{uuid4().hex[:8]}"
    done = run(f"consume {topic} {options}")
    assert (done.status, done.out) == (1, "")
    assert done.err.endswith(f"odradek consume: topic {topic} does not exist\n")
    assert topic not in run("topics --list").lines
