"""Reports to the controller in which log directory each replica of this broker lies (AssignReplicasToDirs, KIP-858).

The controller knows it by itself only of new replicas on a broker with one directory. Without the report it elects no
other leader when a directory of several fails, and no replica in a directory that has replaced another one is in sync.
Source: Kafka's `AssignmentsManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from odradek.broker.cluster.peers import Purpose
from odradek.broker.cluster.remote_controller import AskController
from odradek.broker.task_failures import logs_failure
from odradek.metadata.features import metadata_level
from odradek.metadata.image import ClusterImage
from odradek.metadata.metadata_versions import DIRECTORIES_SINCE
from odradek.metadata.topic_changes import partition_changes
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import KafkaError
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)

logger = logging.getLogger("odradek.broker.kraft")
_log_failure = logs_failure(logger, "reporting directories of replicas failed")

MOST_REPLICAS: Final = 2_250
"""Replicas in one request, as in Kafka."""
_MOST_LOOKS: Final = 5_000
"""Replicas that are looked at in one turn of the loop: a broker may have many at its start."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 10.0
"""Between tries, as in Kafka."""
_LONGEST_WAIT_SECONDS: Final = 1.0
"""Between looks for logs that are not created yet."""


class Replica(NamedTuple):
    """A replica of this broker, with the id of the directory in which it lies."""

    topic_id: bytes
    partition: int
    directory: bytes


Locate = Callable[[str, int], bytes | None]
"""The id of the directory that has a partition; None if none has it yet."""


class DirectoryAssignments:
    """`note` each image; `start` once this broker is registered; `close` ends it."""

    __slots__ = ("_ask", "_epoch", "_image", "_locate", "_node_id", "_pending", "_task", "_timeout_ms", "_woken")

    def __init__(
        self, node_id: int, ask: AskController, locate: Locate, broker_epoch: Callable[[], int], timeout_ms: float
    ) -> None:
        """`timeout_ms` is that of one request."""
        self._node_id = node_id
        self._ask = ask
        self._locate = locate
        self._epoch = broker_epoch
        self._timeout_ms = timeout_ms
        self._image = ClusterImage()
        self._pending: dict[PartitionKey, None] = {}
        """Partitions whose directory may differ from that in the image, in the order in which they changed."""
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, old: ClusterImage, new: ClusterImage) -> None:
        """Look at the replicas that the image has changed."""
        self._image = new
        if metadata_level(new) < DIRECTORIES_SINCE:
            return  # no record could carry the report
        if metadata_level(old) < DIRECTORIES_SINCE:
            old = ClusterImage()
        if old.topics is new.topics:
            return
        for change in partition_changes(old, new):
            if self._node_id in change.state.replicas:
                self._pending[change.topic.name, change.partition] = None
        self._woken.set()

    def moved(self, topic: str, partition: int) -> None:
        """A replica lies in another directory from now on: no image changes with it."""
        self._pending[topic, partition] = None
        self._woken.set()

    def start(self) -> None:
        """Report from here on."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(_log_failure)

    def close(self) -> None:
        """Report no longer."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            await self._woken.wait()
            self._woken.clear()
            # Logs are created after the image has named their replicas, some in each turn of the loop.
            await asyncio.sleep(pause)
            wanted, unplaced = self._misplaced()
            for key in wanted:  # what changes from here on is reported again
                del self._pending[key]
            noted = set(await self._report(wanted)) if wanted else set()
            self._pending.update((key, None) for key in wanted if key not in noted)
            if len(noted) < len(wanted):
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                is_waiting = 0 < len(self._pending) == unplaced
                pause = min(2 * pause, _LONGEST_WAIT_SECONDS) if is_waiting else _FIRST_PAUSE_SECONDS
            if self._pending:
                self._woken.set()

    def _misplaced(self) -> tuple[dict[PartitionKey, Replica], int]:
        """Replicas that lie in another directory than the image says; and how many of those seen lie in none yet."""
        found: dict[PartitionKey, Replica] = {}
        unplaced = []
        for key in list(islice(self._pending, _MOST_LOOKS)):
            topic, state = self._image.topics.get(key[0]), self._image.partition(*key)
            if topic is None or state is None or self._node_id not in state.replicas:
                del self._pending[key]
                continue
            directory = self._locate(*key)
            if directory is None:
                unplaced.append(key)
            elif state.directories and state.directories[state.replicas.index(self._node_id)] == directory:
                del self._pending[key]
            elif len(found) < MOST_REPLICAS:
                found[key] = Replica(topic.id, key[1], directory)
        for key in unplaced:  # behind those that were not looked at
            del self._pending[key]
            self._pending[key] = None
        return found, len(unplaced)

    async def _report(self, wanted: Mapping[PartitionKey, Replica]) -> Collection[PartitionKey]:
        """The replicas that the controller has noted. A later image may show that the others are no longer here."""
        request = request_of(self._node_id, self._epoch(), wanted.values())
        try:
            answer = await self._ask(request, AssignReplicasToDirsResponse, self._timeout_ms, Purpose.OWN)
        except KafkaError as error:
            logger.debug("cannot report the directories of %d replicas: %s; retrying", len(wanted), error)
            return ()
        if answer.error_code:
            logger.debug("the controller answers AssignReplicasToDirs with error %d; retrying", answer.error_code)
            return ()
        noted = {
            Replica(topic.topic_id, part.partition_index, directory.id)
            for directory in answer.directories
            for topic in directory.topics
            for part in topic.partitions
            if not part.error_code
        }
        found = [key for key, replica in wanted.items() if replica in noted]
        if len(found) < len(wanted):
            logger.debug("the controller has not noted the directories of %d replicas", len(wanted) - len(found))
        return found


def request_of(node_id: int, epoch: int, replicas: Iterable[Replica]) -> AssignReplicasToDirsRequest:
    """The request for these replicas."""
    directories: dict[bytes, dict[bytes, list[AssignReplicasToDirsRequestPartitionData]]] = {}
    for each in replicas:
        topics = directories.setdefault(each.directory, {})
        topics.setdefault(each.topic_id, []).append(AssignReplicasToDirsRequestPartitionData(each.partition))
    return AssignReplicasToDirsRequest(
        node_id,
        epoch,
        [
            AssignReplicasToDirsRequestDirectoryData(
                directory,
                [AssignReplicasToDirsRequestTopicData(topic, partitions) for topic, partitions in topics.items()],
            )
            for directory, topics in directories.items()
        ],
    )
