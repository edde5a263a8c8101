"""What goes with what on the line of each command: mistakes are found before any broker is asked."""

import argparse
from pathlib import Path

import pytest

from odradek.cli.actions import quotas, reset_offsets, topic_changes
from odradek.cli.arguments.config_entities import Entity
from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.options import Parser
from odradek.cli.commands import configs, consume, delete_records, groups, offsets, produce
from odradek.cli.main import main
from odradek.client.reports import offset_resets
from odradek.records.topic_partition import TopicPartition


def parsed(command, line: str) -> argparse.Namespace:
    parser = Parser()
    command.configure(parser)
    return parser.parse_args(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "topics list",
        "topics t --topic u",
        "topics --list --yes",
        "topics --create --topic t --regex",
        "topics --describe --regex",
        "topics --delete --topic a,",
        "topics --list --create",
        "topics --create",
        "topics --alter --topic t",
        "topics --delete",
        "topics --list --partitions 3",
        "topics --alter --topic t --partitions 3 --config a=b",
        "topics --create --topic t --if-exists",
        "topics --delete --topic t --if-not-exists",
        "topics --list --unavailable-partitions",
        "topics --describe --unavailable-partitions --under-replicated-partitions",
        "topics --create --topic t --exclude-internal",
        "topics --create --topic t --partitions 0",
        "topics --create --topic t --partitions x",
        "topics --create --topic t --config a",
        "topics --create --topic t --replica-assignment 0:1,1",
        "topics --create --topic t --replica-assignment 0:0",
        "topics --create --topic t --replica-assignment 0 --partitions 1",
        "topics --list --command-config /nowhere",
        "topics --list --output xml",
        "produce",
        "produce --topic t --reader-property parse.key",
        "produce --topic t --compression-codec brotli",
        "produce --topic t --partition -1",
        "produce --topic t --request-required-acks 2",
        "produce --topic t --line-reader MyReader",
        "produce --topic t --producer-property a=b --command-property c=d",
        "consume",
        "consume --topic t --include u",
        "consume --include u --partition 0",
        "consume --topic t --from-beginning --offset 5",
        "consume --topic t --group g --partition 0",
        "consume --topic t --group g --offset 5",
        "consume --topic t --offset five",
        "consume --topic t -f %z",
        "consume --topic t --formatter MyFormatter",
        "consume --topic t --group g --command-property group.id=h",
        "consume --topic t --from-beginning --command-property auto.offset.reset=latest",
        "consume --topic t --command-property fetch.max.wait.ms=soon",
        "groups describe",
        "groups g --group h",
        "groups --list --yes",
        "groups --describe",
        "groups --describe --group g --all-groups",
        "groups --describe --group g --members --state",
        "groups --describe --group g --state Stable",
        "groups --list --members",
        "groups --list --state Bogus",
        "groups --list --type Bogus",
        "groups --delete-offsets --group g",
        "groups --delete --group g --topic t",
        "groups --describe --group g --execute",
        "groups --reset-offsets --group g --topic t",
        "groups --reset-offsets --group g --to-latest",
        "groups --reset-offsets --group g --topic t --to-latest --to-earliest",
        "groups --reset-offsets --group g --topic t --all-topics --to-latest",
        "groups --reset-offsets --group g --topic t --to-latest --dry-run --execute",
        "groups --reset-offsets --group g --topic t --by-duration soon",
        "groups --reset-offsets --group g --topic t --to-datetime soon",
        "groups --reset-offsets --group g --topic t:x --to-latest",
        "groups --reset-offsets --group g --from-file /nowhere",
        "groups --reset-offsets --group g --from-file /nowhere --topic t",
        "groups --reset-offsets --group g --from-file /nowhere --all-topics",
        "produce t -i json --reader-property parse.key=true",
        "produce t --from-parquet /nowhere --reader-property parse.key=true",
        "consume t -o json --formatter-property print.key=true",
        "consume t -f %v --value-deserializer LongDeserializer",
        "consume t --to-parquet /nowhere/f -K :",
        "configs",
        "configs --describe",
        "configs --alter --topic t",
        "configs --describe --topic t --add-config a=b",
        "configs --alter --topic t --all --add-config a=b",
        "configs --alter --entity-type topics --add-config a=b",
        "configs --alter --topic t --add-config a",
        "configs --describe --topic t --broker 1",
        "configs --describe --topic t --entity-type topics",
        "configs --describe --entity-name x",
        "configs --describe --entity-type topics --entity-default",
        "configs --describe --broker one",
        "configs --describe --entity-type tables",
        "configs --alter --client c --add-config producer_byte_rate=fast",
        "configs --alter --user-defaults --add-config SCRAM-SHA-256=[password=x]",
        "configs --alter --user u --add-config SCRAM-SHA-256=[iterations=1,password=x]",
        "configs --alter --user u --add-config SCRAM-SHA-256=[password=x],producer_byte_rate=1",
        "offsets --topic-partitions t --topic t",
        "offsets --topic-partitions t:x",
        "offsets --partitions x",
        "offsets --time soon",
        "delete-records",
        "delete-records --topic t",
        "delete-records --topic t --before -2",
        "delete-records --offset-json-file /nowhere",
        "delete-records --offset-json-file /nowhere --before 5",
        "configs --alter --topic t --add-config retention.ms=5 --delete-config retention.ms",
        "import /nowhere --node-id 2147483648",
        "dlq list --topic t --dry-run",
        "dlq list --topic t --yes",
        "cluster explode",
        "cluster balance --decommission one",
        "cluster balance --tolerance -1",
        "cluster balance --tolerance nan",
        "cluster balance --max-moves 0",
        "cluster status --execute",
        "cluster describe --watch",
        "cluster status --data-dir d",
        "cluster restart --rolling",
        "cluster restart --rolling --data-dir d --patience 0",
        "completion tcsh",
        "consume --topic t --max-messages -2",
        "consume --topic t --timeout-ms -2",
        "consume --topic t --offset 5:2",
        "demo --seconds-limit -1",
        "demo --records 0",
        "pipeline --stop-timeout -1 run x.py",
        "serve --brokers 0",
        "serve --brokers 2 --listen 127.0.0.1:65535",
        "serve --set nope=1",
        "serve --set log.dirs=,",
        "serve --set zookeeper.connect=: --listen 127.0.0.1:0",
    ],
)
def test_mistakes_are_one_line_and_status_2(line: str, capsys: pytest.CaptureFixture[str]):
    words = line.split()
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    expected = [line for line in captured.err.splitlines() if "is deprecated" not in line]
    assert len(expected) == 1
    assert expected[0].startswith(f"odradek {words[0]}: ")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("consume --topic t -n x", "'x' is not a whole number"),
        ("cluster status --timeout x", "'x' is not a whole number"),
        ("cluster balance --max-moves x", "'x' is not a whole number"),
        ("cluster balance --tolerance x", "'x' is not a number"),
        ("cluster restart --patience x", "'x' is not a number"),
    ],
)
def test_what_is_no_number_is_reported_in_words(line: str, expected: str, capsys: pytest.CaptureFixture[str]):
    assert main(line.split()) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        *([name, "--bootstrap-server", ""] for name in ("offsets", "cluster", "topics --list", "consume --topic t -e")),
        ["serve", "--data-dir", ""],
        ["serve", "--listen", ""],
    ],
)
def test_what_is_given_and_empty_is_not_the_default(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main([*words[0].split(), *words[1:]]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_replica_assignments():
    assert topic_changes.assigned_replicas("0:1,1:2,2:0") == {0: [0, 1], 1: [1, 2], 2: [2, 0]}


def test_settings_of_the_producer_go_by_option_then_property_then_file(tmp_path: Path):
    file = tmp_path / "p.properties"
    file.write_text("linger.ms=1\nacks=1\nbatch.size=100\ncompression.type=lz4\n")
    line = f"--topic t --command-config {file} --command-property acks=0 --command-property linger.ms=2 --timeout 3 -z"
    settings = produce.settings_of(parsed(produce, line))
    assert settings["linger_ms"] == 3
    assert settings["acks"] == "0"
    assert settings["batch_size"] == "100"
    assert settings["compression_type"] == "gzip"


def test_settings_of_the_consumer():
    settings = consume.settings_of(parsed(consume, "--topic t --from-beginning --isolation-level read_committed"))
    assert settings["auto_offset_reset"] == "earliest"
    assert settings["isolation_level"] == "read_committed"
    assert "group_id" not in settings
    grouped = consume.settings_of(parsed(consume, "--topic t --command-property group.id=g --group g"))
    assert grouped["group_id"] == "g"
    assert "auto_offset_reset" not in grouped


def test_names_of_states_in_any_case():
    assert groups.one_of("stable, EMPTY,preparing_rebalance", groups.STATES, "state") == [
        "Stable",
        "Empty",
        "PreparingRebalance",
    ]


def test_commas_in_brackets_belong_to_the_value():
    arguments = parsed(configs, "--alter --topic t --add-config a=1,b=[x,y],c=,d=e=f --delete-config g,h")
    assert configs.added(arguments) == {"a": "1", "b": "x,y", "c": "", "d": "e=f"}
    assert configs.deleted(arguments) == ["g", "h"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--topic t", [Entity("topics", "t")]),
        ("--broker-defaults", [Entity("brokers", None)]),
        ("--entity-type brokers --entity-default", [Entity("brokers", None)]),
        ("--entity-type topics", [Entity("topics", "")]),
        ("--entity-type users --entity-name u --entity-type clients", [Entity("users", "u"), Entity("clients", "")]),
        ("--client c --user u", [Entity("clients", "c"), Entity("users", "u")]),
        ("--user u --client-defaults", [Entity("users", "u"), Entity("clients", None)]),
    ],
)
def test_entities(line: str, expected: list[Entity]):
    assert configs.entities_of(parsed(configs, f"--describe {line}")) == expected


def test_credentials():
    assert quotas.parse_credential("SCRAM-SHA-256", "iterations=5000,password=a,b=c") == (5000, "a,b=c")
    assert quotas.parse_credential("SCRAM-SHA-256", "password=x") == (8192, "x")
    with pytest.raises(UsageError):
        quotas.parse_credential("SCRAM-SHA-256", "x")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("a", [("a", 0), ("a", 9)], [("b", 0), ("aa", 0)]),
        ("a.*:1", [("ab", 1)], [("ab", 0), ("b", 1)]),
        ("a:1-3", [("a", 1), ("a", 2)], [("a", 0), ("a", 3)]),
        ("a:2-", [("a", 2), ("a", 9)], [("a", 1)]),
        (":-2", [("x", 0), ("y", 1)], [("x", 2)]),
    ],
)
def test_selections_of_partitions(text: str, inside: list[tuple[str, int]], outside: list[tuple[str, int]]):
    rule = offsets.rule(text)
    assert all(rule(*each) for each in inside)
    assert not any(rule(*each) for each in outside)


def test_times_of_offsets():
    assert [offsets.time_of(each, 0) for each in ("latest", "-2", "max-timestamp", "10")] == [-1, -2, -3, 10]
    assert offsets.time_of("-1h", 4_000_000) == 400_000


def test_offsets_stay_inside_of_the_log() -> None:
    key, notes = TopicPartition("t", 0), list[str]()
    assert [offset_resets.within(key, each, 5, 10, notes.append) for each in (5, 7, 10)] == [5, 7, 10]
    assert notes == []
    assert [offset_resets.within(key, each, 5, 10, notes.append) for each in (-3, 11)] == [5, 10]
    assert "t-0 has offsets 5 to 10, not 11: 10 is used" in notes


def test_exported_offsets_are_read_again(tmp_path: Path):
    rows = [
        {"group": group, "topic": "a,b", "partition": number, "new_offset": number * 10}
        for group in ("g", "h")
        for number in (0, 1)
    ]
    file = tmp_path / "offsets.csv"
    file.write_text(reset_offsets.to_csv(rows, with_group=True))
    both = reset_offsets.read_csv(str(file), [])
    assert both["h"] == {TopicPartition("a,b", 0): 0, TopicPartition("a,b", 1): 10}
    file.write_text(reset_offsets.to_csv(rows[:2], with_group=False) + "\n")
    assert reset_offsets.read_csv(str(file), ["only"]) == {"only": both["g"]}


@pytest.mark.parametrize("line", ["t,0", "t,x,1", "t,0,y", "g,t,0,1,2", "t,0,--5"])
def test_files_that_are_no_offsets(line: str, tmp_path: Path):
    file = tmp_path / "offsets.csv"
    file.write_text(line)
    with pytest.raises(UsageError, match="line 1"):
        reset_offsets.read_csv(str(file), ["g"])


def test_file_with_an_offset_twice_is_rejected(tmp_path: Path):
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,5\nt,0,6\n")
    with pytest.raises(UsageError, match="line 2: t-0 of group g occurs twice"):
        reset_offsets.read_csv(str(file), ["g"])


@pytest.mark.parametrize(("partition", "offset"), [("0", "1.9"), ("0.5", "1"), ("0", '"1"'), ("0", "true")])
def test_offsets_to_delete_are_whole_numbers(partition: str, offset: str, tmp_path: Path):
    file = tmp_path / "offsets.json"
    file.write_text(f'{{"partitions": [{{"topic": "t", "partition": {partition}, "offset": {offset}}}]}}')
    with pytest.raises(UsageError, match="partitions with topic, partition and offset expected"):
        delete_records.read_offsets(str(file))


@pytest.mark.parametrize("line", ["delete-records --offset-json-file {}", "reassign execute {}"])
def test_deeply_nested_file_is_one_line_and_status_2(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000)
    assert main(line.format(file).split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
