"""What a scrape shows of connections and of the requests that wait on them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.observability.connection_metrics import (
    CONNECTIONS,
    DELAYED,
    MAX_SOFTWARE,
    PURGATORY,
    QUEUED_ANSWERS,
    QUEUED_REQUESTS,
    SOFTWARE,
    WAITING,
    ConnectionMetrics,
)
from odradek.metrics.definition import Metric

APIS = ("Produce", "FetchConsumer", "FetchFollower", "JoinGroup", "SyncGroup", "CreateTopics")


def waiting(api: str) -> Any:
    return SimpleNamespace(ready=False, timing=SimpleNamespace(api=api))


ANSWERED = SimpleNamespace(ready=True, timing=None)


def connection(
    listener: str, *, queued: int = 0, requests: Sequence[Any] = (), software: tuple[str, str] = ("", "")
) -> Any:
    name, version = software
    session = SimpleNamespace(listener_name=listener, client_software_name=name, client_software_version=version)
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


def test_connections_are_counted_by_software() -> None:
    java = ("apache-kafka-java", "4.3.0")
    found = figures(connection("A", software=java), connection("A", software=java), connection("B"))[SOFTWARE]
    assert found == {
        'clientSoftwareName="apache-kafka-java",clientSoftwareVersion="4.3.0",listener="A"': 2,
        'clientSoftwareName="unknown",clientSoftwareVersion="unknown",listener="B"': 1,
    }


def test_software_that_clients_invent_has_few_series_with_short_names() -> None:
    many = [connection("A", software=("x" * 1000, str(number))) for number in range(MAX_SOFTWARE + 7)]
    found = figures(*many)[SOFTWARE]
    assert len(found) == MAX_SOFTWARE + 1
    assert found['clientSoftwareName="other",clientSoftwareVersion="other",listener="A"'] == 7
    assert max(map(len, found)) < 200
