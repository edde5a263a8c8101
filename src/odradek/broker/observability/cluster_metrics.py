"""Metrics of the controller and of the cluster as it knows it.

The active controller has the figures of the cluster; the other brokers report 0 for them, so that a sum over brokers is
right (as Kafka's controllers do). Series of the kafka_exporter family come from the controller alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol

from odradek.controller.election_counts import ElectionCounts
from odradek.metadata.image import NO_LEADER, ClusterImage
from odradek.metrics.definition import Family, Metric, counter, gauge, label, several, single

_STEP: Final = 512
"""Partitions that are looked at in one step."""


def _controller(name: str, meaning: str) -> Metric:
    return gauge(
        f"kafka_controller_kafkacontroller_{name.lower()}",
        meaning,
        f"kafka.controller:type=KafkaController,name={name}",
    )


ACTIVE: Final = _controller("ActiveControllerCount", "1 on the broker that is the controller")
OFFLINE: Final = _controller("OfflinePartitionsCount", "Partitions without a leader")
IMBALANCE: Final = _controller("PreferredReplicaImbalanceCount", "Partitions led by another than the first replica")
TOPICS: Final = _controller("GlobalTopicCount", "Topics of the cluster")
PARTITIONS: Final = _controller("GlobalPartitionCount", "Partitions of the cluster")
BROKERS: Final = _controller("ActiveBrokerCount", "Registered brokers that serve")
FENCED: Final = _controller("FencedBrokerCount", "Registered brokers that shut down")
TO_DELETE: Final = _controller("TopicsToDeleteCount", "Topics whose deletion is not complete")
UNCLEAN: Final = counter(
    "kafka_controller_controllerstats_uncleanleaderelections",
    "Leaders elected from outside the ISR and the eligible replicas, since this process started",
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
)
ELECTIONS: Final = counter(
    "odradek_leader_elections",
    "Leaders elected by this controller since the process started",
    "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs",
)
EXPORTED_BROKERS: Final = gauge("kafka_brokers", "Registered brokers", "kafka_exporter: kafka_brokers")
BROKER_INFO: Final = gauge(
    "kafka_broker_info", "Always 1, for each registered broker", "kafka_exporter: kafka_broker_info", ("id", "address")
)
TOPIC_PARTITIONS: Final = gauge(
    "kafka_topic_partitions", "Partitions of the topic", "kafka_exporter: kafka_topic_partitions", ("topic",)
)


class ObservedController(Protocol):
    """The controller in this process."""

    @property
    def is_active(self) -> bool:
        """Whether it decides."""
        ...

    @property
    def image(self) -> ClusterImage:
        """Its newest image."""
        ...

    @property
    def elections(self) -> ElectionCounts:
        """The leaders that it has elected."""
        ...


class ClusterMetrics:
    """Reads the controller of this process."""

    __slots__ = ("_controller", "_most_topics")

    metrics = (
        ACTIVE,
        OFFLINE,
        IMBALANCE,
        TOPICS,
        PARTITIONS,
        BROKERS,
        FENCED,
        TO_DELETE,
        UNCLEAN,
        ELECTIONS,
        EXPORTED_BROKERS,
        BROKER_INFO,
        TOPIC_PARTITIONS,
    )
    """See `Collector`."""

    def __init__(self, controller: ObservedController, most_topics: Callable[[], int]) -> None:
        """`most_topics`: how many topics have series of their own, of those that were created first."""
        self._controller = controller
        self._most_topics = most_topics

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        is_active = self._controller.is_active
        image = self._controller.image if is_active else ClusterImage()
        offline = imbalanced = partitions = 0
        for topic in image.topics.values():
            for state in topic.partitions:
                partitions += 1
                if not partitions % _STEP:
                    yield None
                offline += state.leader == NO_LEADER
                imbalanced += state.leader != state.replicas[0] and state.leader != NO_LEADER
        brokers = list(image.brokers.values())
        yield single(ACTIVE, int(is_active))
        yield single(OFFLINE, offline)
        yield single(IMBALANCE, imbalanced)
        yield single(TOPICS, len(image.topics))
        yield single(PARTITIONS, partitions)
        yield single(BROKERS, sum(broker.is_active for broker in brokers))
        yield single(FENCED, sum(not broker.is_active for broker in brokers))
        yield single(TO_DELETE, len(image.topics_in_deletion))
        yield single(UNCLEAN, self._controller.elections.unclean)
        yield single(ELECTIONS, self._controller.elections.elected)
        if not is_active:
            return
        yield single(EXPORTED_BROKERS, len(brokers))
        yield several(
            BROKER_INFO,
            (
                (f"{label('id', str(broker.id))},{label('address', f'{endpoint.host}:{endpoint.port}')}", 1)
                for broker in brokers
                for endpoint in list(broker.endpoints.values())[:1]
            ),
        )
        yield several(
            TOPIC_PARTITIONS,
            (
                (label("topic", topic.name), len(topic.partitions))
                for topic in islice(image.topics.values(), self._most_topics())
            ),
        )
