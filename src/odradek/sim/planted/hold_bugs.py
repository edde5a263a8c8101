"""Planted bugs of which work holds the event loop for too long; see `planted.broker_bugs`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

Row = tuple[str, str, str, tuple[str, ...], Callable[[Any], Any]]

HOLD_BUGS: Final[list[Row]] = []


def _bug(name: str, story: str, *targets: str, profile: str = "holds") -> Callable[[Callable[[Any], Any]], None]:
    def register(make: Callable[[Any], Any]) -> None:
        HOLD_BUGS.append((name, story, profile, targets, make))

    return register


@_bug("slice never ends", "a request that is served in slices never yields",
      "odradek.api.requests.long_work:Slices.is_over")  # fmt: skip
def _(right: Any) -> Any:
    return property(lambda self: False)


@_bug("decision in one step", "the controller takes no turns while it decides on many partitions",
      "odradek.api.requests.long_work:LongWork.complete")  # fmt: skip
def _(right: Any) -> Any:
    async def complete(self: Any, steps: Generator[None, None, Any]) -> Any:
        while True:
            try:
                next(steps)
            except StopIteration as over:
                return over.value

    return complete


@_bug("directories at once", "a broker creates and deletes all directories of an image in one step",
      "odradek.broker.storage.replica_directories:_CHUNK",
      "odradek.broker.storage.replica_directories:TURN_SECONDS")  # fmt: skip
def _(right: Any) -> Any:
    return 1_000_000


@_bug("metadata opens logs", "a Metadata request without a lease, needed or not, opens the logs of all partitions",
      "odradek.broker.storage.partitions:Partitions.may_lead",
      "odradek.replication.leadership:Leadership.shown")  # fmt: skip
def _(right: Any) -> Any:
    def shown(self: Any, image: Any, may_lead: Callable[[str, int], bool]) -> Any:
        return image if self._now() < self.lease_until else self._without_own(image, may_lead)

    if right.__name__ == "shown":
        return shown

    def may_lead(self: Any, topic: str, index: int) -> bool:
        found = self.find(topic, index)
        return found is None or bool(found.may_lead)

    return may_lead


@_bug("follower waits for its disk", "a follower waits until its batches are in their file, however slow the disk is",
      "odradek.replication.replicated_log:ReplicatedLog.append", profile="slow")  # fmt: skip
def _(right: Any) -> Any:
    def append(self: Any, batches: memoryview, leader_epoch: int, now_ms: int) -> bool:
        result = bool(right(self, batches, leader_epoch, now_ms))
        self._partition.log.durability.finish_writes()
        return result

    return append


@_bug("new segments at once", "the files of a new segment are made on the event loop, however slow the disk is",
      "odradek.log.history:LogHistory.roll", profile="slow")  # fmt: skip
def _(right: Any) -> Any:
    def roll(self: Any, offset: int, *, later: bool = False) -> None:
        del later
        right(self, offset)

    return roll


@_bug("queued batches reported", "a follower reports batches to its leader that wait for its disk",
      "odradek.replication.follower:FollowedLog.row",
      "odradek.broker.replication.queued_batches:QueuedBatches.waits", profile="slow")  # fmt: skip
def _(right: Any) -> Any:
    def row(self: Any, max_bytes: int) -> Any:
        index, leader_epoch, _, epoch, start, most = right(self, max_bytes)
        return index, leader_epoch, self.partition.log.next_offset, epoch, start, most

    return row if right.__name__ == "row" else lambda self, log, written: False


@_bug("turn never comes", "a connection that is called back too late in a turn is never called again",
      "odradek.broker.network.turns:Turns.wait")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, connection: None
