import pytest

from odradek.cli.arguments.errors import UsageError
from odradek.cli.records.times import duration_ms, timestamp_ms

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1H30M", 5_400_000),
        ("P7D", 604_800_000),
        ("P1DT0.5S", 86_400_500),
        ("pt10s", 10_000),
        ("-PT1M", -60_000),
        ("P2W", 1_209_600_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("1.5s", 1_500),
    ],
)
def test_durations(text: str, expected: int):
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1", "h", "1x", "1h 30m", "P1H"])
def test_what_is_no_duration(text: str):
    with pytest.raises(UsageError, match="duration"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1769860800000", 1_769_860_800_000),
        ("2026-01-31T12:00:00.000", 1_769_860_800_000),
        ("2026-01-31T12:00", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
        ("2026-01-31T12:00:00.250Z", 1_769_860_800_250),
        ("2026-01-31", 1_769_817_600_000),
        ("-1h", NOW - 3_600_000),
        ("-PT1H", NOW - 3_600_000),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, expected: int):
    assert timestamp_ms(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "-", "-x"])
def test_what_is_no_time(text: str):
    with pytest.raises(UsageError):
        timestamp_ms(text, NOW)
