"""Events for OpenLineage: what is emitted when, and what happens while the receiver is away."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openlineage.client.serde import Serde

from odradek.spark.datasets import Dataset
from odradek.spark.lineage import _MOST_EVENTS, RUNNING_S, Emitter, Lineage, LineageError, open_client
from odradek.spark.progress import Follower

IN, OUT, MORE = Dataset("kafka://b:9092", "in"), Dataset("kafka://b:9092", "out"), Dataset("file", "/lake/t")
RUN = "5e7b99bd-d84d-462d-af98-7166c5b4af1e"


class Sent:
    """Events as a receiver has them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[dict[str, Any]] = []
        self.lineage = Lineage(self.emit, "views", lambda text: text.split("\n")[0], lambda: self.now)

    def emit(self, event: Any) -> None:
        self.events.append(Serde.to_dict(event))

    def kinds(self) -> list[tuple[str, str]]:
        return [(each["eventType"], each["job"]["name"]) for each in self.events]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None of OpenLineage's settings, which may be in the working directory or at home, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE_DISABLED", "OPENLINEAGE_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def test_pipeline_is_the_parent_of_its_queries() -> None:
    sent = Sent()
    sent.lineage.begin()
    sent.lineage.on_start(RUN, "copy")
    sent.lineage.on_batch(RUN, [IN], [OUT])
    sent.lineage.on_end(RUN, None)
    sent.lineage.end(None)
    assert sent.kinds() == [
        ("START", "views"), ("START", "views.copy"), ("RUNNING", "views.copy"), ("COMPLETE", "views.copy"),
        ("COMPLETE", "views"),
    ]  # fmt: skip
    application, started, running, complete, _ = sent.events
    assert running["run"]["runId"] == RUN
    assert running["run"]["facets"]["parent"]["run"]["runId"] == application["run"]["runId"]
    assert running["run"]["facets"]["processing_engine"]["name"] == "Spark"
    assert running["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert started["inputs"] == started["outputs"] == []
    for event in (running, complete):
        assert [(each["namespace"], each["name"]) for each in event["inputs"]] == [IN]
        assert [(each["namespace"], each["name"]) for each in event["outputs"]] == [OUT]
    assert {each["job"]["namespace"] for each in sent.events} == {"odradek"}


def test_namespace_of_jobs_is_openlineages_own_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "warehouse")
    sent = Sent()
    sent.lineage.begin()
    assert sent.events[0]["job"]["namespace"] == "warehouse"


def test_query_says_that_it_runs_now_and_then_and_about_new_datasets() -> None:
    sent = Sent()
    sent.lineage.on_start(RUN, "copy")
    for outputs, now in (([OUT], 1.0), ([OUT], 2.0), ([MORE], 3.0), ([OUT], 4.0), ([OUT], 3.0 + RUNNING_S), ([], 70.0)):
        sent.now = now
        sent.lineage.on_batch(RUN, [IN], outputs)
    assert [len(each["outputs"]) for each in sent.events] == [0, 1, 2, 2]


def test_failure_has_its_reason_and_the_first_end_counts() -> None:
    sent = Sent()
    sent.lineage.begin()
    sent.lineage.on_start(RUN, "copy")
    sent.lineage.on_end(RUN, "planted\nat a.b.c(D.scala:1)")
    sent.lineage.end("copy failed: planted")
    sent.lineage.end(None)
    assert sent.kinds()[2:] == [("FAIL", "views.copy"), ("FAIL", "views")]
    assert [each["run"]["facets"]["errorMessage"]["message"] for each in sent.events[2:]] == [
        "planted", "copy failed: planted",
    ]  # fmt: skip


class Client:
    """A receiver that can be away; it notes events and that it was closed."""

    def __init__(self) -> None:
        self.is_away = False
        self.is_asked = threading.Event()
        self.answers = threading.Event()
        self.answers.set()
        self.received: list[Any] = []
        self.is_closed = False

    def emit(self, event: Any) -> None:
        self.is_asked.set()
        assert self.answers.wait(30)
        if self.is_away:
            raise ConnectionError("no route")
        self.received.append(event)

    def close(self, timeout: float) -> None:
        self.is_closed = True


def test_all_events_are_emitted_in_order_before_the_end() -> None:
    client = Client()
    emitter = Emitter(client)
    for number in range(50):
        emitter.emit(number)
    emitter.close()
    assert client.received == list(range(50))
    assert client.is_closed


def test_receiver_that_is_away_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.is_away = True
    emitter = Emitter(client)
    for number in range(3):
        emitter.emit(number)
    emitter.close()
    assert [each.getMessage() for each in caplog.records] == ["events for OpenLineage are lost: no route"]


def test_receiver_that_does_not_answer_delays_neither_queries_nor_the_end(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.answers.clear()
    emitter = Emitter(client)
    emitter.emit(0)
    assert client.is_asked.wait(30)
    for number in range(_MOST_EVENTS + 2):
        emitter.emit(number)
    emitter.close(timeout_s=0.05)
    assert caplog.records[0].getMessage() == "events for OpenLineage are lost: too many events wait"
    assert "wait at the end" in caplog.records[-1].getMessage()
    client.answers.set()


def test_end_does_not_wait_for_a_receiver_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.answers.clear()
    emitter = Emitter(client)
    emitter.emit(1)
    emitter.close(timeout_s=0.05)
    assert "may be lost" in caplog.records[-1].getMessage()
    client.answers.set()


def test_events_need_an_address() -> None:
    with pytest.raises(LineageError, match="set OPENLINEAGE_URL"):
        open_client()


@pytest.mark.parametrize(("given", "kind"), [("http", "http"), ("console", "console"), ("file", "file")])
def test_settings_are_those_of_openlineage(tmp_path: Path, given: str, kind: str) -> None:
    address = {"http": "\n  url: http://127.0.0.1:1", "console": "", "file": f"\n  log_file_path: {tmp_path}/e"}[given]
    (tmp_path / "openlineage.yml").write_text(f"transport:\n  type: {given}{address}\n")
    assert open_client().transport.kind == kind


def test_wrong_settings_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "nothing that is an address")
    with pytest.raises(LineageError, match="OpenLineage's settings"):
        open_client()


# --- the follower ---


def java(**values: Any) -> Any:
    """An object whose methods return these values."""
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


def text(value: str) -> Any:
    return java(toString=value)


class Watched:
    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def on_start(self, *given: Any) -> None:
        self.seen.append(("start", *given))

    def on_batch(self, *given: Any) -> None:
        self.seen.append(("batch", *given))

    def on_end(self, *given: Any) -> None:
        self.seen.append(("end", *given))


@pytest.mark.parametrize("failure", [None, "planted"])
def test_follower_notifies_its_watcher_of_queries(failure: str | None, caplog: pytest.LogCaptureFixture) -> None:
    report = '{"id": "q", "name": "copy", "batchId": 0, "numInputRows": 3, "sources": []}'
    found = java(isDefined=failure is not None, get=text(failure or ""))
    query = java(
        runId=text(RUN), id=text("q"), name="copy", isActive=False, recentProgress=[java(json=report)], exception=found,
        logicalPlan=java(collectLeaves=java(size=0), getClass=java(getSimpleName="Other")),
    )  # fmt: skip
    watched = Watched()
    failed: list[tuple[str, str]] = []
    follower = Follower(None, lambda _: None, lambda *given: failed.append(given), watched)
    follower._active = lambda: {RUN: query}  # type: ignore[method-assign]
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        # the second time it has ended, and Spark has not yet forgotten it
        follower.look()
    follower.close()
    assert watched.seen == [("start", RUN, "copy"), ("batch", RUN, [], []), ("end", RUN, failure)]
    assert failed == ([] if failure is None else [("copy", "planted")])
