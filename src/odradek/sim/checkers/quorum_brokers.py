"""What must hold of each broker of a KRaft cluster, beyond what holds of every cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from odradek.broker.kraft.metadata_follower import MetadataFollower
from odradek.broker.kraft.quorum_participation import QuorumParticipation
from odradek.broker.lifecycle import Inspection
from odradek.metadata.image import Broker, ClusterImage
from odradek.metadata.kraft.difference import difference
from odradek.sim.checkers.heartbeats import check_report
from odradek.sim.checkers.history import Violation
from odradek.sim.controllers.active_controller import SESSION_SECONDS
from odradek.sim.controllers.model_log import ModelBatch
from odradek.sim.controllers.simulated_controllers import CommittedLog
from odradek.sim.world.hosts import BrokerHost, World
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest

_LOOK_SECONDS: Final = 0.05
_APPLIED_SECONDS: Final = 2.0
"""Within so long after a broker has got an image, its partitions follow it."""


class QuorumBrokersWatch:
    """Looks at each broker's copy of the metadata log, and at what the broker makes of it. Raises Violation."""

    def __init__(self, world: World, quorum: CommittedLog, look_at_controllers: Callable[[], None]) -> None:
        """`look_at_controllers` is called with each look. Raises Violation."""
        self._world = world
        self._look_at_controllers = look_at_controllers
        self._quorum = quorum
        self._leader_epochs: dict[tuple[bytes, int, int], int] = {}
        """The offset of the record with which a leader epoch of a partition began."""
        self._isrs: dict[tuple[bytes, int, int], frozenset[int]] = {}
        """ISRs by partition and partition epoch."""
        self._fenced: dict[int, int] = {}
        """The offset after the record that last fenced each broker against its will."""
        self._seen: dict[str, int] = {}
        self._behind_since: dict[tuple[str, bytes, int], float] = {}
        self._image = ClusterImage()
        self._asked_boots: dict[int, int] = {}
        self._judged_boots: dict[int, int] = {}
        """How often the machine of a broker had booted when the process of its registration asked for it."""

    async def run(self) -> None:
        """Look until the run ends."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                for host in self._world.brokers:
                    self._look(host)
                self._look_at_controllers()
            except Violation as violation:
                self._world.loop.broken = violation
                return

    def committed(self, batch: ModelBatch) -> None:
        """Note what a committed batch says of leaders and ISRs, and check the epochs of brokers that register."""
        before, self._image = self._image, batch.image
        for broker in batch.image.brokers.values():
            known = before.brokers.get(broker.id)
            if known is None or (known.epoch, known.incarnation_id) != (broker.epoch, broker.incarnation_id):
                self._check_epoch(broker, batch)
            if (known is None or known.epoch != broker.epoch) and broker.id in self._asked_boots:
                self._judged_boots[broker.id] = self._asked_boots[broker.id]
        for broker_id, was in before.brokers.items():
            now = batch.image.brokers.get(broker_id)
            if now is not None and now.epoch == was.epoch and now.fenced and was.is_active:
                self._fenced[broker_id] = batch.end
        if batch.image.topics is before.topics:
            return
        for topic in batch.image.topics.values():
            if before.topics.get(topic.name) is topic:
                continue
            for index, state in enumerate(topic.partitions):
                self._leader_epochs.setdefault((topic.id, index, state.leader_epoch), batch.base)
                self._isrs[topic.id, index, state.partition_epoch] = frozenset(state.isr)

    def _check_epoch(self, broker: Broker, batch: ModelBatch) -> None:
        if not batch.base <= broker.epoch < batch.end:
            self._world.loop.broken = Violation(
                "a broker's epoch is the offset of its registration",
                f"broker {broker.id} registered at offset {batch.base}, with epoch {broker.epoch}",
            )

    def reported(self, request: BrokerRegistrationRequest | BrokerHeartbeatRequest) -> None:
        """Check what a broker reports of itself at the moment at which a controller accepts it."""
        if isinstance(request, BrokerRegistrationRequest):
            host = self._world.brokers[request.broker_id - 1]
            if not _is_of_newest(request, host):
                return
            boots = self._asked_boots[host.node_id] = host.volume.boots
            has_lost_power = boots != self._judged_boots.get(host.node_id, boots)
            if request.previous_broker_epoch >= 0 and has_lost_power and not host.may_be_clean:
                self._world.loop.broken = Violation(
                    "a broker that may have lost records names no epoch",
                    f"{host.host} lost power in {request.previous_broker_epoch}",
                )
            return
        check_report(self._world, request)

    def _look(self, host: BrokerHost) -> None:
        found = host.inspect() if host.is_up else None
        if found is None or host.process is None:
            return
        participation = found.participation
        assert isinstance(participation, QuorumParticipation)
        name = host.process.name
        follower = participation.follower
        assert isinstance(follower, MetadataFollower)
        self._look_at_log(name, follower)
        assert found.leadership is not None
        self._look_at_lease(host, name, found.leadership.lease_until, participation)
        self._look_at_leaders(host, name, found, participation)

    def _look_at_log(self, name: str, follower: MetadataFollower) -> None:
        end = follower.end_offset
        if self._seen.get(name) == end:
            return
        self._seen[name] = end
        if end > self._quorum.committed_end:
            raise Violation(
                "brokers apply committed records only", f"{name} at {end}, committed to {self._quorum.committed_end}"
            )
        expected = self._quorum.images.get(end)
        if expected is None:
            raise Violation("brokers apply whole batches", f"{name} has applied records to offset {end}")
        if changes := _changes(expected, follower.image):
            raise Violation("a broker's image is the replayed log", f"{name} at offset {end}: {changes}")

    def _look_at_lease(
        self, host: BrokerHost, name: str, lease_until: float, participation: QuorumParticipation
    ) -> None:
        remaining, epoch = lease_until - host.clock.monotonic(), participation.broker_epoch
        if remaining <= 0:
            return
        fenced = self._fenced.get(host.node_id, 0)
        if participation.metadata_offset + 1 < fenced:
            raise Violation(
                "a lease begins once the broker knows that it was fenced",
                f"{name} has one for {remaining:.3f} s and has applied offset {participation.metadata_offset}; it was "
                f"fenced before offset {fenced}",
            )
        granted = self._quorum.unfenced_at.get((host.node_id, epoch))
        if granted is None or self._world.now() + remaining > granted + SESSION_SECONDS:
            raise Violation(
                "a lease begins with an answer that the broker is unfenced",
                f"{name} has one for {remaining:.3f} s in epoch {epoch}; the last such answer came at {granted}",
            )

    def _look_at_leaders(
        self, host: BrokerHost, name: str, found: Inspection, participation: QuorumParticipation
    ) -> None:
        epoch, image = participation.broker_epoch, found.view.image
        registered = image.brokers.get(host.node_id)
        for each in found.partitions.opened():
            if not each.is_leader or not each.topic_id:
                continue
            place = each.topic_id, each.index
            where = f"{each.topic}-{each.index} at {name}"
            if registered is None or registered.epoch != epoch:
                raise Violation(
                    "no broker acts before its registration is applied", f"{where} leads; it is registered in {epoch}"
                )
            began = self._leader_epochs.get((*place, each.leader_epoch))
            if began is None:
                raise Violation("leader epochs are committed", f"{where} leads in epoch {each.leader_epoch}")
            if began <= epoch:
                raise Violation(
                    "no broker leads by an earlier registration",
                    f"{where} leads in epoch {each.leader_epoch}, of offset {began}; it registered at {epoch}",
                )
            isr = self._isrs.get((*place, each.partition_epoch))
            if isr is None or not set(each.isr) <= isr:
                raise Violation("a leader's ISR is the committed one", f"{where}: {each.isr}, committed {isr}")
            state = image.partition(each.topic, each.index)
            is_behind = state is not None and state.leader_epoch > each.leader_epoch
            self._look_at_delay((name, *place), where, is_behind=is_behind, host=host)

    def _look_at_delay(self, key: tuple[str, bytes, int], where: str, *, is_behind: bool, host: BrokerHost) -> None:
        now = self._world.now()
        process = host.process
        if not is_behind or (process is not None and process.paused_until > now) or host.volume.faults.slow:
            self._behind_since.pop(key, None)
        elif now > self._behind_since.setdefault(key, now) + _APPLIED_SECONDS:
            raise Violation("no broker leads in an epoch that is over", f"{where}, by its own image")


def _is_of_newest(request: BrokerRegistrationRequest, host: BrokerHost) -> bool:
    """Whether the process that asked still runs: a registration may arrive late, and the next process asks again."""
    found = host.inspect() if host.is_up else None
    if found is None:
        return False
    assert isinstance(found.participation, QuorumParticipation)
    return found.participation.incarnation_id == request.incarnation_id


async def see_logs_agree(world: World, quorum: CommittedLog) -> None:
    """Each broker's log on disk has the committed records, byte for byte. Raises Violation."""
    for host in world.brokers:
        found = host.inspect()
        assert found is not None
        participation = found.participation
        assert isinstance(participation, QuorumParticipation)
        assert isinstance(participation.follower, MetadataFollower)
        log = participation.follower.log
        offset, committed = log.start.offset, quorum.committed_end
        while offset < min(committed, log.log_end.offset):
            data = log.read(offset, 1)
            batch = next((each for each in quorum.committed_batches.values() if each.base == offset), None)
            if batch is None or not data.startswith(batch.data):
                raise Violation("brokers keep the committed log", f"{host.host} differs at offset {offset}")
            offset = batch.end


def _changes(expected: ClusterImage, found: ClusterImage) -> str:
    try:
        changes = difference(expected, found)
    except ValueError as error:
        return str(error)
    return "; ".join(repr(each) for each in changes[:3])
