"""Figures from the metrics of brokers: parsing, quantiles between two scrapes, URLs that do not answer."""

import asyncio

import pytest

from odradek.console.broker_metrics import BrokerMetrics, Scrape, delay_of, parse

SOFTWARE = "kafka_server_socket_server_metrics_connections_software"
PAGE = f"""# HELP kafka_network_requestmetrics_totaltimems Milliseconds
kafka_network_requestmetrics_totaltimems{{request="Produce",quantile="0.5"}} 1.25
kafka_network_requestmetrics_totaltimems{{quantile="0.99",request="Produce"}} 7.5
kafka_network_requestmetrics_totaltimems{{request="Fetch",quantile="0.99"}} NaN
kafka_network_requestmetrics_totaltimems{{request="Metadata",quantile="0.99"}} 9
kafka_network_requestmetrics_totaltimems_count{{request="Produce"}} 9
odradek_event_loop_delay_seconds_bucket{{le="0.001"}} 90
odradek_event_loop_delay_seconds_bucket{{le="0.01"}} 100
odradek_event_loop_delay_seconds_bucket{{le="+Inf"}} 100
odradek_event_loop_delay_seconds_bucket{{le="wrong"}} x
{SOFTWARE}{{clientSoftwareName="librdkafka",clientSoftwareVersion="2.5",listener="A"}} 3
{SOFTWARE}{{clientSoftwareName="incomplete"}} 4
"""


def test_figures_are_read_from_a_page_of_metrics() -> None:
    found = parse(PAGE)
    assert found.latencies == {("Produce", "0.5"): 1.25, ("Produce", "0.99"): 7.5}
    assert found.delays == {0.001: 90.0, 0.01: 100.0, float("inf"): 100.0}
    assert found.software == {("librdkafka", "2.5", "A"): 3}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, {0.001: 5.0, float("inf"): 5.0}, None),
        ({}, {0.001: 99.0, 0.01: 100.0, float("inf"): 100.0}, 1.0),
        ({0.001: 50.0, 0.01: 50.0, float("inf"): 50.0}, {0.001: 50.0, 0.01: 60.0, float("inf"): 60.0}, 10.0),
        ({}, {0.001: 0.0, float("inf"): 10.0}, 1.0),
        ({0.001: 7.0, float("inf"): 7.0}, {0.001: 7.0, float("inf"): 7.0}, None),
    ],
)
def test_delay_is_that_between_two_scrapes(
    before: dict[float, float] | None, now: dict[float, float], expected: float | None
) -> None:
    assert delay_of(None if before is None else Scrape({}, before), Scrape({}, now)) == expected


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/metrics", "http://[", "http://127.0.0.1:1 /", "file:///etc/passwd"]
)
def test_url_that_does_not_answer_is_a_failure(url: str) -> None:
    metrics = BrokerMetrics([url])
    asyncio.run(metrics.scrape())
    assert list(metrics.failures) == [url]
    assert metrics.history[-1].latencies_ms == {}
