"""The text formats, as Prometheus' own parsers read them."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from odradek.metrics.definition import Family, Kind, Metric, counter, gauge, label, several, single
from odradek.metrics.exposition import TextFormat, accepted_format, portions
from odradek.metrics.histogram import Histogram

REQUESTS = counter("requests", 'Requests with a \\ and a\nline break, "quoted"', labels=("client",))
SIZE = gauge("size", "Bytes")
TIMES = Metric("times_seconds", Kind.HISTOGRAM, ("le",), "Times")
QUICK = Metric("quick_ms", Kind.SUMMARY, ("quantile",), "Quick times")


def families() -> list[Family | None]:
    histogram = Histogram()
    histogram.observe(0.002)
    summary = [("", 'quantile="0.5"', 2.0), ("_count", "", 1), ("_sum", "", 2.0)]
    return [
        several(REQUESTS, ((label("client", f"c{i}"), i) for i in range(200))),
        None,
        single(SIZE, 7),
        Family(TIMES, histogram.samples("")),
        Family(QUICK, summary),
    ]


@pytest.mark.parametrize("text_format", list(TextFormat))
def test_text_is_read_by_the_parser_of_its_format(text_format: TextFormat) -> None:
    text = "".join(portions(families(), text_format))
    parse = parse_openmetrics if text_format is TextFormat.OPENMETRICS else parse_text
    found = {sample.name: sample.value for family in parse(text) for sample in family.samples}
    assert found["size"] == 7
    assert found["times_seconds_count"] == 1
    assert found["requests_total"] == 199


@pytest.mark.parametrize("value", ["plain", 'a"b', "back\\slash", "two\nlines", "ünïcode"])
def test_label_value_survives_the_parser(value: str) -> None:
    text = "".join(portions([several(REQUESTS, [(label("client", value), 1)])], TextFormat.OPENMETRICS))
    (family,) = parse_openmetrics(text)
    assert family.samples[0].labels == {"client": value}


def test_portions_are_small() -> None:
    assert max(portion.count("\n") for portion in portions(families(), TextFormat.PROMETHEUS)) <= 66


def test_family_without_samples_is_left_out() -> None:
    assert "".join(portions([several(REQUESTS, [])], TextFormat.PROMETHEUS)) == ""


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", TextFormat.PROMETHEUS),
        ("*/*", TextFormat.PROMETHEUS),
        ("text/plain", TextFormat.PROMETHEUS),
        ("application/openmetrics-text; version=1.0.0", TextFormat.OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5", TextFormat.OPENMETRICS),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.5", TextFormat.PROMETHEUS),
        ("application/openmetrics-text;q=nonsense", TextFormat.PROMETHEUS),
    ],
)
def test_format_follows_the_accept_header(accept: str, expected: TextFormat) -> None:
    assert accepted_format(accept) is expected
