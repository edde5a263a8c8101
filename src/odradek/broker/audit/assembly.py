"""The audit of a broker, made of its settings and parts."""

from __future__ import annotations

from collections.abc import Callable

from odradek.api.audit.selection import Selection, check_events
from odradek.api.audit.trail import AuditTrail
from odradek.broker.cluster.cluster_parts import BrokerLink
from odradek.broker.cluster.peers import Peers, Purpose
from odradek.broker.configuration.authorizers import super_users
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.delivery.record_queue import RecordQueue
from odradek.broker.delivery.topic_writer import Leaders, TopicDelivery, TopicWriter
from odradek.broker.storage.partitions import Partitions
from odradek.metadata.image import AUDIT_TOPIC, ClusterImage
from odradek.ports.clock import Clock


def audit_selection(config: BrokerConfig) -> Selection:
    """What the settings leave out of the topic. Raises ValueError."""
    return Selection(
        check_events(config.words("odradek.audit.exclude.events")),
        super_users(config.text("odradek.audit.exclude.principals")),
        tuple(config.words("odradek.audit.exclude.topics")),
    )


class Audit:
    """The audit of a broker with `odradek.audit.topic.enable`."""

    __slots__ = ("queue", "trail", "writer")

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        image: Callable[[], ClusterImage],
        partitions: Partitions,
        link: BrokerLink,
        peers: Peers,
    ) -> None:
        self.queue = RecordQueue(lambda: config.number("odradek.audit.queue.bytes"))
        """Events that wait."""
        self.trail = AuditTrail(config.node_id, clock.now_ms, audit_selection(config), self.queue)
        """Makes the events."""
        leaders = Leaders(config.node_id, image, partitions, peers, clock.now_ms)
        delivery = TopicDelivery(AUDIT_TOPIC, Purpose.AUDIT, leaders, link)
        self.writer = TopicWriter(AUDIT_TOPIC, self.queue, delivery.write)
        """Writes them."""
