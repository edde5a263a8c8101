import json
from typing import Any

import pytest

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.records.record_format import (
    default_format,
    json_format,
    table_format,
    template_format,
    tsv_format,
    yaml_format,
)
from odradek.client.model import ConsumerRecord


def record(**fields: Any) -> ConsumerRecord:
    given = {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_769_860_800_123,
        "timestamp_type": 0,
        "key": b"k",
        "value": b"v",
        "headers": [("h", b"1"), ("n", None)],
        "leader_epoch": 3,
    }
    return ConsumerRecord(**{**given, **fields})


def test_only_the_value_by_default():
    assert default_format({})(record()) == b"v\n"
    assert default_format({})(record(value=None)) == b"null\n"
    assert default_format({})(record(value=b"\xff\0")) == b"\xff\0\n"


def test_all_parts_in_apaches_order():
    names = ("timestamp", "key", "offset", "epoch", "partition", "headers", "value")
    every = default_format({f"print.{each}": "true" for each in names})
    assert every(record()) == b"CreateTime:1769860800123\tPartition:2\tOffset:7\tEpoch:3\th:1,n:null\tk\tv\n"
    bare = record(timestamp=-1, headers=[], key=None, leader_epoch=-1)
    assert every(bare) == b"NO_TIMESTAMP\tPartition:2\tOffset:7\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tv\n"
    assert every(record(timestamp_type=1)).startswith(b"LogAppendTime:")


def test_separators_and_literals():
    form = default_format(
        {
            "print.key": "true",
            "print.headers": "true",
            "key.separator": "|",
            "line.separator": ";",
            "headers.separator": "&",
            "null.literal": "0",
        }
    )
    assert form(record(key=None)) == b"h:1&n:0|0|v;"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("org.apache.kafka.common.serialization.LongDeserializer", b"\xff" * 8, b"-1"),
        ("IntegerDeserializer", b"\0\0\1\0", b"256"),
        ("ShortDeserializer", b"\0\x05", b"5"),
        ("DoubleDeserializer", b"\x3f\xf8" + bytes(6), b"1.5"),
        ("BooleanDeserializer", b"\1", b"true"),
        ("UUIDDeserializer", b"12345678-1234-5678-1234-567812345678", b"12345678-1234-5678-1234-567812345678"),
        ("StringDeserializer", b"text", b"text"),
        ("VoidDeserializer", b"x", b"null"),
    ],
)
def test_deserializers(name: str, data: bytes, text: bytes):
    assert default_format({"value.deserializer": name})(record(value=data)) == text + b"\n"


def test_data_of_another_length_is_an_error():
    with pytest.raises(CommandError, match="a long has 8 bytes, not 1"):
        default_format({"key.deserializer": "LongDeserializer", "print.key": "true"})(record())


def test_names_that_are_not_known():
    with pytest.raises(UsageError, match=r"print\.keys"):
        default_format({"print.keys": "true"})
    with pytest.raises(UsageError, match="AvroDeserializer"):
        default_format({"value.deserializer": "AvroDeserializer"})


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (r"%t %p %o %k %v\n", b"t 2 7 k v\n"),
        ("%s|%S|%K|%T|%H|%e", b"v|1|1|1|2|3"),
        ("%d", b"1769860800123"),
        ("%d{strftime[%F %H:%M]}", b"2026-01-31 12:00"),
        ("%h", b"h=1 n= "),
        ("%h{[%k:%v{hex}]}", b"[h:31][n:]"),
        ("%v{hex} %v{base64} %v{base64raw} %v{json}", b'76 dg== dg "v"'),
        (r"100%% \x41\t\\ %{x%}", b"100% A\t\\ {x}"),
        ("%v{unpack[B]}", b"118"),
    ],
)
def test_templates(template: str, text: bytes):
    assert template_format(template)(record()) == text


def test_templates_of_nulls_and_counts():
    form = template_format("%i %k %K;")
    assert form(record(key=None)) + form(record(key=b"")) == b"1  -1;2  0;"


@pytest.mark.parametrize("template", ["%z", "%", "%v{", "%v{gzip}", "%p{hex}", "%d{year}", r"\xgg", "%v{unpack[?!]}"])
def test_templates_that_cannot_be(template: str):
    with pytest.raises(UsageError, match="-f"):
        template_format(template)


def test_unpacking_more_than_there_is():
    with pytest.raises(CommandError, match="needs 4 bytes"):
        template_format("%v{unpack[>I]}")(record())


def test_json_has_text_or_base64():
    found = json.loads(json_format()(record(value=b"\xff")))
    assert found == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_769_860_800_123,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value_base64": "/w==",
        "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}],
    }


def test_tsv_and_tables_are_one_line():
    assert tsv_format()(record(key=None, value=b"a\tb\n\xff")) == b"t\t2\t7\t1769860800123\t-\ta\\tb\\n\\\\xff\n"
    line = table_format()(record())
    assert b"2026-01-31 12:00:00.123 k" in line
    assert b" - k" in table_format()(record(timestamp=-1))


@pytest.mark.parametrize("timestamp", [1_769_860_800_123_000, 2**63 - 1])
def test_table_shows_a_time_after_the_year_9999_as_a_number(timestamp: int):
    """Microseconds in the place of milliseconds are a common mistake; consume ended at the first such record."""
    assert b" %d k" % timestamp in table_format()(record(timestamp=timestamp))


def test_table_of_records_escapes_what_a_terminal_would_execute():
    assert table_format()(record(value=b"\x1b[2Ja\nb\tc")).endswith(b" \\x1b[2Ja\\nb\\tc\n")


def test_yaml_is_a_list_that_continues():
    text = yaml_format()(record(headers=[])).decode()
    assert text.startswith("- topic: t\n  partition: 2\n")
    assert text.endswith("  headers: []\n")
