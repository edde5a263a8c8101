"""Figures, sizes and times as pages show them; links; pages of tables."""

import json

import pytest

from odradek.console.messages.decoding import _indented, show
from odradek.console.paging import cut, ordered
from odradek.console.rendering import figure, link, moment, rate, size, span


def test_figures_have_their_thousands_apart() -> None:
    assert figure(1234567) == "1\u202f234\u202f567"
    assert figure(None) == "–"


@pytest.mark.parametrize(("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB")])
def test_sizes_have_binary_units(number: int, text: str) -> None:
    assert size(number) == text


def test_small_rates_have_a_decimal() -> None:
    assert (rate(0), rate(0.25), rate(1234.5)) == ("0/s", "0.2/s", "1\u202f234/s")


def test_moments_are_utc_with_milliseconds() -> None:
    assert moment(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert moment(-1) == "–"
    assert moment(2**62) == f"{2**62} ms"


@pytest.mark.parametrize(("seconds", "text"), [(0.25, "0.2 s"), (61, "1 min 1 s"), (7200, "2 h"), (90000, "1 d 1 h")])
def test_spans_have_two_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_links_quote_names() -> None:
    assert link("/c/a b", q="<&>", none=None) == "/c/a%20b?q=%3C%26%3E"


def test_link_keeps_a_field_that_is_called_path() -> None:
    assert link("/c/a", path="x") == "/c/a?path=x"


@pytest.mark.parametrize("value", [b'{"a":"\\ud800"}', b'["\\udc00x"]'])
def test_json_with_half_a_surrogate_keeps_its_escape(value: bytes) -> None:
    """The page could not be encoded, and no record of it was shown."""
    shown = show(value, "auto")
    assert shown.kind == "json"
    assert json.loads(shown.text) == json.loads(value)
    assert shown.text.encode()


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        {"a": {}, "b": [], "c": [[], {}]},
        [1, [2, {"x": None, "y": '{[,:]}\n"\\'}], True, -1e-05],
        {"": "é "},
        "x",
    ],
)
def test_json_has_the_lines_of_pythons_indentation(document: object) -> None:
    for text in (json.dumps(document), json.dumps(document, indent=1), json.dumps(document, separators=(",", ":"))):
        assert _indented(text) == json.dumps(document, indent=2, ensure_ascii=False)


def test_json_keeps_the_digits_of_numbers_and_names_that_occur_twice() -> None:
    """Floats rounded amounts that have more digits than they."""
    text = '{"a":12345678901234567890.10,"a":1.50,"b":1E400,"c":-0}'
    assert show(text.encode(), "auto").text == (
        '{\n  "a": 12345678901234567890.10,\n  "a": 1.50,\n  "b": 1E400,\n  "c": -0\n}'
    )


@pytest.mark.parametrize(("asked", "number"), [("2", 2), ("99", 3), ("0", 1), ("-1", 1), ("x", 1), ("9" * 5000, 1)])
def test_page_of_a_table_is_the_nearest(asked: str, number: int) -> None:
    assert cut(list(range(25)), asked, 10).number == number


def test_rows_without_value_come_last() -> None:
    assert ordered([None, 1, 2], lambda each: each, is_reversed=True) == [2, 1, None]
    assert ordered([None, 2, 1], lambda each: each, is_reversed=False) == [1, 2, None]
