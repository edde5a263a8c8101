"""`elect`, `reassign`, `log-dirs`, `transactions` and `features` on three brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from bench.peers.cluster import ClusterProcess
from odradek.cli.main import main
from odradek.client import Admin, NewTopic, Producer, TransactionalProducer
from odradek.client.admin import ConfigResource, ConfigResourceType, raise_first
from odradek.client.errors import ProducerFenced
from tests.integration.clusters import QUICK, sound_cluster
from tests.integration.waiting import until


class Outcome(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    directory = tmp_path_factory.mktemp("cluster")
    settings = {
        **QUICK,
        "auto.leader.rebalance.enable": "false",
        "log.dirs": f"{directory}/a{{id}},{directory}/b{{id}}",
        "broker.rack": "rack-{id}",
    }
    with sound_cluster(directory, settings) as running:
        yield running


@pytest.fixture
def run(cluster: ClusterProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line in this process, against the cluster."""
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", cluster.bootstrap)

    def call(line: str) -> Outcome:
        status = main(line.split())
        return Outcome(status, *capsys.readouterr())

    return call


@pytest.fixture
def topic(cluster: ClusterProcess) -> str:
    """Two partitions on brokers 1 and 2, and 2 and 3."""
    name = f"t-{uuid4().hex[:8]}"

    async def create() -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            raise_first(await admin.create_topics([NewTopic(name, replica_assignments={0: [1, 2], 1: [2, 3]})]))

    asyncio.run(create())
    return name


def replicas(run: Run, topic: str) -> dict[int, list[int]]:
    (found,) = run(f"topics --describe --topic {topic} -o json").json
    return {each["partition"]: each["replicas"] for each in found["partitions"]}


def throttles(cluster: ClusterProcess, topic: str) -> dict[str, str | None]:
    """Settings of throttles that are set for the topic or for a broker."""

    async def look() -> dict[str, str | None]:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            resources = [ConfigResource(ConfigResourceType.TOPIC, topic)]
            resources += [ConfigResource(ConfigResourceType.BROKER, str(each)) for each in (1, 2, 3)]
            found = raise_first(await admin.describe_configs(resources))
            return {
                f"{resource.name}:{name}": entry.value
                for resource, entries in found.items()
                for name, entry in entries.items()
                if "throttled" in name and entry.source.startswith("DYNAMIC")
            }

    return asyncio.run(look())


# --- elect ---


def test_preferred_leader_is_elected_again_after_a_reassignment(run: Run, topic: str) -> None:
    run(f"reassign execute --topic {topic}:0 --to 2,1 --wait")
    done = run(f"elect preferred {topic}:0")
    assert (done.status, done.out) == (
        0, f"Successfully completed leader election (PREFERRED) for partitions {topic}-0\n"
    )  # fmt: skip
    again = run(f"elect --election-type PREFERRED --topic {topic} --partition 0")
    assert (again.status, again.out) == (0, f"Valid replica already elected for partitions {topic}-0\n")


def test_election_of_a_missing_partition_fails_alone(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    wanted = [{"topic": topic, "partition": each} for each in (0, 7)]
    file.write_text(json.dumps({"partitions": wanted}))
    done = run(f"elect preferred --path-to-json-file {file} -o json")
    assert done.status == 1
    assert [each["result"] for each in done.json] == ["not needed", "failed"]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in done.json[1]["reason"]


def test_unclean_election_wants_to_be_confirmed(run: Run, topic: str) -> None:
    refused = run(f"elect unclean {topic}:0")
    assert refused.status == 2
    assert "--yes" in refused.err
    assert run(f"elect unclean {topic}:0 --yes").status == 0


# --- reassign ---


def test_plan_is_generated_executed_with_a_throttle_and_verified(
    run: Run, topic: str, cluster: ClusterProcess, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    generated = run(f"reassign generate --topic {topic} --broker-list 1,3 --write {plan}")
    assert generated.status == 0
    assert json.loads(generated.out.splitlines()[-1]) == json.loads(plan.read_text())

    executed = run(f"reassign execute {plan} --throttle 100000000")
    assert executed.status == 0, executed.err
    assert throttles(cluster, topic)["1:leader.replication.throttled.rate"] == "100000000"

    until(lambda: run(f"reassign verify {plan}").status == 0, "the plan is complete")
    assert {place: sorted(each) for place, each in replicas(run, topic).items()} == {0: [1, 3], 1: [1, 3]}
    assert throttles(cluster, topic) == {}
    assert run("reassign list").out == "No partition reassignments run.\n"


def test_apaches_options_of_reassignments_work(run: Run, topic: str, tmp_path: Path) -> None:
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    made = run(f"reassign --generate --topics-to-move-json-file {topics} --broker-list 2,3")
    plan.write_text(made.out.splitlines()[-1])
    assert run(f"reassign --execute --reassignment-json-file {plan}").status == 0
    until(lambda: run(f"reassign --verify --reassignment-json-file {plan}").status == 0, "the plan is complete")


def test_running_reassignment_is_listed_and_cancelled(run: Run, topic: str, cluster: ClusterProcess) -> None:
    async def fill() -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for _ in range(20):
                await producer.send(topic, b"x" * 100_000, partition=0)
            await producer.flush()

    asyncio.run(fill())
    # At one byte per second the move stays where it is.
    assert run(f"reassign execute --topic {topic}:0 --to 1,3 --throttle 1").status == 0
    (listed,) = run("reassign list -o json").json
    assert (listed["topic"], listed["adding"], listed["removing"]) == (topic, [3], [2])
    refused = run(f"reassign execute --topic {topic}:1 --to 2,1")
    assert refused.status == 1
    assert "--additional" in refused.err
    assert run(f"reassign cancel --topic {topic}").out.strip().endswith(f"{topic}-0")
    assert replicas(run, topic)[0] == [1, 2]
    assert throttles(cluster, topic) == {}


def test_plan_chooses_the_directories_of_new_replicas(run: Run, topic: str, tmp_path: Path) -> None:
    directories = [each["log_dir"] for each in run("log-dirs --broker-list 3 -o json").json]
    for directory in directories:
        plan = tmp_path / "plan.json"
        entry = {"topic": topic, "partition": 0, "replicas": [1, 3], "log_dirs": ["any", f"{directory}/"]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        done = run(f"reassign execute {plan} --wait")
        assert done.status == 0, done.err
        found = run(f"log-dirs --broker-list 3 --topic-list {topic} --replicas -o json").json
        assert [each["log_dir"] for each in found if each["partition"] == 0] == [directory]


def test_rejected_plan_names_the_throttles_that_remain(
    run: Run, topic: str, cluster: ClusterProcess, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    entry = {"topic": topic, "partition": 0, "replicas": [1, 3], "log_dirs": ["any", "/not/a/log/directory"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    done = run(f"reassign execute {plan} --throttle 1000000")
    assert done.status == 1
    assert done.err.endswith("; the throttles remain: `verify` of this plan removes them\n")
    assert throttles(cluster, topic)
    run(f"reassign verify {plan}")
    assert not throttles(cluster, topic)


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("reassign execute --topic {topic}:0 --to 1,9", 1, "not live: 9"),
        ("reassign execute --topic {topic}:5 --to 1,2", 1, "do not exist: {topic}-5"),
        ("reassign execute --topic {topic} --to 1,2", 2, "generate"),
        ("reassign generate --topic {topic} --replication-factor 4", 1, "4 replicas"),
        ("reassign generate --topic {topic} --broker-list 1,x", 2, "not a whole number"),
        ("reassign verify /no/such/file", 2, "No such file"),
        ("reassign", 2, "which action"),
        ("reassign cancel", 2, "exactly one"),
        ("elect preferred {topic}:9", 1, "{topic}-9"),
        ("elect preferred", 2, "exactly one"),
        ("log-dirs --broker-list 9", 1, "no broker 9"),
        ("log-dirs move --broker 1 --topic {topic}:0 --to relative", 2, "absolute"),
        ("log-dirs move --broker 1 --topic {topic}:0 --to /no/such/dir", 1, "LOG_DIR_NOT_FOUND"),
        ("transactions describe --transactional-id unknown", 1, "TRANSACTIONAL_ID_NOT_FOUND"),
        ("transactions list --state Bogus", 2, "Ongoing"),
        ("transactions force-terminate --transactional-id unknown --yes", 1, "TRANSACTIONAL_ID_NOT_FOUND"),
        ("transactions abort --topic {topic} --partition 0 --start-offset 3 --yes", 1, "offset 3"),
        ("transactions abort --topic {topic} --partition 0", 2, "--start-offset"),
        ("features upgrade --feature no.such=1", 1, "no.such"),
        ("features upgrade --feature transaction.version", 2, "NAME=LEVEL"),
    ],
)
def test_mistakes_are_one_line_with_the_exit_code(run: Run, topic: str, line: str, status: int, message: str) -> None:
    done = run(line.format(topic=topic))
    assert done.status == status, done
    assert message.format(topic=topic) in done.err
    assert len(done.err.splitlines()) == 1


# --- log-dirs ---


def test_replica_moves_to_another_directory_of_its_broker(run: Run, topic: str) -> None:
    rows = run(f"log-dirs --broker-list 1 --topic-list {topic} --replicas -o json").json
    (row,) = rows
    both = {each["log_dir"] for each in run("log-dirs --broker-list 1 -o json").json}
    (other,) = both - {row["log_dir"]}
    moved = run(f"log-dirs move --broker 1 --topic {topic}:0 --to {other}/ --wait")
    assert moved.status == 0, moved.err
    (after,) = run(f"log-dirs --broker-list 1 --topic-list {topic} --replicas -o json").json
    assert (after["log_dir"], after["is_future"]) == (other, False)


def test_directories_of_all_brokers_are_described(run: Run, topic: str) -> None:
    found = run("log-dirs -o json").json
    assert [each["broker"] for each in found] == [1, 1, 2, 2, 3, 3]
    assert all(each["state"] == "online" and each["usable_bytes"] > 0 for each in found)


# --- transactions, features ---


def test_open_transaction_is_listed_described_and_aborted(run: Run, topic: str, cluster: ClusterProcess) -> None:
    async def body() -> None:
        async with TransactionalProducer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer:
            producer.begin()
            await (await producer.send(topic, b"open", partition=0))
            await asyncio.to_thread(look)
            await producer.abort()

    def look() -> None:
        (listed,) = run(f"transactions list --transactional-id-pattern {topic} -o json").json
        assert listed["state"] == "Ongoing"
        described = run(f"transactions describe --transactional-id {topic} -o json").json
        assert described["partitions"] == [{"topic": topic, "partition": 0}]
        (producer,) = run(f"transactions describe-producers --topic {topic} --partition 0 -o json").json
        assert producer["transaction_start_offset"] == 0
        assert run(f"transactions find-hanging --topic {topic} -o json").json == []
        refused = run(f"transactions abort --topic {topic} --partition 0 --start-offset 0")
        assert refused.status == 2
        assert "--yes" in refused.err
        done = run(f"transactions abort --topic {topic} --partition 0 --start-offset 0 --yes")
        assert done.out == f"Aborted the transaction of producer {listed['producer_id']} in {topic}-0.\n"
        (after,) = run(f"transactions describe-producers --topic {topic} --partition 0 -o json").json
        assert after["transaction_start_offset"] is None

    asyncio.run(body())


def test_terminated_transaction_is_no_longer_open(run: Run, topic: str, cluster: ClusterProcess) -> None:
    async def body() -> None:
        async with TransactionalProducer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer:
            producer.begin()
            await (await producer.send(topic, b"open", partition=0))
            await asyncio.to_thread(terminate)
            with pytest.raises(ProducerFenced):
                await producer.commit()

    def terminate() -> None:
        assert run(f"transactions force-terminate --transactional-id {topic} --yes").status == 0
        described = run(f"transactions describe --transactional-id {topic} -o json").json
        assert described["partitions"] == []

    asyncio.run(body())


def test_feature_level_is_lowered_and_raised_again(run: Run) -> None:
    before = {each["feature"]: each["level"] for each in run("features -o json").json}
    assert before["transaction.version"] == 2
    tried = run("features downgrade --feature transaction.version=1 --dry-run")
    assert tried.out == "transaction.version can be downgraded to 1.\n"
    assert run("features downgrade --feature transaction.version=1").status == 0
    lowered = {each["feature"]: each["level"] for each in run("features describe -o json").json}
    assert lowered["transaction.version"] == 1
    assert run("features upgrade --feature transaction.version=2").out == "transaction.version was upgraded to 2.\n"


@pytest.mark.parametrize("command", ["elect", "reassign", "log-dirs", "transactions", "features"])
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"odradek {command}" in capsys.readouterr().out.partition("examples:")[2]
