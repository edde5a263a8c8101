"""Pages of a cluster with 10,000 topics and 5,000 groups: they hold a page of rows, whatever the cluster has."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from bench.console import TOPICS, large_cluster
from odradek.console.pages import topics


@pytest.fixture(scope="module")
def client() -> TestClient:
    """A browser's view of the cluster; nothing asks for the lifespan, which would connect."""
    app, _ = large_cluster(partitions=1)
    return TestClient(app, base_url="http://127.0.0.1")


def names(text: str) -> list[str]:
    """First cells of the rows, in order."""
    return re.findall(r'<th scope="row"><a href="[^"]*">([^<]*)</a>', text)


@pytest.mark.parametrize(
    ("path", "first", "rows"),
    [
        ("/topics", "large", topics.PAGE_ROWS),
        ("/topics?page=200", "topic-09949", topics.PAGE_ROWS),
        ("/topics?q=TOPIC-0999", "topic-09990", 10),
        ("/topics?sort=-records", "large", topics.PAGE_ROWS),
        ("/topics?rows=1000", "large", 1000),
        ("/groups?page=100", "group-04950", 50),
    ],
)
def test_page_has_its_rows_of_a_large_cluster(client: TestClient, path: str, first: str, rows: int) -> None:
    found = names(client.get("/c/c" + path).text)
    assert (found[0], len(found)) == (first, rows)


def test_only_shown_topics_become_rows(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a page depends on its rows, not on the topics of the cluster."""
    made: list[Any] = []
    row = topics.row

    def counted(*arguments: Any, **options: Any) -> dict[str, Any]:
        made.append(arguments)
        return row(*arguments, **options)

    monkeypatch.setattr(topics, "row", counted)
    text = client.get("/c/c/topics?sort=-records_per_second").text
    assert len(made) == topics.PAGE_ROWS
    assert f"of {TOPICS + 1:,}".replace(",", "\u202f") in text


def test_page_of_a_topic_cuts_its_partitions(client: TestClient) -> None:
    text = client.get("/c/c/topics/large").text
    assert text.count('<th scope="row"') == 100
    assert len(text) < 200_000


def test_largest_page_shows_the_first_thousand_of_a_large_topic(client: TestClient) -> None:
    assert client.get("/c/c/topics/large?rows=1000").text.count('<th scope="row"') == 1000
