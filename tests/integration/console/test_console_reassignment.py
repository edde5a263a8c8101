"""Plans of reassignments in a cluster: previews, execution with a throttle, cancellation, replication factors."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.client.admin import ConfigResource, ConfigResourceType, raise_first
from odradek.client.admin.replicas import PartitionReassignment, ReplicasAdmin
from odradek.client.network.metadata import TopicInfo
from odradek.records.topic_partition import TopicPartition
from odradek.testing.blocking import BlockingCluster
from odradek.wire.errors import ErrorCode, KafkaError
from tests.integration.console.consoles import AT, ask, console, post, token, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    """Three brokers."""
    with BlockingCluster(3) as started:
        yield started


@pytest.fixture(autouse=True)
def no_topics(cluster: BlockingCluster) -> Iterator[None]:
    """Plans are for all topics: each test has only its own."""
    yield
    names = ask(cluster.bootstrap_servers, lambda admin: admin.list_topics())
    raise_first(ask(cluster.bootstrap_servers, lambda admin: admin.delete_topics(names)))


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """The file of audit lines."""
    return tmp_path / "audit"


@pytest.fixture
def mover(cluster: BlockingCluster, audit: Path) -> Iterator[TestClient]:
    """A console that may change the cluster."""
    with console(cluster.bootstrap_servers, allow_changes=True, audit_log=str(audit)) as opened:
        yield opened


def replicas_of(cluster: BlockingCluster, topic: str) -> list[list[int]]:
    """Replicas of the partitions of a topic."""
    found = ask(cluster.bootstrap_servers, lambda admin: admin.describe_topics([topic]))[topic]
    assert isinstance(found, TopicInfo)
    return [list(each.replicas) for each in sorted(found.partitions, key=lambda each: each.partition)]


def running(cluster: BlockingCluster) -> bool:
    """Whether any partition moves."""
    return bool(ask(cluster.bootstrap_servers, lambda admin: admin.replicas.reassignments()))


def moves_of(text: str) -> str:
    """The moves in the form of a preview."""
    found = re.search(r'name="moves" value="([^"]*)"', text)
    assert found is not None
    return html.unescape(found[1])


def assigned(cluster: BlockingCluster, *replicas: list[int]) -> str:
    """A topic with these replicas."""
    topic = cluster.topic(partitions=len(replicas))
    targets = {TopicPartition(topic, at): each for at, each in enumerate(replicas)}
    ask(cluster.bootstrap_servers, lambda admin: admin.replicas.reassign(targets))
    until(lambda: not running(cluster) and replicas_of(cluster, topic) == list(replicas))
    return topic


def test_replication_factor_is_previewed_and_raised(mover: TestClient, cluster: BlockingCluster, audit: Path) -> None:
    topic = assigned(cluster, [1], [2])
    cluster.produce(topic, "a", "b")
    text = mover.get(f"{AT}/topics/{topic}/replicas?factor=3").text
    assert "2 partitions change" in text
    assert replicas_of(cluster, topic) == [[1], [2]]
    form = {"moves": moves_of(text), "throttle": "1000000"}
    assert post(mover, f"{AT}/reassignment/execute", confirm="", **form).status_code == 400
    assert post(mover, f"{AT}/reassignment/execute", confirm="test", **form).status_code == 200
    until(lambda: not running(cluster))
    found = replicas_of(cluster, topic)
    assert [each[0] for each in found] == [1, 2]
    assert [sorted(each) for each in found] == [[1, 2, 3], [1, 2, 3]]
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    name = "follower.replication.throttled.replicas"

    def throttled() -> str | None:
        found = raise_first(ask(cluster.bootstrap_servers, lambda admin: admin.describe_configs([resource])))
        return found[resource][name].value

    assert throttled()
    assert post(mover, f"{AT}/reassignment/unthrottle", confirm="test").status_code == 200
    assert not throttled()
    assert [json.loads(each)["action"] for each in audit.read_text().splitlines()] == ["reassign", "remove throttles"]


def test_replication_factor_is_lowered(mover: TestClient, cluster: BlockingCluster) -> None:
    topic = assigned(cluster, [3, 1, 2])
    moves = moves_of(mover.get(f"{AT}/topics/{topic}/replicas?factor=1").text)
    post(mover, f"{AT}/reassignment/execute", confirm="test", moves=moves)
    until(lambda: replicas_of(cluster, topic) == [[3]])


def test_plan_empties_a_broker_in_its_preview(mover: TestClient, cluster: BlockingCluster) -> None:
    topic = assigned(cluster, [2])
    text = mover.get(f"{AT}/reassignment/plan?leaving=2").text
    assert re.search(rf"^{topic}:0=2>[13]$", moves_of(text), re.MULTILINE)
    assert ", afterwards 0 %" in text
    assert replicas_of(cluster, topic) == [[2]]


@pytest.mark.parametrize("query", ["plan?leaving=9", "plan?leaving=x", "plan?tolerance=200", "plan?leaving=1,2,3"])
def test_wrong_field_of_a_plan_is_reported(mover: TestClient, cluster: BlockingCluster, query: str) -> None:
    cluster.topic()
    assert mover.get(f"{AT}/reassignment/{query}").status_code == 400


@pytest.mark.parametrize("factor", ["0", "4", "", "x"])
def test_wrong_replication_factor_is_reported(mover: TestClient, cluster: BlockingCluster, factor: str) -> None:
    assert mover.get(f"{AT}/topics/{cluster.topic()}/replicas?factor={factor}").status_code == 400


@pytest.mark.parametrize("moves", ["", "T", "T:0=1>", "T:0=1>2,2", "T:0=1>2 T:0=1>3", "T:0=3>2"])
def test_wrong_moves_are_reported(mover: TestClient, cluster: BlockingCluster, moves: str) -> None:
    topic = assigned(cluster, [1])
    form = {"moves": moves.replace("T", topic), "confirm": "test"}
    assert post(mover, f"{AT}/reassignment/execute", **form).status_code == 400
    assert replicas_of(cluster, topic) == [[1]]


def test_every_rejected_move_is_listed_and_the_others_run(
    mover: TestClient, cluster: BlockingCluster, audit: Path
) -> None:
    """The brokers 8 and 9 do not exist."""
    topic = assigned(cluster, [1], [2], [1])
    form = {"moves": f"{topic}:0=1>8 {topic}:1=2>9 {topic}:2=1>3", "confirm": "test"}
    response = post(mover, f"{AT}/reassignment/execute", **form)
    assert response.status_code == 409
    for each in (f"{topic}-0", f"{topic}-1", "broker 8", "broker 9", "rejected 2 of 3", "accepted the others"):
        assert each in response.text
    assert f"{topic}-2" not in response.text
    until(lambda: replicas_of(cluster, topic) == [[1], [2], [3]])
    line = json.loads(audit.read_text().splitlines()[-1])
    assert sorted(line["rejected"]) == [f"{topic}-0", f"{topic}-1"]
    assert sorted(line["moves"]) == [f"{topic}-2"]


def test_move_is_repeated_after_a_retriable_error(
    mover: TestClient, cluster: BlockingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = assigned(cluster, [1])
    place = TopicPartition(topic, 0)
    answers: list[Any] = [KafkaError(ErrorCode.REQUEST_TIMED_OUT), {place: KafkaError(ErrorCode.REQUEST_TIMED_OUT)}]
    reassign = ReplicasAdmin.reassign

    async def rejecting(self: ReplicasAdmin, targets: Any) -> Any:
        answer = answers.pop(0) if answers else await reassign(self, targets)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    monkeypatch.setattr(ReplicasAdmin, "reassign", rejecting)
    form = {"moves": f"{topic}:0=1>2", "confirm": "test"}
    assert post(mover, f"{AT}/reassignment/execute", **form).status_code == 200
    assert answers == []
    until(lambda: replicas_of(cluster, topic) == [[2]])


def test_moves_that_are_not_cancelled_are_listed(
    mover: TestClient, cluster: BlockingCluster, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that run are to be cancelled; the controller rejects every one."""
    places = [TopicPartition(cluster.topic(), 0), TopicPartition(cluster.topic(), 0)]

    async def running(self: ReplicasAdmin, partitions: Any = None) -> Any:
        return dict.fromkeys(places, PartitionReassignment((1, 2), (2,), (1,)))

    monkeypatch.setattr(ReplicasAdmin, "reassignments", running)
    response = post(mover, f"{AT}/reassignment/cancel", confirm="test")
    assert response.status_code == 409
    assert "rejected 2 of 2" in response.text
    assert "Nothing was changed" in response.text
    for each in places:
        assert str(each) in response.text
    assert json.loads(audit.read_text().splitlines()[-1])["partitions"] == []


def test_running_move_is_cancelled(mover: TestClient, cluster: BlockingCluster, audit: Path) -> None:
    paused = next(each for each in (2, 3) if cluster.controller() is not cluster.broker(each))
    other = 5 - paused
    topic = assigned(cluster, [other])
    cluster.produce(topic, "x")
    csrf = token(mover)
    cluster.broker(paused).pause()
    try:
        form = {"csrf": csrf, "moves": f"{topic}:0={other}>{paused}", "confirm": "test"}
        assert mover.post(f"{AT}/reassignment/execute", data=form, follow_redirects=False).status_code == 303
        assert running(cluster)
        form = {"csrf": csrf, "topic": topic, "partition": "0", "confirm": f"{topic}-0"}
        assert mover.post(f"{AT}/reassignment/cancel", data=form, follow_redirects=False).status_code == 303
    finally:
        cluster.broker(paused).resume()
    assert not running(cluster)
    assert replicas_of(cluster, topic) == [[other]]
    assert json.loads(audit.read_text().splitlines()[-1])["action"] == "cancel reassignment"
    assert post(mover, f"{AT}/reassignment/cancel", confirm="test").status_code == 400
