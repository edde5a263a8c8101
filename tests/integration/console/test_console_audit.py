"""Lines about changes that succeed in a part of the partitions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.client.admin import Admin
from odradek.client.admin.groups import GroupsAdmin
from odradek.records.topic_partition import TopicPartition
from odradek.testing.blocking import BlockingBroker
from odradek.wire.errors import ErrorCode, KafkaError
from tests.integration.console.consoles import AT, ask, console, post

FAILURE = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.fixture
def audited(broker: BlockingBroker, tmp_path: Path) -> Iterator[TestClient]:
    """A console that may change the cluster, with its lines in the file `audit`."""
    with console(broker.bootstrap_servers, allow_changes=True, audit_log=str(tmp_path / "audit")) as opened:
        yield opened


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    """The lines about changes."""
    return [json.loads(each) for each in (tmp_path / "audit").read_text().splitlines()]


def test_offsets_that_were_set_are_recorded_when_others_fail(
    audited: TestClient, broker: BlockingBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic(partitions=2)
    good, bad = TopicPartition(topic, 0), TopicPartition(topic, 1)
    ask(broker.bootstrap_servers, lambda admin: admin.groups.alter_offsets("g", {good: 0}))

    async def alter(_groups: GroupsAdmin, _group: str, _offsets: object) -> dict[TopicPartition, KafkaError | None]:
        return {good: None, bad: FAILURE}

    monkeypatch.setattr(GroupsAdmin, "alter_offsets", alter)
    form = {"group": "g", "confirm": "g", f"offset:{topic}:0": "0", f"offset:{topic}:1": "0"}
    assert post(audited, AT + "/group/reset", **form).status_code == 400
    (line,) = lines(tmp_path)
    assert (line["action"], line["offsets"]) == ("set offsets", {f"{topic}-0": 0})


def test_deleted_records_are_recorded_when_other_partitions_fail(
    audited: TestClient, broker: BlockingBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic(partitions=2)

    async def delete(_admin: Admin, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        return {place: FAILURE if place.partition else 0 for place in offsets}

    monkeypatch.setattr(Admin, "delete_records", delete)
    assert post(audited, f"{AT}/topics/{topic}/empty", confirm=topic).status_code == 400
    (line,) = lines(tmp_path)
    assert (line["action"], line["target"], line["partitions"]) == ("delete records", topic, [0])
