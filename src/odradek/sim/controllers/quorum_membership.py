"""What a simulated quorum knows of brokers: registrations, and the states of partitions that it has committed."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from odradek.metadata.image import ClusterImage, PartitionState
from odradek.metadata.nodes import TopicContent
from odradek.sim.checkers.stored_metadata import StoredStates
from odradek.sim.controllers.model_quorum import ModelQuorum

if TYPE_CHECKING:
    from odradek.sim.world.hosts import BrokerHost


class RecordedCluster(Protocol):
    """A quorum whose committed records say what the cluster knows."""

    @property
    def image(self) -> ClusterImage:
        """The cluster after its committed records."""
        ...


class RecordedRegistrations:
    """The part of `Membership` that the committed records answer, whichever controllers there are."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: RecordedCluster) -> None:
        self._cluster = cluster

    def is_registered(self, host: BrokerHost) -> bool:
        """See `Membership`: its newest process, not fenced."""
        found = host.inspect() if host.is_up else None
        broker = self._cluster.image.brokers.get(host.node_id)
        if found is None or broker is None:
            return False
        return not broker.fenced and broker.epoch == found.participation.broker_epoch

    def registered_epoch(self, host: BrokerHost) -> int | None:
        """See `Membership`."""
        broker = self._cluster.image.brokers.get(host.node_id)
        return None if broker is None else broker.epoch

    def is_trusted(self, host: BrokerHost) -> bool:
        """See `Membership`: what an unclean end has cost is decided with the next registration."""
        return host.node_id in self._cluster.image.brokers


class QuorumMembership(RecordedRegistrations):
    """Implements `Membership` for modelled controllers."""

    __slots__ = ("_quorum",)

    def __init__(self, quorum: ModelQuorum) -> None:
        super().__init__(quorum)
        self._quorum = quorum

    def is_fenced(self, host: BrokerHost) -> bool:
        """See `Membership`."""
        broker = self._quorum.image.brokers.get(host.node_id)
        return broker is None or not broker.is_active

    def deciding_epoch(self, awake: Collection[int]) -> int | None:
        """See `Membership`: wherever the brokers are."""
        leader = self._quorum.leader
        if leader is None or leader.slow_until > self._quorum.loop.time():
            return None
        return leader.epoch if leader.high_watermark == leader.log.end.offset else None


class RecordedStates(StoredStates):
    """The partitions as the quorum has committed them."""

    __slots__ = ("_image",)

    def __init__(self, unclean: frozenset[str]) -> None:
        super().__init__(unclean)
        self._image = ClusterImage()

    def committed(self, image: ClusterImage) -> None:
        """Check the changes of one decision, and record its result."""
        before, self._image = self._image, image
        if image.topics is before.topics:
            return
        self.topics = {
            topic.name: TopicContent(topic.id, tuple(state.replicas for state in topic.partitions), {}, {})
            for topic in image.topics.values()
        }
        for name, topic in before.topics.items():
            now = image.topics.get(name)
            if now is None or now.id != topic.id:
                for index in range(len(topic.partitions)):
                    self.states.pop((name, index), None)
        for name, topic in image.topics.items():
            for index, state in enumerate(topic.partitions):
                key = name, index
                known = self.states.get(key)
                if known is not state and known != state:
                    self._changed(key, known, state)

    def may_have_no_isr(self, state: PartitionState) -> bool:
        """With eligible leader replicas (KIP-966), the ISR may be empty."""
        return bool(state.elr or state.last_known_elr)
