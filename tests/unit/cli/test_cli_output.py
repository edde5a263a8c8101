import json

import pytest
import yaml

from odradek.cli.terminal.output import Column, cell, show, show_document, table, tsv_escaped, yaml_lines

COLUMNS = (Column("NAME", "name", 6), Column("COUNT", "count"), Column("NOTE", "note", wide=True))
ROWS: list[dict[str, object]] = [
    {"name": "a", "count": 1, "note": "x\ty"},
    {"name": "longer", "count": None, "note": ""},
]


def test_columns_are_aligned_and_the_last_one_is_not_padded():
    assert list(table(ROWS, COLUMNS[:2])) == ["NAME   COUNT", "a      1", "longer -"]


def test_without_a_heading_only_values_make_the_width():
    assert list(table([{"name": "a", "count": 1}], (Column("A LONG TITLE", "name"), COLUMNS[1]), heading=False)) == [
        "a 1"
    ]


def test_no_rows_leave_the_heading():
    assert list(table([], COLUMNS[:2])) == ["NAME   COUNT"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ("", "-"), ([], "-"), ([1, 2], "1,2"), (True, "true"), ({"a": 1, "b": None}, "a=1,b=-"), (0, "0")],
)
def test_values_are_one_word(value: object, text: str):
    assert cell(value) == text


def test_wide_columns_are_shown_wide_and_in_tsv_only(capsys: pytest.CaptureFixture[str]):
    show(ROWS, COLUMNS, None)
    assert "NOTE" not in capsys.readouterr().out
    show(ROWS, COLUMNS, "wide")
    assert "NOTE" in capsys.readouterr().out
    show(ROWS, COLUMNS, "tsv")
    assert capsys.readouterr().out == "a\t1\tx\\ty\nlonger\t-\t-\n"


def test_json_is_one_document_and_jsonl_a_line_each(capsys: pytest.CaptureFixture[str]):
    show(ROWS, COLUMNS, "json")
    assert json.loads(capsys.readouterr().out) == ROWS
    show(ROWS, COLUMNS, "jsonl")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_no_rows_are_an_empty_document(capsys: pytest.CaptureFixture[str]):
    show([], COLUMNS, "json")
    assert capsys.readouterr().out == "[]\n"
    show_document([], "jsonl")
    assert capsys.readouterr().out == ""


def test_yaml_quotes_what_could_be_read_as_something_else():
    document = [
        {
            "id": "1",
            "yes": True,
            "word": "on",
            "plain": "retention.ms",
            "none": None,
            "empty": [],
            "in": [{"a": 1, "b": [2]}],
        }
    ]
    assert yaml_lines(document) == [
        '- id: "1"',
        '  "yes": true',
        '  word: "on"',
        "  plain: retention.ms",
        "  none: null",
        "  empty: []",
        "  in:",
        "    - a: 1",
        "      b:",
        "        - 2",
    ]


def test_yaml_of_nothing():
    assert yaml_lines([]) == ["[]"]
    assert yaml_lines({}) == ["{}"]


@pytest.mark.parametrize(
    "text", ["\x9b2J", "\x7f", "a\x85b", "a\u2028b", "\ufffe", "a\u00a0b", "\U0001f600", "caf\u00e9"]
)
def test_yaml_keeps_characters_that_it_forbids_as_escapes(text: str):
    (line,) = yaml_lines({"a": text})
    assert yaml.safe_load(line) == {"a": text}


def test_table_escapes_what_a_terminal_would_execute():
    rows = [{"name": "\x1b[2J\na", "count": 1}]
    assert list(table(rows, COLUMNS[:2])) == ["NAME       COUNT", "\\x1b[2J\\na 1"]


def test_tsv_keeps_lines_and_fields_apart():
    assert tsv_escaped("a\tb\nc\\d\r") == "a\\tb\\nc\\\\d\\r"
