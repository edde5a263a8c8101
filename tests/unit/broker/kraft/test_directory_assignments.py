"""Reports of the directories in which a broker's replicas lie (KIP-858)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.cluster.peers import Purpose
from odradek.broker.cluster.remote_controller import ControllerAway
from odradek.broker.kraft import directory_assignments
from odradek.broker.kraft.directory_assignments import DirectoryAssignments
from odradek.client.admin import Admin, NewTopic
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.partition_log import PartitionLog
from odradek.metadata.directories import LOST, UNASSIGNED
from odradek.metadata.features import METADATA_VERSION
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from tests.unit.broker.quorum.controllers_in_process import Quorum, until

FIRST, SECOND = b"1" * 16, b"2" * 16
TOPIC_ID = b"t" * 16


def _answered(
    directory: AssignReplicasToDirsRequestDirectoryData, code: ErrorCode
) -> AssignReplicasToDirsResponseDirectoryData:
    """The answer for a directory, with the code for partition 0."""
    return AssignReplicasToDirsResponseDirectoryData(
        directory.id,
        [
            AssignReplicasToDirsResponseTopicData(
                topic.topic_id,
                [
                    AssignReplicasToDirsResponsePartitionData(
                        part.partition_index, ErrorCode.NONE if part.partition_index else code
                    )
                    for part in topic.partitions
                ],
            )
            for topic in directory.topics
        ],
    )


class AController:
    """Notes requests; the first `failures` get no answer, the first `errors` an error for each partition 0."""

    def __init__(self, failures: int = 0, errors: int = 0) -> None:
        self.failures = failures
        self.errors = errors
        self.requests: list[AssignReplicasToDirsRequest] = []

    async def __call__(self, request: Any, _kind: type, _timeout_ms: float, _purpose: Purpose) -> Any:
        self.requests.append(request)
        if len(self.requests) <= self.failures:
            raise ControllerAway("nothing answers")
        code = ErrorCode.UNKNOWN_TOPIC_ID if len(self.requests) <= self.errors else ErrorCode.NONE
        return AssignReplicasToDirsResponse(directories=[_answered(each, code) for each in request.directories])

    @property
    def assigned(self) -> list[dict[bytes, list[int]]]:
        """Partitions by directory, for each request."""
        return [
            {
                found.id: [part.partition_index for topic in found.topics for part in topic.partitions]
                for found in request.directories
            }
            for request in self.requests
        ]


def image_of(*directories: bytes) -> ClusterImage:
    states = tuple(PartitionState(1, 0, (1, 2), (1, 2), directories=(each, b"o" * 16)) for each in directories)
    return ClusterImage().with_features({METADATA_VERSION: 30}, 0).with_topics([Topic("t", TOPIC_ID, states)])


def run(controller: AController, image: ClusterImage, places: dict[int, bytes], until_asked: int = 1) -> None:
    async def scenario() -> None:
        found = DirectoryAssignments(1, controller, lambda _topic, index: places.get(index), lambda: 5, 1000)
        found.note(ClusterImage(), image)
        found.start()
        await until(lambda: len(controller.requests) >= until_asked)
        found.close()

    asyncio.run(scenario())


def test_replicas_elsewhere_than_in_the_image_are_reported_in_one_request() -> None:
    controller = AController()
    run(controller, image_of(UNASSIGNED, UNASSIGNED, SECOND, FIRST), {0: FIRST, 1: SECOND, 2: SECOND, 3: SECOND})
    assert controller.assigned == [{FIRST: [0], SECOND: [1, 3]}]
    assert (controller.requests[0].broker_id, controller.requests[0].broker_epoch) == (1, 5)


def test_report_is_repeated_until_the_controller_answers() -> None:
    controller = AController(failures=1)
    run(controller, image_of(UNASSIGNED), {0: FIRST}, until_asked=2)
    assert controller.assigned == [{FIRST: [0]}, {FIRST: [0]}]


def test_replica_whose_report_fails_is_reported_again() -> None:
    controller = AController(errors=1)
    run(controller, image_of(UNASSIGNED, UNASSIGNED), {0: FIRST, 1: SECOND}, until_asked=2)
    assert controller.assigned == [{FIRST: [0], SECOND: [1]}, {FIRST: [0]}]


def test_replicas_without_a_log_do_not_delay_those_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "_MOST_LOOKS", 2)
    controller = AController()
    run(controller, image_of(UNASSIGNED, UNASSIGNED, UNASSIGNED, SECOND), {2: FIRST, 3: SECOND})
    assert controller.assigned == [{FIRST: [2]}]


def test_large_reports_are_sent_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "MOST_REPLICAS", 2)
    controller = AController()
    run(controller, image_of(*[UNASSIGNED] * 3), dict.fromkeys(range(3), FIRST), until_asked=2)
    assert controller.assigned == [{FIRST: [0, 1]}, {FIRST: [2]}]


def test_replica_is_reported_once_its_log_exists() -> None:
    places: dict[int, bytes] = {}

    async def scenario() -> None:
        controller = AController()
        found = DirectoryAssignments(1, controller, lambda _topic, index: places.get(index), lambda: 5, 1000)
        found.note(ClusterImage(), image_of(UNASSIGNED))
        found.start()
        await asyncio.sleep(0)
        places[0] = FIRST
        await until(lambda: controller.assigned == [{FIRST: [0]}])
        found.close()

    asyncio.run(scenario())


def test_topic_that_is_recreated_during_a_report_is_reported_again() -> None:
    old = image_of(UNASSIGNED)
    (topic,) = old.topics.values()
    new = old.without_topics(["t"]).with_topics([topic._replace(id=b"r" * 16)])

    async def scenario() -> None:
        controller = AController()

        async def ask(request: Any, kind: type, timeout_ms: float, purpose: Purpose) -> Any:
            answer = await controller(request, kind, timeout_ms, purpose)
            if len(controller.requests) == 1:
                found.note(old, new)
            return answer

        found = DirectoryAssignments(1, ask, lambda _topic, _index: FIRST, lambda: 5, 1000)
        found.note(ClusterImage(), old)
        found.start()
        await until(lambda: len(controller.requests) == 2)
        assert [each.directories[0].topics[0].topic_id for each in controller.requests] == [TOPIC_ID, b"r" * 16]
        found.close()

    asyncio.run(scenario())


def test_leaders_leave_the_failed_directory_of_several(tmp_path: Path) -> None:
    async def scenario() -> None:
        running = Quorum(tmp_path, 1, {})
        running.log_dirs = 2
        await running.start(100)
        await running.wait_until_active()
        await running.start_brokers(1, 2)
        try:
            async with Admin(bootstrap_servers=running.bootstrap) as admin:
                await admin.create_topics([NewTopic("t", 4, 2)])
            metadata = running.active.parts.metadata
            brokers = {node: each.inspect() for node, each in running.brokers.items()}

            def placed(node: int, index: int) -> bytes | None:
                inspected = brokers[node]
                assert inspected is not None
                found = inspected.directories.directory_of("t", index)
                return None if found is None else found.directory_id

            def is_known() -> bool:
                states = metadata.image.topics["t"].partitions
                return all(
                    directory == placed(node, index)
                    for index, state in enumerate(states)
                    for node, directory in zip(state.replicas, state.directories, strict=True)
                )

            await until(is_known)
            inspected = brokers[1]
            assert inspected is not None
            failed = inspected.directories.directories[1]  # the first has the metadata log
            lost = {index for index in range(4) if placed(1, index) == failed.directory_id}
            assert 0 < len(lost) < 4
            inspected.directories.events.directory_failed(failed.path)

            def has_moved() -> bool:
                states = metadata.image.topics["t"].partitions
                return all(states[i].leader == 2 and 1 not in states[i].isr for i in lost)

            await until(has_moved)
            assert failed.directory_id not in metadata.image.brokers[1].log_dirs
            assert not metadata.image.brokers[1].fenced
        finally:
            await running.close()

    asyncio.run(scenario())


def test_leader_leaves_a_replica_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unexpected exception became another one, for a directory named t-0, and ended the broker."""
    opened = LogDirectories.open
    bad: list[LogDirectories] = []

    def open_log(directories: LogDirectories, topic: str, *arguments: Any, **more: Any) -> PartitionLog:
        if topic == "t" and directories in bad:
            raise RuntimeError("unexpected")
        return opened(directories, topic, *arguments, **more)

    async def scenario() -> None:
        running = Quorum(tmp_path, 1, {})
        await running.start(100)
        await running.wait_until_active()
        await running.start_brokers(1, 2)
        try:
            leader = running.brokers[1].inspect()
            assert leader is not None
            bad.append(leader.directories)
            async with Admin(bootstrap_servers=running.bootstrap) as admin:
                await admin.create_topics([NewTopic("t", replica_assignments={0: [1, 2]})])
            metadata = running.active.parts.metadata

            def has_moved() -> bool:
                state = metadata.image.partition("t", 0)
                return state is not None and state.leader == 2 and state.isr == (2,) and state.directories[0] == LOST

            await until(has_moved)
            assert not leader.participation.has_failed.is_set()
            assert not metadata.image.brokers[1].fenced
        finally:
            await running.close()

    monkeypatch.setattr(LogDirectories, "open", open_log)
    asyncio.run(scenario())


def test_broker_ends_when_its_last_log_directory_fails(tmp_path: Path) -> None:
    """The metadata log lies elsewhere: the controller fenced the broker and released it with each heartbeat."""

    async def scenario() -> None:
        running = Quorum(tmp_path, 1, {"brokers:metadata.log.dir": str(tmp_path / "metadata")})
        running.log_dirs = 2
        await running.start(100)
        await running.wait_until_active()
        await running.start_brokers(1)
        try:
            broker = running.brokers[1].inspect()
            assert broker is not None
            first, last = broker.directories.directories
            first.offline = "failed"
            broker.directories.events.directory_failed(first.path)
            assert not broker.participation.has_failed.is_set()
            last.offline = "failed"
            broker.directories.events.directory_failed(last.path)
            assert broker.participation.has_failed.is_set()
        finally:
            await running.close()

    asyncio.run(scenario())
