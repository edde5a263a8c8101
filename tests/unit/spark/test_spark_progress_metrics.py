"""The metrics of pipelines: what was reported of each query, over HTTP."""

import json
import urllib.error
import urllib.request

import pytest

from odradek.metrics.exposition import TextFormat
from odradek.spark.progress import Progress
from odradek.spark.progress_metrics import METRICS, MetricsServer, PipelineMetrics

FIRST = Progress("views", 11, 1000, 500.0, 84, 1500, 900, {"in": 80, "late": 4})
SECOND = Progress("views", 12, 500, 250.0, 0, None, 400, {"in": 0, "late": 0})


def samples(metrics: PipelineMetrics) -> dict[str, float]:
    lines = metrics.text(TextFormat.PROMETHEUS).splitlines()
    return {name: float(value) for name, _, value in (each.rpartition(" ") for each in lines if each[0] != "#")}


def test_batches_add_up_and_gauges_show_the_last() -> None:
    metrics = PipelineMetrics()
    metrics.add(FIRST)
    found = samples(metrics)
    assert found['odradek_pipeline_lag_records{query="views",topic="in"}'] == 80
    assert found['odradek_pipeline_delay_seconds{query="views"}'] == 1.5
    metrics.add(SECOND)
    metrics.fail("views")
    found = samples(metrics)
    assert found.pop('odradek_pipeline_last_batch_timestamp_seconds{query="views"}') > 1e9
    assert found == {
        'odradek_pipeline_batches_total{query="views"}': 2,
        'odradek_pipeline_rows_total{query="views"}': 1500,
        'odradek_pipeline_failures_total{query="views"}': 1,
        'odradek_pipeline_batch_id{query="views"}': 12,
        'odradek_pipeline_input_rows_per_second{query="views"}': 250,
        'odradek_pipeline_lag_records{query="views",topic="in"}': 0,
        'odradek_pipeline_lag_records{query="views",topic="late"}': 0,
        'odradek_pipeline_batch_duration_seconds{query="views"}': 0.4,
    }


def test_metrics_are_served_as_text_and_as_json() -> None:
    metrics = PipelineMetrics()
    metrics.add(FIRST)
    server = MetricsServer(metrics, "127.0.0.1", 0)
    try:
        base = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{base}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert all(each.sample_name in text for each in METRICS)
        with urllib.request.urlopen(f"{base}/progress", timeout=30) as answer:
            (query,) = json.load(answer)
        assert (query["total_rows"], query["last"]["topics"]) == (1000, {"in": 80, "late": 4})
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/other", timeout=30)
    finally:
        server.close()


def test_query_that_failed_before_its_first_batch_is_counted() -> None:
    metrics = PipelineMetrics()
    metrics.fail("views")
    assert samples(metrics)['odradek_pipeline_failures_total{query="views"}'] == 1
    assert metrics.document()[0]["last"] is None
