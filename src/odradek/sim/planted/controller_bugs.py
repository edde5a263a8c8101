"""Bugs of controllers of a KRaft quorum that are planted on purpose: see `planted`, which searches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from odradek.kraft.raft.effects import Synced
from odradek.sim.planted.cluster_bugs import Row

CONTROLLER_BUGS: Final[list[Row]] = []

_QUORUM: Final = "odradek.broker.quorum"
_REPLICA: Final = f"{_QUORUM}.raft_replica:RaftReplica"
_METADATA: Final = f"{_QUORUM}.committed_metadata:CommittedMetadata"
_CONTROLLER: Final = f"{_QUORUM}.quorum_controller:QuorumController"
_REQUESTS: Final = f"{_QUORUM}.broker_requests:BrokerRequests"


def _bug(
    name: str, story: str, *targets: str, profile: str = "controllers"
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        CONTROLLER_BUGS.append((name, story, profile, targets, make))
        return make

    return register


# --- the replica ---


@_bug("metadata acknowledged before the sync", "records count as durable as soon as they are appended",
      f"{_REPLICA}._begin_sync")  # fmt: skip
def _(_right: Any) -> Any:
    def begin_sync(self: Any) -> None:
        asyncio.get_running_loop().call_soon(self.submit, Synced(self._log.log_end))

    return begin_sync


@_bug("truncated metadata decided", "a controller that restarted keeps records that it truncates afterwards",
      f"{_METADATA}.truncated")  # fmt: skip
def _(_right: Any) -> Any:
    def truncated(self: Any, offset: int) -> None:
        waiting = self._replay._pending
        while len(waiting) > 1 and waiting[-1][0] > offset:
            waiting.pop()

    return truncated


@_bug("uncommitted metadata decided", "a controller replays records before they are committed",
      f"{_METADATA}.committed")  # fmt: skip
def _(right: Any) -> Any:
    def committed(self: Any, high_watermark: int) -> None:
        right(self, max(high_watermark, self._log.log_end.offset))

    return committed


@_bug("failed controller stays active", "a controller whose disk fails takes part no longer, and does not resign",
      f"{_REPLICA}.end", profile="controller-disks")  # fmt: skip
def _(_right: Any) -> Any:
    def end(self: Any) -> None:
        self.stop()

    return end


# --- decisions ---


@_bug("answer before the commit", "a controller answers as soon as it has decided", f"{_CONTROLLER}._append")
def _(right: Any) -> Any:
    def append(self: Any, epoch: int, records: Any) -> list[Any]:
        right(self, epoch, records)
        return []

    return append


@_bug("image of an earlier reign", "a controller that is elected again decides on the image that it had before",
      f"{_CONTROLLER}._end")  # fmt: skip
def _(right: Any) -> Any:
    def end(self: Any) -> None:
        active = self._active
        right(self)
        self._active = active

    return end


@_bug("leads before it knows everything", "a new controller decides before it has replayed what was committed",
      f"{_CONTROLLER}._replayed")  # fmt: skip
def _(right: Any) -> Any:
    def replayed(self: Any) -> None:
        replay = self._metadata._replay._replay
        end = replay.end_offset
        if self._replica.leads_since is not None and self._active is None and self._metadata.image.features:
            replay.end_offset = 1 << 60
        try:
            right(self)
        finally:
            replay.end_offset = end

    return replayed


@_bug("directories of moved replicas not named", "a record that changes the replicas does not name their directories",
      "odradek.metadata.kraft.partition_records:_changed_directories")  # fmt: skip
def _(right: Any) -> Any:
    def changed_directories(before: Any, after: Any) -> Any:
        return right(before, after) if after.replicas == before.replicas else None

    return changed_directories


# --- brokers ---


@_bug("broker epochs repeat", "brokers get the number of registered brokers as their epoch",
      f"{_CONTROLLER}.next_offset")  # fmt: skip
def _(_right: Any) -> Any:
    return property(lambda self: len(self.image.brokers))


@_bug("silent broker never fenced", "a controller never fences a silent broker", f"{_CONTROLLER}._fence_silent")
def _(_right: Any) -> Any:
    async def fence(_self: Any) -> None:
        return None

    return fence


@_bug("heartbeats answered unfollowed",
      "a controller answers heartbeats though a majority may have elected its successor long ago",
      f"{_CONTROLLER}.wait_until_followed", profile="early")  # fmt: skip
def _(_right: Any) -> Any:
    async def wait_until_followed(self: Any) -> None:
        return

    return wait_until_followed


@_bug("unfenced at once", "a broker is unfenced before it knows of its registration", f"{_REQUESTS}.heartbeat")
def _(right: Any) -> Any:
    async def heartbeat(self: Any, request: Any, connection: int) -> Any:
        request.current_metadata_offset = max(request.current_metadata_offset, request.broker_epoch)
        request.want_fence = False
        return await right(self, request, connection)

    return heartbeat
