"""Answers to a client with few rights, beside those of Apache Kafka with the same ACLs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.conftest import MakeBroker
from tests.integration.acl_probes import (
    ADMINISTRATOR,
    CLIENT,
    GROUP,
    TOPIC,
    TRANSACTION,
    Client,
    creation,
    everything_for_the_administrator,
    probes,
    removal_of_the_clients,
    sets_of_rights,
    shape,
)

KAFKA = Path(__file__).parents[2] / "bench" / "peers" / "kafka.py"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "true",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
SETTLES_SECONDS = 5
Shapes = list[set[tuple[object, ...]]]


@contextmanager
def apache(folder: Path) -> Iterator[str]:
    sets = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, str(KAFKA), "run", "--port", "0", "--for", "600", "--dir", str(folder), *sets]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        try:
            assert ready[:1] == ["ready"], f"Apache Kafka did not start, see {folder}"
            yield ready[1]
        finally:
            process.terminate()


class Server:
    """A broker with the topic, and with ACLs for the administrator."""

    def __init__(self, bootstrap: str) -> None:
        self.administrator, self.client = Client(bootstrap, ADMINISTRATOR), Client(bootstrap, CLIENT)
        self.administrator.call(CreateTopicsRequest([CreateTopicsRequestTopic(TOPIC, 1, 1)], 20_000), 5)
        self._create_coordinators()
        made = self.administrator.call(creation(everything_for_the_administrator()), 2)
        assert not any(each.error_code for each in made.results)

    def _create_coordinators(self) -> None:
        end = time.monotonic() + 60
        for kind, key in ((0, GROUP), (1, TRANSACTION)):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            while self.administrator.call(request, 4).coordinators[0].error_code and time.monotonic() < end:
                time.sleep(0.1)
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)])
        while self.administrator.call(fetch, 8).groups[0].error_code and time.monotonic() < end:
            time.sleep(0.1)

    def answers(self) -> Shapes:
        return [shape(self.client.call(request, version)) for request, version in probes()]


def test_answers_equal_those_of_apache_kafka(java_tools: object, make_broker: MakeBroker, tmp_path: Path) -> None:
    del java_tools
    broker = make_broker(SETTINGS)
    broker.start()
    names = [f"{type(request).__name__} {version}" for request, version in probes()]
    differing: list[str] = []
    with apache(tmp_path / "apache") as bootstrap:
        ours, theirs = Server(broker.bootstrap), Server(bootstrap)
        for rights in sets_of_rights():
            for each in (ours, theirs):
                each.administrator.call(removal_of_the_clients(), 2)
                if rights:
                    each.administrator.call(creation(rights), 2)
            mine = ours.answers()
            # Apache Kafka answers before its brokers know the ACLs.
            end = time.monotonic() + SETTLES_SECONDS
            while (other := theirs.answers()) != mine and time.monotonic() < end:
                time.sleep(0.2)
            for name, one, two in zip(names, mine, other, strict=True):
                if one != two:
                    differing.append(f"{[each[:4] for each in rights]}: {name}: ours {one - two}, Apache's {two - one}")
    assert not differing, "\n".join(differing)
