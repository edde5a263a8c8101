"""Controllers of a quorum in one process: elections, decisions that survive them, restarts, and brokers on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.api.services.controller_service import NotTheController
from odradek.broker.quorum.broker_watch import BrokerWatch
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.broker.quorum.quorum_controller import QuorumController
from odradek.broker.start_error import StartError
from odradek.client import Consumer, Producer
from odradek.client.admin import Admin, NewTopic
from odradek.controller.topics import NewTopic as WantedTopic
from odradek.kraft.raft.wire_requests import TOPIC
from odradek.ports.clock import SystemClock
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.headers import encode_request_header
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationRequestFeature,
    BrokerRegistrationRequestListener,
)
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from tests.integration.conftest import RawClient
from tests.unit.broker.quorum.controllers_in_process import (
    CLUSTER,
    Quorum,
    add_broker,
    format_directory,
    quorum,
    until,
)


def run(scenario: Callable[[], Awaitable[Any]]) -> None:
    """Run a scenario, for a minute at most."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


async def create(node: ControllerNode, name: str) -> str | None:
    """Create a topic by the active controller; the name of its error."""
    controller = node.parts.controller
    (created,) = await controller.decide(lambda c: c.create_topics([WantedTopic(name, 1, 1, [], [])]))
    return None if created.failure is None else created.failure.code.name


def topics_of(node: ControllerNode) -> set[str]:
    return set(node.parts.metadata.image.topics)


def _has_topic(node: ControllerNode, name: str) -> bool:
    return name in topics_of(node)


def test_sole_voter_decides_and_finds_its_decisions_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            await add_broker(running.active)
            assert await create(running.active, "kept") is None
            assert await create(running.active, "kept") == "TOPIC_ALREADY_EXISTS"
            await running.stop(100)
            await running.start(100)
            node = await running.wait_until_active()
            assert topics_of(node) == {"kept"}
            assert node.parts.replica.leader.epoch > 1

    run(scenario)


def test_new_cluster_begins_with_its_features(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            features = running.active.parts.controller.image.features
            assert features == {"group.version": 1, "transaction.version": 2, "metadata.version": 30}

    run(scenario)


def test_next_leader_has_the_decisions_of_the_one_that_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3) as running:
            first = running.active
            await add_broker(first)
            for number in range(20):
                assert await create(first, f"t{number}") is None
            await running.stop(first.parts.replica.leader.leader_id)
            second = await running.wait_until_active()
            assert topics_of(second) == {f"t{number}" for number in range(20)}
            assert await create(second, "after") is None
            for each in running.controllers.values():
                await until(partial(_has_topic, each, "after"))

    run(scenario)


def test_controller_without_a_majority_decides_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        quick = {"controller.quorum.fetch.timeout.ms": "600"}
        async with quorum(tmp_path, controllers=3, settings=quick) as running:
            leader = running.active
            own = leader.parts.replica.leader.leader_id
            await add_broker(leader)
            for other in [each for each in running.controllers if each != own]:
                await running.stop(other)
            with pytest.raises(NotTheController):
                await create(leader, "lost")
            assert not leader.parts.controller.is_active

    run(scenario)


def test_follower_rejects_decisions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3) as running:
            follower = next(each for each in running.controllers.values() if each is not running.active)
            with pytest.raises(NotTheController):
                await create(follower, "t")

    run(scenario)


def test_controllers_register_their_listeners(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3) as running:
            await until(lambda: set(running.active.parts.metadata.image.controllers) == {100, 101, 102})
            for node, registered in running.active.parts.metadata.image.controllers.items():
                assert registered.endpoints["CONTROLLER"].port == running.ports[node]

    run(scenario)


def test_quorum_is_described_in_every_version(tmp_path: Path) -> None:
    """Listeners are answered from version 2 on; the tools of Apache Kafka before 3.9 ask in older ones."""

    def described(bootstrap: str, version: int) -> tuple[int, list[int]]:
        request = DescribeQuorumRequest([DescribeQuorumRequestTopic(TOPIC, [DescribeQuorumRequestPartition(0)])])
        client = RawClient(bootstrap)
        answer = client.call(request, version)
        client.close()
        return answer.topics[0].partitions[0].leader_id, [each.node_id for each in answer.nodes]

    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            answers = [await asyncio.to_thread(described, running.active.bound, version) for version in range(3)]
            assert answers == [(100, []), (100, []), (100, [100])]

    run(scenario)


def test_late_voter_receives_the_snapshot_and_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
        running = Quorum(tmp_path, 3, settings)
        await running.start(100, 101)
        leader = await running.wait_until_active()
        await add_broker(leader)
        for number in range(60):
            assert await create(leader, f"t{number}") is None
        await until(lambda: leader.parts.storage.log.start.offset > 0)
        await running.start(102)
        late = running.controllers[102]
        await until(lambda: len(topics_of(late)) == 60)
        assert late.parts.storage.log.start.offset > 0
        await running.close()

    run(scenario)


def test_clients_use_brokers_of_an_odradek_quorum(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3, brokers=(1, 2, 3)) as running:
            async with Admin(bootstrap_servers=running.bootstrap) as admin:
                await admin.create_topics([NewTopic("orders", 3, 3)])
            async with Producer(bootstrap_servers=running.bootstrap, acks="all") as producer:
                for number in range(30):
                    await producer.send_and_wait("orders", value=b"%d" % number)
                await running.stop(running.active.parts.replica.leader.leader_id)
                for number in range(30, 60):
                    await producer.send_and_wait("orders", value=b"%d" % number)
            await running.wait_until_active()
            async with Consumer(
                "orders", bootstrap_servers=running.bootstrap, group_id="g", auto_offset_reset="earliest"
            ) as consumer:
                values = set()
                async for record in consumer:
                    values.add(record.value)
                    if len(values) == 60:
                        break
            assert values == {b"%d" % number for number in range(60)}

    run(scenario)


def test_stopped_broker_gives_its_leaderships_away_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, brokers=(1, 2)) as running:
            async with Admin(bootstrap_servers=running.bootstrap) as admin:
                await admin.create_topics([NewTopic("t", 4, 2)])
            image = running.active.parts.metadata
            await until(lambda: all(len(p.isr) == 2 for p in image.image.topics["t"].partitions))
            await running.brokers.pop(2).stop()
            assert {p.leader for p in image.image.topics["t"].partitions} == {1}
            assert image.image.brokers[2].fenced

    run(scenario)


def test_controller_that_cannot_begin_to_decide_logs_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It leads the quorum and is never active: an operator finds the reason in this line alone."""

    def fail(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr("odradek.broker.quorum.quorum_controller.RecordController", fail)

    async def scenario() -> None:
        running = Quorum(tmp_path, 1, {})
        await running.start(*running.ports)
        await until(lambda: "the active controller failed" in caplog.text)
        await running.close()

    run(scenario)
    (failed,) = (each for each in caplog.records if each.message == "the active controller failed")
    assert failed.exc_info is not None
    assert str(failed.exc_info[1]) == "a defect"


def test_controller_seeks_a_broker_whose_connection_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead broker would lead its partitions until its session ends otherwise."""
    ended: list[int] = []
    monkeypatch.setattr(BrokerWatch, "connection_closed", lambda _watch, connection: ended.append(connection))

    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            _, writer = await asyncio.open_connection("127.0.0.1", running.ports[100])
            writer.close()
            await until(lambda: bool(ended))

    run(scenario)


def test_silent_broker_is_fenced_after_its_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            node = running.active
            await add_broker(node)
            node.parts.controller.sessions.begin(node.parts.controller.image.brokers.values(), 0.0)
            await until(lambda: node.parts.controller.image.brokers[7].fenced)

    run(scenario)


def test_silent_broker_is_fenced_although_a_look_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    balanced = QuorumController._balance_leaders
    failures = iter([ValueError("a defect")])

    async def balance(controller: QuorumController) -> None:
        for each in failures:
            raise each
        await balanced(controller)

    monkeypatch.setattr(QuorumController, "_balance_leaders", balance)

    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            node = running.active
            await add_broker(node)
            await until(lambda: "cannot look after brokers" in caplog.text)
            node.parts.controller.sessions.begin(node.parts.controller.image.brokers.values(), 0.0)
            await until(lambda: node.parts.controller.image.brokers[7].fenced)

    run(scenario)


def test_heartbeat_extends_the_session_of_its_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            parts = running.active.parts
            await add_broker(running.active)
            broker = parts.controller.image.brokers[7]
            parts.controller.sessions.begin([broker], 0.0)
            now = SystemClock().monotonic()
            assert not parts.controller.sessions.is_valid(broker, now)
            answer = await parts.brokers.heartbeat(BrokerHeartbeatRequest(7, broker.epoch, 1 << 40), 1)
            assert not answer.is_fenced
            assert parts.controller.sessions.is_valid(broker, now)

    run(scenario)


def test_followed_controller_answers_a_heartbeat_before_the_next_fetch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, controllers=3) as running:
            await add_broker(running.active)
            epoch, brokers = running.active.parts.controller.image.brokers[7].epoch, running.active.parts.brokers

            async def is_answered_at_once() -> bool:
                answer = asyncio.create_task(brokers.heartbeat(BrokerHeartbeatRequest(7, epoch, 1 << 40), 1))
                for _ in range(20):
                    await asyncio.sleep(0)
                at_once = answer.done()
                assert not (await answer).is_fenced
                return at_once

            # not all of them: where this process has stood still, a follower is late
            assert any([await is_answered_at_once() for _ in range(10)])

    run(scenario)


def test_controller_that_is_not_followed_answers_no_heartbeat(tmp_path: Path) -> None:
    """It may have a successor, which counts the broker's session from its own election."""

    async def scenario() -> None:
        settings = {"controller.quorum.fetch.timeout.ms": "3000"}
        async with quorum(tmp_path, controllers=3, settings=settings) as running:
            node = running.active
            await add_broker(node)
            epoch = node.parts.controller.image.brokers[7].epoch
            for each in [each for each in running.controllers.values() if each is not node]:
                each.parts.replica.stop()  # as one that stands still
            await asyncio.sleep(2.0)  # more than half a fetch timeout, and less than 1.5, after which it resigns
            assert node.parts.controller.is_active
            with pytest.raises(KafkaError) as raised:
                await node.parts.brokers.heartbeat(BrokerHeartbeatRequest(7, epoch, 1 << 40), 1)
            assert raised.value.code is ErrorCode.NOT_CONTROLLER
            assert not node.parts.controller.is_active

    run(scenario)


def test_heartbeat_of_another_registration_is_rejected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            await add_broker(running.active)
            epoch = running.active.parts.controller.image.brokers[7].epoch
            with pytest.raises(KafkaError) as raised:
                await running.active.parts.brokers.heartbeat(BrokerHeartbeatRequest(7, epoch - 1), 1)
            assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH

    run(scenario)


def test_second_process_of_a_running_broker_is_rejected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            await add_broker(running.active)
            request = BrokerRegistrationRequest(
                7, CLUSTER, b"another".rjust(16), [BrokerRegistrationRequestListener("PLAINTEXT", "h", 2)],
                [BrokerRegistrationRequestFeature("metadata.version", 7, 30)], log_dirs=[bytes(15) + b"\xfe"],
            )  # fmt: skip
            with pytest.raises(KafkaError) as raised:
                await running.active.parts.brokers.register(request, 1)
            assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    run(scenario)


def test_controller_rejects_software_names_that_brokers_reject(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.ports[100])
            frame = bytearray()
            encode_request_header(frame, ApiKey.API_VERSIONS, 3, 7, "client")
            ApiVersionsRequest("a\nline", "1").encode(frame, 3)
            writer.write(len(frame).to_bytes(4, "big") + frame)
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            response, _end = ApiVersionsResponse.decode(memoryview(answer), 4, 3)
            assert response.error_code == ErrorCode.INVALID_REQUEST
            writer.close()

    run(scenario)


@pytest.mark.parametrize(
    ("formatted_for", "text"), [(None, "is not formatted"), (5, "is of node 5, and node.id is 100")]
)
def test_controller_rejects_a_directory(tmp_path: Path, formatted_for: int | None, text: str) -> None:
    async def scenario() -> None:
        running = Quorum(tmp_path, 1, {})
        directory = tmp_path / "controller-100"
        (directory / "meta.properties").unlink()
        if formatted_for is not None:
            format_directory(directory, formatted_for)
        with pytest.raises(StartError, match=text):
            await ControllerNode(running.config(100)).start()

    run(scenario)


def test_request_of_a_client_waits_for_the_next_controller(tmp_path: Path) -> None:
    """As at Kafka's brokers: a client does not notice an election."""

    async def scenario() -> None:
        async with quorum(tmp_path, brokers=(1,)) as running:
            await running.stop(100)
            client = await asyncio.to_thread(RawClient, running.bootstrap)
            request = CreateTopicsRequest([CreateTopicsRequestTopic("t", 1, 1)], timeout_ms=20_000)
            created = asyncio.create_task(asyncio.to_thread(client.call, request, 7))
            await asyncio.sleep(0.1)
            assert not created.done()
            await running.start(100)
            assert [each.error_code for each in (await created).topics] == [0]
            client.close()

    run(scenario)
