"""Spark's offset log in both of its versions, and what offsets say of the cluster and topics they belong to."""

import json
from pathlib import Path

import pytest

from odradek.records.topic_partition import TopicPartition
from odradek.spark.offset_log import OffsetLogError, offsets_on, parse_entry
from odradek.spark.offsets import Origin, from_json, origin_of, to_json
from odradek.spark.transactions import TransactionError, group_offsets

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)


def test_version_1_has_a_line_for_each_source() -> None:
    ends = parse_entry('v1\n{"batchWatermarkMs":0}\n{"a":{"0":3}}\n-\n{"logOffset":4}\n7\n{"b":{"0":5}}')
    assert [(each.source, each.offsets) for each in ends] == [("0", {A0: 3}), ("4", {B0: 5})]


def test_version_2_names_the_source_of_each_line() -> None:
    ends = parse_entry('v2\n{}\n1:{"b":{"0":5}}\nviews:{"a":{"0":3}}\n2:-\n3:7')
    assert [(each.source, each.offsets) for each in ends] == [("1", {B0: 5}), ("views", {A0: 3})]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v1", {"0": [3], "1": [5]}),
        ("v2", {"0": [3], "1": [5]}),
        ("v2-named", {"views": [3], "orders": [5]}),
    ],
)
def test_entry_that_spark_wrote_is_read(name: str, expected: dict[str, list[int]]) -> None:
    """Copies of entries of Spark 4.3.0: two sources, which version 2 has in any order, and with their names."""
    text = (Path(__file__).with_name("offset_logs") / name).read_text()
    ends = parse_entry(text)
    assert {each.source: list(each.offsets.values()) for each in ends} == expected
    assert None not in {each.cluster for each in ends}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "its version is ''"),
        ('v3\n{}\n{"a":{"0":3}}', "its version is 'v3'"),
        ("v1", "it is incomplete"),
        ('v1\n{}\n{"a":{"0":', "line 3 is no offset"),
        ('v1\n{}\n0:{"a":{"0":3}}', "line 3 is no offset"),
        ('v2\n{}\n0:{"a":{"0":3}}\nrubbish', "line 4 names no source"),
        ('v2\n{}\n0:{"a"', "line 3 is no offset"),
        ('v1\n{}\n7\n{"a":{"0":"3"},"cluster.id:one":{}}', "line 4 names a cluster or topics of Kafka"),
        ('v1\n{}\n{"a":{"0":3},"b":5,"topic.id:a:id1":{}}', "line 3 names a cluster or topics of Kafka"),
        ('v2\n{}\n0:{"a":{"x":3},"cluster.id:one":{}}', "line 3 names a cluster or topics of Kafka"),
    ],
)
def test_entry_that_cannot_be_parsed_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(OffsetLogError, match=reason):
        parse_entry(text)


@pytest.mark.parametrize(
    "line",
    [
        "7",
        '{"logOffset":4}',
        '{"offset":3,"timestamp":1000}',
        '{"stream":{"0":"3"}}',
        '{"sourceVersion":1,"reservoirId":"x","reservoirVersion":5,"index":-1,"isStartingVersion":false}',
        '{"metadata":{"streamName":"s","batchId":"0"},"shardId-0":{"iteratorType":"LATEST","iteratorPosition":""}}',
    ],
)
def test_offsets_of_other_sources_are_left_out(line: str) -> None:
    """Numbers, files, rates per micro-batch, a source in Python, Delta, Kinesis."""
    assert [each.source for each in parse_entry(f'v1\n{{}}\n{line}\n{{"a":{{"0":3}}}}')] == ["1"]


def test_origin_is_kept_beside_the_offsets() -> None:
    origin = Origin("c1", {"a": "id1", "b": "id2", "gone": "id3"})
    content = json.loads(json.dumps(to_json({B0: 5, A0: 3}, origin)))
    assert from_json(content) == {A0: 3, B0: 5}
    assert origin_of(content) == Origin("c1", {"a": "id1", "b": "id2"})
    assert origin_of({"a": {"0": 3}}) == Origin()
    # what Spark's own connector skips: names without partitions
    assert {name for name, partitions in content.items() if partitions} == {"a", "b"}


def test_recreated_topics_are_those_with_another_id() -> None:
    before = Origin("c1", {"a": "id1", "b": "id2"})
    assert before.recreated(Origin("c1", {"a": "id9", "b": "id2", "new": "id3"})) == {"a"}
    assert Origin().recreated(before) == set()
    assert before.is_of_another_cluster(Origin("c2"))
    assert not before.is_of_another_cluster(Origin())


def test_group_gets_the_offsets_of_its_own_cluster_only() -> None:
    entry = 'v1\n{}\n{"a":{"0":3},"cluster.id:one":{}}\n{"a":{"0":9},"cluster.id:two":{}}'
    assert group_offsets("one", parse_entry(entry)) == {A0: 3}
    assert group_offsets("two", parse_entry(entry)) == {A0: 9}
    with pytest.raises(TransactionError, match="no source of the query reads from the cluster"):
        group_offsets("three", parse_entry(entry))


def test_two_sources_of_one_partition_have_read_up_to_the_smaller_offset() -> None:
    entry = 'v1\n{}\n{"a":{"0":3},"cluster.id:one":{}}\n{"a":{"0":2}}'
    assert offsets_on("one", parse_entry(entry)) == {A0: 2}
