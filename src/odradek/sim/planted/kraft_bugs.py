"""Bugs of a broker of a KRaft cluster that are planted on purpose: see `planted`, which searches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from odradek.kraft.metadata_observer import BEGINNING, TruncateTo
from odradek.metadata.kraft.metadata_replay import MetadataReplay
from odradek.sim.planted.cluster_bugs import Row

KRAFT_BUGS: Final[list[Row]] = []

_BROKER: Final = "odradek.broker.kraft"
_FOLLOWER: Final = f"{_BROKER}.metadata_follower:MetadataFollower"
_COMMITTED: Final = f"{_BROKER}.committed_replay:CommittedReplay"
_OBSERVER: Final = "odradek.kraft.metadata_observer:MetadataObserver"
_LIFE: Final = "odradek.kraft.broker_life_cycle:BrokerLifeCycle"
_PARTICIPATION: Final = f"{_BROKER}.quorum_participation:QuorumParticipation"
_LEASE: Final = f"{_BROKER}.heartbeat_lease"
_REPLAY: Final = "odradek.metadata.kraft.metadata_replay:MetadataReplay"


def _bug(
    name: str, story: str, *targets: str, profile: str = "kraft"
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        KRAFT_BUGS.append((name, story, profile, targets, make))
        return make

    return register


# --- the metadata log ---


@_bug("uncommitted metadata applied", "a broker applies records before they are committed", f"{_OBSERVER}.fetched")
def _(right: Any) -> Any:
    def fetched(self: Any, response: Any, now_ms: float) -> Any:
        steps = right(self, response, now_ms)
        self.high_watermark = self.end_offset
        return steps

    return fetched


@_bug("truncated metadata applied", "a broker applies records that it has truncated after a change of the leader",
      f"{_FOLLOWER}._carry_out")  # fmt: skip
def _(right: Any) -> Any:
    def carry_out(self: Any, steps: Any) -> None:
        waiting = self._replay._pending
        pending = list(waiting)
        right(self, steps)
        if any(isinstance(step, TruncateTo) for step in steps):
            waiting.clear()
            waiting.extend(pending)

    return carry_out


@_bug("divergence ignored", "a broker continues after its last record where the new leader's log differs before it",
      f"{_OBSERVER}._truncate")  # fmt: skip
def _(right: Any) -> Any:
    def truncate(self: Any, common: Any) -> Any:
        end = self.end_offset
        right(self, common)
        self.end_offset = end
        self._epochs.append((common.epoch, max(0, end - 1)))
        return TruncateTo(end)

    return truncate


@_bug("snapshot added to the image", "a snapshot is applied to the image before it, which keeps deleted topics",
      f"{_COMMITTED}.installed")  # fmt: skip
def _(right: Any) -> Any:
    def installed(self: Any, content: Any, end_offset: int) -> None:
        self._pending.clear()
        self._replay = MetadataReplay(self._replay.image)
        for entry in content.entries:
            self._replay.read(entry)
        self._end_snapshot(content, end_offset)

    return installed


@_bug("partial transaction applied", "records of a metadata transaction are applied before its end",
      f"{_REPLAY}._delimit")  # fmt: skip
def _(right: Any) -> Any:
    def delimit(self: Any, record: Any) -> None:
        self._pending = None

    return delimit


@_bug("aborted transaction applied", "an aborted metadata transaction is applied as an ended one",
      f"{_REPLAY}._delimit")  # fmt: skip
def _(right: Any) -> Any:
    def delimit(self: Any, record: Any) -> None:
        pending = self._pending or []
        right(self, record)
        if self._pending is None:
            for each in pending:
                self._replay(*each)

    return delimit


@_bug("snapshot in a transaction", "a broker's own snapshot is written inside a metadata transaction, which it loses",
      f"{_BROKER}.metadata_snapshots:MetadataSnapshots._can_hold")  # fmt: skip
def _(right: Any) -> Any:
    def can_hold(_replay: Any, _image: Any) -> bool:
        return True

    return staticmethod(can_hold)


@_bug("restart without a log", "a restarted broker believes in its snapshot and forgets the records after it",
      f"{_OBSERVER}.__init__")  # fmt: skip
def _(right: Any) -> Any:
    def init(
        self: Any, identity: Any, bootstrap: Any, *, start: Any = BEGINNING, epochs: Any = (), **more: Any
    ) -> None:
        right(self, identity, bootstrap, start=start, epochs=epochs, **more)
        self.high_watermark = self.end_offset

    return init


# --- registration and leases ---


@_bug("earlier registration obeyed", "a broker acts on images in which the process before it is registered",
      f"{_PARTICIPATION}._take")  # fmt: skip
def _(right: Any) -> Any:
    async def take(self: Any, image: Any, end_offset: int) -> None:
        await self._view.take(image.with_controller(self._view.node_id, self._follower.epoch))
        await right(self, image, end_offset)

    return take


@_bug("lease outlives the session", "a broker leads on for a minute after the controller found it unfenced",
      f"{_LEASE}:HeartbeatLease.unfenced")  # fmt: skip
def _(right: Any) -> Any:
    def unfenced(self: Any, asked_at: float) -> None:
        self._leadership.extend(asked_at, 60.0)

    return unfenced


@_bug("former leader not asked", "a broker leads beside one that was deposed and does not know it",
      f"{_BROKER}.deposed_leaders:former_leaders")  # fmt: skip
def _(_right: Any) -> Any:
    def former_leaders(_before: Any, _state: Any) -> set[int]:
        return set()

    return former_leaders


@_bug("lease without the news", "a broker that was fenced and unfenced leads on before it has applied either",
      f"{_LEASE}:HeartbeatLease._begin_again")  # fmt: skip
def _(right: Any) -> Any:
    async def begin_again(self: Any) -> None:
        async def known() -> None:
            return

        self._catch_up = known
        await right(self)

    return begin_again


@_bug("lease ignores deposed controllers",
      "a broker leads for a whole session after an answer of a controller whose successor has been elected",
      f"{_LEASE}:lease_ms", profile="at-once")  # fmt: skip
def _(right: Any) -> Any:
    def lease_ms(config: Any) -> float:
        return float(right(config) + config.number("controller.quorum.fetch.timeout.ms") / 2)

    return lease_ms


@_bug("lease from the answer", "a lease counts from the answer to a heartbeat, however late it comes",
      f"{_BROKER}.registrar:Registrar._note")  # fmt: skip
def _(right: Any) -> Any:
    def note(self: Any, answer: Any, asked_at: float) -> None:
        right(self, answer, self._clock.monotonic())

    return note


@_bug("fenced broker leads", "a broker that the controller has fenced takes each answer for a lease",
      f"{_BROKER}.registrar:Registrar._note")  # fmt: skip
def _(right: Any) -> Any:
    def note(self: Any, answer: Any, asked_at: float) -> None:
        right(self, answer, asked_at)
        self._unfenced(asked_at)

    return note


@_bug("epoch of the process before", "heartbeats carry the epoch of the registration before", f"{_LIFE}._heartbeat")
def _(right: Any) -> Any:
    def heartbeat(self: Any, metadata_offset: int) -> Any:
        request = right(self, metadata_offset)
        if self._identity.previous_broker_epoch >= 0:
            request.broker_epoch = self._identity.previous_broker_epoch
        return request

    return heartbeat


@_bug("unfenced before it has caught up", "a heartbeat claims metadata that the broker has not applied",
      f"{_LIFE}._heartbeat")  # fmt: skip
def _(right: Any) -> Any:
    def heartbeat(self: Any, metadata_offset: int) -> Any:
        return right(self, max(metadata_offset, self.broker_epoch))

    return heartbeat


@_bug("unclean stop called clean", "a broker whose machine lost power registers as one that has stopped cleanly",
      f"{_BROKER}.assembly:_identity", profile="kraft-dark")  # fmt: skip
def _(right: Any) -> Any:
    def identity(ports: Any, storage: Any, metadata: Any, broker: Any) -> Any:
        known = metadata.follower.image.brokers.get(broker.id)
        found = right(ports, storage, metadata, broker)
        return found if known is None else found._replace(previous_broker_epoch=known.epoch)

    return identity
