"""What a scrape shows of connections and of the requests that wait on them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.observability.connection_metrics import (
    CONNECTIONS,
    DELAYED,
    PURGATORY,
    QUEUED_ANSWERS,
    QUEUED_REQUESTS,
    WAITING,
    ConnectionMetrics,
)
from odradek.metrics.definition import Metric

APIS = ("Produce", "FetchConsumer", "FetchFollower", "JoinGroup", "SyncGroup", "CreateTopics")


def waiting(api: str) -> Any:
    return SimpleNamespace(ready=False, timing=SimpleNamespace(api=api))


ANSWERED = SimpleNamespace(ready=True, timing=None)


def connection(listener: str, *, queued: int = 0, requests: Sequence[Any] = ()) -> Any:
    session = SimpleNamespace(listener_name=listener)
    return SimpleNamespace(session=session, queued_requests=queued, open_requests=requests)


def figures(*connections: Any) -> dict[Metric, dict[str, float]]:
    """Values by metric and labels."""
    server: Any = SimpleNamespace(accepted=len(connections), connections=dict(enumerate(connections)))
    families = [family for family in ConnectionMetrics(server, lambda: APIS).collect() if family is not None]
    return {family.metric: {labels: value for _, labels, value in family.samples} for family in families}


@pytest.fixture(scope="module")
def busy() -> dict[Metric, dict[str, float]]:
    return figures(
        connection("PLAINTEXT", queued=2, requests=[waiting("Produce"), ANSWERED, waiting("Produce")]),
        connection("PLAINTEXT", queued=1, requests=[waiting("FetchConsumer")]),
        connection("REPLICATION", requests=[waiting("FetchFollower"), waiting("CreateTopics")]),
        connection("PLAINTEXT", requests=[waiting("JoinGroup")]),
        connection("PLAINTEXT", requests=[waiting("SyncGroup")]),
    )


def test_connections_are_counted_by_listener(busy: dict[Metric, dict[str, float]]) -> None:
    assert busy[CONNECTIONS] == {'listener="PLAINTEXT"': 4, 'listener="REPLICATION"': 1}


def test_requests_and_answers_in_queues_are_counted(busy: dict[Metric, dict[str, float]]) -> None:
    assert busy[QUEUED_REQUESTS] == {"": 3}
    assert busy[QUEUED_ANSWERS] == {"": 1}


@pytest.mark.parametrize("metric", [PURGATORY, DELAYED])
def test_purgatory_has_waiting_requests_by_kafka_operation(
    busy: dict[Metric, dict[str, float]], metric: Metric
) -> None:
    assert busy[metric] == {
        'delayedOperation="Produce"': 2,
        'delayedOperation="Fetch"': 2,
        'delayedOperation="DeleteRecords"': 0,
        'delayedOperation="Rebalance"': 2,
        'delayedOperation="ElectLeader"': 0,
    }


def test_waiting_requests_have_a_series_for_every_api(busy: dict[Metric, dict[str, float]]) -> None:
    assert busy[WAITING]['request="CreateTopics"'] == 1
    assert figures()[WAITING] == {f'request="{api}"': 0 for api in APIS}
