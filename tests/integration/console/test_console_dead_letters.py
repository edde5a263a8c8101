"""Dead letters in the console: which topics, why, and back to where they came from after a preview."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from odradek.client.producer.producer import Producer
from odradek.client.reports.dead_letters import CLASS, MESSAGE, OFFSET, PARTITION, REDRIVES, TOPIC
from odradek.testing.blocking import BlockingBroker
from tests.integration.console.consoles import AT, console, post


class Case(NamedTuple):
    """A topic, its topic of dead letters, and what reads both."""

    origin: str
    letters: str
    broker: BlockingBroker
    client: TestClient
    audit: Path

    def write(self, value: bytes, topic: str | None = None, redrives: int = 0) -> None:
        """Add a letter from a topic."""

        async def send() -> None:
            async with Producer[bytes, bytes](bootstrap_servers=self.broker.bootstrap_servers) as producer:
                headers = [
                    ("own", b"kept"), (TOPIC, (topic or self.origin).encode()), (PARTITION, b"0"), (OFFSET, b"7"),
                    (CLASS, b"ValueError"), (MESSAGE, b"<b>no number</b>"), (REDRIVES, b"%d" % redrives),
                ]  # fmt: skip
                await producer.send_and_wait(self.letters, value, b"k", headers)

        asyncio.run(send())

    def preview(self, **fields: str) -> str:
        """The page of a preview."""
        return self.client.get(f"{AT}/dead-letters/{self.letters}/preview", params=fields).text

    def redrive(self, text: str, confirm: str | None = None) -> str:
        """Send the form of a preview; the page afterwards."""
        found = re.findall(r'type="hidden" name="(records|redrives|target)" value="([^"]*)"', text)
        form: dict[str, str | list[str]] = {name: value for name, value in found if name != "target"}
        form["target"] = [value for name, value in found if name == "target"]
        sent = post(
            self.client,
            f"{AT}/dead-letters/{self.letters}/redrive",
            confirm=self.letters if confirm is None else confirm,
            **form,
        )
        return str(sent.text)

    def arrived(self) -> list[bytes | None]:
        """Values in the topic."""
        return [each.value for each in self.broker.records(self.origin)]


@pytest.fixture
def case(broker: BlockingBroker, tmp_path: Path) -> Iterator[Case]:
    """Topics of one test."""
    origin = broker.topic()
    letters = broker.topic(f"{origin}-DLQ")
    with console(broker.bootstrap_servers, allow_changes=True, audit_log=str(tmp_path / "audit")) as client:
        yield Case(origin, letters, broker, client, tmp_path / "audit")


def test_topics_of_dead_letters_are_found_by_name(case: Case) -> None:
    text = case.client.get(f"{AT}/dead-letters?rows=1000").text
    assert f">{case.letters}</a>" in text
    assert f">{case.origin}</a>" not in text


def test_reasons_come_from_headers(case: Case) -> None:
    case.write(b"bad")
    text = case.client.get(f"{AT}/dead-letters/{case.letters}").text
    assert f"{case.origin}-0@7" in text
    assert "ValueError: &lt;b&gt;no number&lt;/b&gt;" in text


def test_letters_go_back_after_preview_and_confirmation(case: Case) -> None:
    case.write(b"one")
    case.write(b"two")
    text = case.preview()
    assert case.arrived() == []
    assert "To confirm" in case.redrive(text, confirm="no")
    assert case.arrived() == []
    assert "Letters were sent" in case.redrive(text)
    assert case.arrived() == [b"one", b"two"]
    headers = list(case.broker.records(case.origin)[0].headers)
    assert headers == [("own", b"kept"), (REDRIVES, b"1")]
    (line,) = case.audit.read_text().splitlines()
    assert json.loads(line)["sent"] == {case.origin: 2}
    assert "There is nothing to send" in case.preview()


def test_letters_that_were_redriven_often_are_skipped(case: Case) -> None:
    case.write(b"old", redrives=3)
    case.write(b"new", redrives=2)
    text = case.preview(redrives="3")
    assert "1 letters are skipped" in text
    case.redrive(text)
    assert case.arrived() == [b"new"]


def test_number_of_letters_is_limited(case: Case) -> None:
    case.write(b"one")
    case.write(b"two")
    case.redrive(case.preview(records="1"))
    assert case.arrived() == [b"one"]


def test_letter_for_a_topic_outside_the_preview_ends_the_redrive(case: Case) -> None:
    case.write(b"one")
    text = case.preview()
    other = case.broker.topic()
    case.write(b"strange", topic=other)
    assert f"Stopped before a letter for {other}" in case.redrive(text)
    assert case.arrived() == []
    assert case.broker.records(other) == []


@pytest.mark.parametrize("topic", ["__consumer_offsets", "missing-topic"])
def test_letter_for_an_internal_or_missing_topic_has_no_form(case: Case, topic: str) -> None:
    case.write(b"attack", topic=topic)
    text = case.preview()
    assert "no such topic, or an internal one" in text
    assert "/redrive" not in text
    form = {"confirm": case.letters, "target": topic, "records": "10", "redrives": ""}
    assert post(case.client, f"{AT}/dead-letters/{case.letters}/redrive", **form).status_code == 400


@pytest.mark.parametrize("fields", [{"records": "0"}, {"records": "x"}, {"redrives": "-1"}])
def test_wrong_limit_is_reported(case: Case, fields: dict[str, str]) -> None:
    response = case.client.get(f"{AT}/dead-letters/{case.letters}/preview", params=fields)
    assert response.status_code == 400
