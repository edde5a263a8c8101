import pytest

from odradek.cli.arguments.errors import UsageError
from odradek.cli.records.offset_spec import END, START, OffsetRange, Point, parse_range

NOW = 1_800_000_000_000
JANUARY = 1_769_817_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", OffsetRange(START, None)),
        ("beginning", OffsetRange(START, None)),
        ("latest", OffsetRange(END, None)),
        ("42", OffsetRange(Point("at", 42), None)),
        ("-10", OffsetRange(Point("before_end", 10), None)),
        ("+10", OffsetRange(Point("after_start", 10), None)),
        ("5:9", OffsetRange(Point("at", 5), Point("at", 9))),
        (":end", OffsetRange(START, END)),
        (":", OffsetRange(START, END)),
        ("-20:end", OffsetRange(Point("before_end", 20), END)),
        ("@-1h", OffsetRange(Point("time", NOW - 3_600_000), None)),
        ("@2026-01-31T12:00", OffsetRange(Point("time", JANUARY + 43_200_000), None)),
        ("@2026-01-31:@2026-01-31T12:00", OffsetRange(Point("time", JANUARY), Point("time", JANUARY + 43_200_000))),
        ("@2026-01-31T12:00:end", OffsetRange(Point("time", JANUARY + 43_200_000), END)),
    ],
)
def test_places(text: str, expected: OffsetRange):
    assert parse_range(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "x", "5:x", "@", "1.5", "--1", "@never:end"])
def test_what_is_no_place(text: str):
    with pytest.raises(UsageError, match="--offset"):
        parse_range(text, NOW)
