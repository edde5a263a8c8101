"""Medians, ratios and targets of the benchmark's table."""

from bench.metrics import METRICS, Metric, percentile, summary


def test_medians_and_ratios_are_per_metric() -> None:
    rounds = {
        "odradek": {"produce": [500.0, 300.0, 900.0], "start": [0.2]},
        "kafka": {"produce": [100.0, 250.0, 150.0], "start": [2.0]},
    }
    rows = {row.metric: row for row in summary(rounds)}
    assert list(rows) == ["start", "produce"]
    assert (rows["produce"].odradek, rows["produce"].kafka) == (500.0, 150.0)
    assert rows["produce"].ratio == 500 / 150
    assert rows["produce"].met is True
    assert rows["start"].met is True


def test_a_missed_target_says_so() -> None:
    assert METRICS["start"].met(0.5, 10.0) is False, "a good ratio does not excuse missing the limit"
    assert METRICS["start"].met(0.3, 1.0) is False, "being under the limit does not excuse a bad ratio"
    assert METRICS["produce"].met(240.0, 100.0) is False
    assert METRICS["synchronous p99"].met(61.0, 100.0) is False


def test_without_a_peer_only_the_limit_counts() -> None:
    assert METRICS["produce"].met(1.0, None) is None
    assert METRICS["start"].met(0.3, None) is True
    assert Metric("x", "s", more_is_better=False).met(1.0, 1.0) is None
    (row,) = summary({"odradek": {"produce": [1.0]}})
    assert (row.kafka, row.ratio, row.met) == (None, None, None)
    (row,) = summary({"kafka": {"produce": [1.0]}})
    assert (row.odradek, row.ratio, row.met) == (None, None, None)


def test_percentiles_are_of_the_ordered_values() -> None:
    ordered = [float(n) for n in range(1000)]
    assert [percentile(ordered, share) for share in (0, 0.5, 0.99, 0.999, 1)] == [0, 500, 990, 999, 999]
