import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.records.line_reader import Input, JsonReader, LineReader
from odradek.cli.records.record_format import json_format
from odradek.client.model import CREATE_TIME, ConsumerRecord


def reader(**properties: str) -> LineReader:
    return LineReader({name.replace("_", "."): value for name, value in properties.items()})


def test_a_line_is_a_value():
    assert reader().read(b"a\tb", 1) == Input(None, b"a\tb", [])


def test_the_first_separator_ends_the_key():
    found = reader(parse_key="true", key_separator=":").read(b"k:v:w", 1)
    assert (found.key, found.value) == (b"k", b"v:w")


def test_headers_come_first():
    found = reader(parse_key="true", parse_headers="TRUE").read(b"h1:v1,h2:a:b\tkey\tvalue", 1)
    assert found == Input(b"key", b"value", [("h1", b"v1"), ("h2", b"a:b")])


def test_a_missing_separator_is_an_error_that_names_the_line():
    with pytest.raises(CommandError, match="line 7: there is no key separator: 'kv'"):
        reader(parse_key="true").read(b"kv", 7)
    with pytest.raises(CommandError, match="line 2: there is no headers delimiter"):
        reader(parse_headers="true").read(b"kv", 2)
    with pytest.raises(CommandError, match="header key separator in 'h'"):
        reader(parse_headers="true").read(b"h\tv", 3)


def test_ignoring_errors_takes_the_whole_line_as_value():
    lenient = reader(parse_key="true", parse_headers="true", ignore_error="true")
    assert lenient.read(b"kv", 1) == Input(None, b"kv", [])
    assert lenient.read(b"h\tk\tv", 1) == Input(b"k", b"v", [("h", None)])


def test_the_null_marker_stands_for_null_in_every_field():
    nulls = reader(parse_key="true", parse_headers="true", null_marker="NULL")
    assert nulls.read(b"h:NULL\tNULL\tNULL", 1) == Input(None, None, [("h", None)])
    assert nulls.read(b"NULL\tk\tv", 1) == Input(b"k", b"v", [])
    with pytest.raises(CommandError, match="null marker"):
        nulls.read(b"NULL:1\tk\tv", 1)


def test_bytes_that_are_not_utf8_are_kept():
    assert reader(parse_key="true").read(b"\xff\t\xfe", 1) == Input(b"\xff", b"\xfe", [])


@pytest.mark.parametrize(
    "properties",
    [
        {"parse.keys": "true"},
        {"key.separator": ""},
        {"null.marker": ",", "headers.separator": ","},
        {"headers.separator": "\t"},
        {"headers.key.separator": ","},
        {"headers.delimiter": ":"},
    ],
)
def test_properties_that_cannot_be(properties: dict[str, str]):
    with pytest.raises(UsageError):
        LineReader(properties)


def test_json_lines():
    line = json.dumps(
        {"key": "k", "value": {"a": 1}, "headers": [{"key": "h", "value": None}], "timestamp": 5, "partition": 3}
    )
    assert JsonReader().read(line.encode(), 1) == Input(b"k", b'{"a":1}', [("h", None)], 5)
    assert JsonReader().read(b'{"value": null}', 1) == Input(None, None, [])
    encoded = base64.b64encode(b"\xff").decode()
    assert JsonReader().read(json.dumps({"value_base64": encoded}).encode(), 1).value == b"\xff"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"timestamp": "now"}',
        b'{"headers": ["h"]}',
        b'{"value_base64": "?"}',
        b'{"key_base64": 1}',
        b'{"headers": 5, "value": "x"}',
        b'{"headers": [{"key": "h", "vlaue": "x"}], "value": "x"}',
        b'{"value": "x", "value_base64": "eA=="}',
    ],
)
def test_lines_that_are_no_records_are_errors(line: bytes):
    with pytest.raises(CommandError, match="line 4"):
        JsonReader().read(line, 4)


def test_numbers_within_json_values_stay_as_they_are_written():
    """A float would round the first and make Infinity of the last, which is no JSON."""
    line = b'{"value": {"a": 12345678901234567890.10, "b": [1.50, -0.0, 7, 1E400]}, "key": 1.00}'
    found = JsonReader().read(line, 1)
    assert found == Input(b"1.00", b'{"a":12345678901234567890.10,"b":[1.50,-0.0,7,1E400]}', [])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda e: st.lists(e) | st.dictionaries(st.text(), e)
    )
)
def test_json_values_are_written_without_spaces(value: object):
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    found = JsonReader().read(json.dumps({"value": {"in": value}}).encode(), 1)
    assert found.value == b'{"in":' + compact + b"}"


def test_json_with_an_unknown_field_is_rejected_by_name():
    with pytest.raises(CommandError, match="line 7: unknown field 'vlaue'"):
        JsonReader().read(b'{"vlaue": "x"}', 7)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (r'{"value": "\ud800"}', "value is not Unicode"),
        (r'{"value": ["\ud800"]}', "value is not Unicode"),
        (r'{"value": "v", "headers": [{"key": "\ud800"}]}', "the name of a header is not Unicode"),
        ('{"value": "v", "timestamp": 9223372036854775808}', "does not fit into 64 bits"),
        ('{"value": ' + "[" * 100_000, "this is not JSON"),
    ],
)
def test_json_that_is_no_record_is_an_error_of_the_line(line: str, message: str):
    with pytest.raises(CommandError, match=f"line 3: .*{message}"):
        JsonReader().read(line.encode(), 3)


def test_json_without_a_value_is_rejected():
    with pytest.raises(CommandError, match='line 7: the field "value" is missing'):
        JsonReader().read(b'{"key": "x"}', 7)


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary())),
    timestamp=st.integers(0, 2**62),
)
def test_what_consume_prints_as_json_produce_reads(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
):
    line = json_format()(ConsumerRecord("t", 0, 1, timestamp, CREATE_TIME, key, value, headers, 0))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert JsonReader().read(line[:-1], 1) == Input(key, value, headers, timestamp)
