"""Figures of performance tests with times that the test chooses."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.actions.perf_figures import MEGABYTE, ConsumerFigures, Latencies, ProducerFigures
from odradek.client.model import RecordMetadata


class Now:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def sent_at(ms: int) -> RecordMetadata:
    return RecordMetadata("t", 0, 0, ms)


@given(st.lists(st.integers(0, 50), min_size=1), st.sampled_from([0.5, 0.95, 0.99, 0.999]))
def test_percentile_is_the_smallest_value_that_covers_the_part(values: list[int], part: float) -> None:
    latencies = Latencies()
    for each in values:
        latencies.add(each)
    found = latencies.percentile(part)
    assert sum(each <= found for each in values) >= part * len(values)
    assert sum(each < found for each in values) < part * len(values)
    assert latencies.maximum == max(values)


def test_producer_lines_have_the_form_of_apaches_tool() -> None:
    now = Now()
    figures = ProducerFigures(MEGABYTE, now)
    now.ms += 2_000
    for latency in (10, 20, 30, 40):
        figures.on_acknowledgement(sent_at(now.ms - latency), None)
    assert figures.window_line() == (
        "4 records sent, 2.0 records/sec (2.00 MB/sec), 25.0 ms avg latency, 40.0 ms max latency."
    )
    assert figures.window_line().startswith("0 records sent, 0.0 records/sec")
    assert figures.total_line() == (
        "4 records sent, 2.000000 records/sec (2.00 MB/sec), 25.00 ms avg latency, 40.00 ms max latency, "
        "20 ms 50th, 40 ms 95th, 40 ms 99th, 40 ms 99.9th."
    )


def test_lost_records_are_counted_apart() -> None:
    figures = ProducerFigures(10, Now())
    figures.on_acknowledgement(None, ValueError("lost"))
    assert (figures.document()["records"], figures.document()["failed"]) == (0, 1)


def test_consumer_line_separates_rebalance_from_fetch_time() -> None:
    figures = ConsumerFigures(1_000_000)
    figures.joined_ms = 1_001_000
    figures.add(100, 3 * MEGABYTE, 1_002_500)
    figures.add(200, 3 * MEGABYTE, 1_003_000)
    row = dict(zip(figures.HEADER.split(", "), figures.line().split(", "), strict=True))
    assert row["start.time"].endswith(":000")
    del row["start.time"], row["end.time"]
    assert row == {
        "data.consumed.in.MB": "6.0000", "MB.sec": "2.0000", "data.consumed.in.nMsg": "300", "nMsg.sec": "100.0000",
        "rebalance.time.ms": "1000", "fetch.time.ms": "2000", "fetch.MB.sec": "3.0000", "fetch.nMsg.sec": "150.0000",
    }  # fmt: skip
