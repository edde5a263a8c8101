"""One broker and one console for each module of this folder."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from odradek.console import clusters
from odradek.testing.blocking import BlockingBroker
from tests.integration.console.consoles import console


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    """The broker of a module."""
    with BlockingBroker() as started:
        yield started


@pytest.fixture(scope="module")
def client(broker: BlockingBroker) -> Iterator[TestClient]:
    """A console that may change the cluster."""
    with console(broker.bootstrap_servers, allow_changes=True, sample_s=0.2) as opened:
        yield opened


@pytest.fixture(scope="module")
def reader(broker: BlockingBroker) -> Iterator[TestClient]:
    """A console that only reads."""
    with console(broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture(autouse=True)
def fresh_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages show topics that a test has just created."""
    monkeypatch.setattr(clusters, "TOPICS_FRESH_S", -1.0)
