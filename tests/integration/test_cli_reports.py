"""Reports for people on the terminal: lag in time, sizes and rates."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.cli.main import main
from odradek.cli.terminal import watching
from odradek.testing import BlockingBroker


class LastLook(Exception):
    """Ends a command that repeats."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    """A broker with 5 records in the topic orders, of which the group billing has committed 2."""
    with BlockingBroker() as started:
        started.topic("orders", partitions=1)
        started.produce("orders", *"abcde")
        place = ["--topic", "orders:0", "--to-offset", "2", "--execute"]
        connection = ["-b", started.bootstrap_servers]
        assert main(["groups", "--reset-offsets", "--group", "billing", *place, *connection]) == 0
        yield started


def look(broker: BlockingBroker, capsys: pytest.CaptureFixture[str], line: str) -> Any:
    """The document that a command prints."""
    capsys.readouterr()
    assert main([*line.split(), "-b", broker.bootstrap_servers, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_lag_in_seconds_is_the_age_of_the_first_unread_record(
    broker: BlockingBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    record = broker.records("orders")[2]
    least = time.time() - record.timestamp / 1000
    (row,) = look(broker, capsys, "groups --describe --group billing")
    most = time.time() - record.timestamp / 1000
    assert row["lag"] == 3
    assert least - 0.001 <= row["lag_seconds"] <= most + 0.001


def test_watched_group_shows_lag_in_seconds_and_its_trend(
    broker: BlockingBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(1))

    def pause(_seconds: float) -> None:
        if next(looks, None) is None:
            raise LastLook

    monkeypatch.setattr(watching.repeat, "__defaults__", (pause,))
    capsys.readouterr()
    with pytest.raises(LastLook):
        main(["groups", "--describe", "--group", "billing", "--watch", "-b", broker.bootstrap_servers])
    heading, first, _, second = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert heading[5:9] == ["LAG", "LAG-SECONDS", "TREND", "CONSUMER-ID"]
    assert (first[5], first[7]) == ("3", "-")
    assert (second[5], second[7]) == ("3", "steady")
