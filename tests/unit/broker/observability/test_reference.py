"""The declarations of metrics, and the page that is made of them."""

from __future__ import annotations

import re

from odradek.broker.observability.reference import NOT_OFFERED, SECTIONS, page
from odradek.metrics.definition import Kind
from tests.unit.house.sources import ROOT

METRICS = [metric for _, metrics in SECTIONS for metric in metrics]


def test_metrics_page_is_made_of_the_declarations() -> None:
    assert (ROOT / "docs/METRICS.md").read_text().rstrip() == "\n".join(page()).rstrip()


def test_metric_names_are_unique() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))


def test_metric_names_and_labels_are_those_of_prometheus() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name), metric
        assert not metric.name.endswith("_total"), metric
        assert all(re.fullmatch(r"[a-zA-Z_]+", name) for name in metric.labels), metric


def test_summaries_have_a_quantile_label_and_histograms_a_bound() -> None:
    for metric in METRICS:
        assert ("quantile" in metric.labels) == (metric.kind is Kind.SUMMARY), metric
        assert ("le" in metric.labels) == (metric.kind is Kind.HISTOGRAM), metric


def test_names_that_are_not_offered_are_not_declared() -> None:
    declared = {metric.name for metric in METRICS}
    assert not declared & {name for name, _ in NOT_OFFERED}
