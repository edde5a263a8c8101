"""What a broker knows of its cluster at one moment: brokers, topics, partitions, configurations.

A `ClusterImage` never changes; a change makes the next one, which shares all it can with the one before. Whoever holds
an image can therefore read it for as long as it likes, and compare two by identity of their parts (`topic_changes.py`).
Topics, of which a cluster may have many, are a `VersionedMap`. Other mappings inside are plain dicts for speed: they
must not be changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from odradek.metadata.versioned_map import VersionedMap
from odradek.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from odradek.security.delegation_tokens import DelegationToken
    from odradek.wire.acls import AclBinding

NO_LEADER = -1
NO_BROKER = -1
DEFAULT_BROKER = ""
"""The name under which `broker_configs` keeps what holds for every broker (Kafka's cluster-wide default)."""

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
AUDIT_TOPIC = "__odradek_audit"
INTERNAL_TOPICS = frozenset((GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC, AUDIT_TOPIC))

_EMPTY: Mapping[str, str] = MappingProxyType({})
_NO_FEATURES: Mapping[str, tuple[int, int]] = MappingProxyType({})


class Endpoint(NamedTuple):
    """Where a listener of a broker is reached."""

    host: str
    port: int
    security_protocol: str


class Broker(NamedTuple):
    """A registered broker.

    `epoch` grows with every registration of any broker. `unclean`: it registered after an end of which records may be
    missing in its logs.
    """

    id: int
    epoch: int
    rack: str | None
    endpoints: Mapping[str, Endpoint]  # by listener name
    fenced: bool = False
    unclean: bool = False
    incarnation_id: bytes = ZERO_UUID
    """The id of the process that registered. This field and the following three come from KRaft's records only."""
    features: Mapping[str, tuple[int, int]] = _NO_FEATURES
    """The lowest and the highest supported level of each feature (KIP-584)."""
    log_dirs: tuple[bytes, ...] = ()
    """The ids of its log directories that are online (KIP-858)."""
    cordoned_log_dirs: tuple[bytes, ...] = ()
    """The ids of log directories that get no new partitions."""
    in_controlled_shutdown: bool = False
    """It has asked to stop (KIP-631): it gives up leadership and ISRs, and leads on where it is the last in sync."""

    @property
    def is_active(self) -> bool:
        """Whether it may lead, be in sync and get partitions (Kafka's `ClusterControlManager.isActive`)."""
        return not self.fenced and not self.in_controlled_shutdown


class ControllerRegistration(NamedTuple):
    """A controller of a KRaft quorum (KIP-919)."""

    id: int
    incarnation_id: bytes
    endpoints: Mapping[str, Endpoint]  # by listener name
    features: Mapping[str, tuple[int, int]] = _NO_FEATURES
    """The lowest and the highest supported level of each feature."""


class PartitionState(NamedTuple):
    """Who leads and who follows.

    The ISR is empty where KRaft's controller knows no replica with every committed record; there is no leader then.
    `leader_epoch` grows with every election, `partition_epoch` with every change (KIP-497). `elr` are the eligible
    leader replicas (KIP-966): out of the ISR since it is below `min.insync.replicas`, but with every committed record.
    `leader_broker_epoch` is the registration that the leader was elected in; another one of the same broker says that
    it has restarted since. `offline_replicas` are on dead brokers or in failed directories.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    controller_epoch: int = 0
    elr: tuple[int, ...] = ()
    leader_broker_epoch: int = -1
    offline_replicas: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    """The log directory of each replica (KIP-858); empty where no record named any.

    This field and the following ones come from KRaft's records only.
    """
    last_known_elr: tuple[int, ...] = ()
    """The last members of the ISR and the ELR, where both are empty (KIP-966)."""
    recovery: int = 0
    """1 while the leader of an unclean election recovers (KIP-704), else 0."""


class Topic(NamedTuple):
    """`partitions[i]` is partition i; `configs` holds only what was set for this topic."""

    name: str
    id: bytes
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = _EMPTY

    @property
    def is_internal(self) -> bool:
        """Whether brokers keep a state of their own in it: the topics of coordinators, and that of the audit."""
        return self.name in INTERNAL_TOPICS


class ClientEntity(NamedTuple):
    """Whom quotas and credentials are of (KIP-546): a user, a client id, both, or an IP address.

    None is "not part of it"; ANY stands for all without an entry of their own.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


ANY = ""
_NO_TOPICS: VersionedMap[str, Topic] = VersionedMap()
_NO_NAMES: VersionedMap[bytes, str] = VersionedMap()


class ClusterImage:
    """The cluster at version `version`; every `with_...` answers a new image of the next version."""

    __slots__ = (
        "acls",
        "broker_configs",
        "brokers",
        "client_configs",
        "client_metrics",
        "cluster_id",
        "controller_epoch",
        "controller_id",
        "controllers",
        "features",
        "features_epoch",
        "group_configs",
        "next_producer_id",
        "tokens",
        "topic_names",
        "topics",
        "topics_in_deletion",
        "version",
    )

    version: int
    cluster_id: str
    controller_id: int
    controller_epoch: int
    brokers: Mapping[int, Broker]
    topics: VersionedMap[str, Topic]
    topic_names: VersionedMap[bytes, str]  # by topic id
    topics_in_deletion: frozenset[str]
    broker_configs: Mapping[str, Mapping[str, str]]  # by broker id as text, DEFAULT_BROKER for all
    group_configs: Mapping[str, Mapping[str, str]]  # by group id
    client_configs: Mapping[ClientEntity, Mapping[str, str]]  # quotas and credentials; empty where only a node stands
    client_metrics: Mapping[str, Mapping[str, str]]  # subscriptions of KIP-714 by name
    features: Mapping[str, int] | None  # finalized levels; None until one was changed
    features_epoch: int
    # The following parts come from KRaft's records only: brokers read them from other stores apart from the image.
    acls: Mapping[bytes, AclBinding]  # by the id of their record
    tokens: Mapping[str, DelegationToken]  # by their id
    controllers: Mapping[int, ControllerRegistration]
    next_producer_id: int

    def __init__(self, cluster_id: str = "", version: int = 0) -> None:
        self.version = version
        self.cluster_id = cluster_id
        self.controller_id = NO_BROKER
        self.controller_epoch = 0
        self.brokers = {}
        self.topics = _NO_TOPICS
        self.topic_names = _NO_NAMES
        self.topics_in_deletion = frozenset()
        self.broker_configs = {}
        self.group_configs = {}
        self.client_configs = {}
        self.client_metrics = {}
        self.features = None
        self.features_epoch = 0
        self.acls = {}
        self.tokens = {}
        self.controllers = {}
        self.next_producer_id = 0

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id; None if it does not exist."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionState | None:
        """The state of a partition; None if the topic or the partition is missing."""
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None

    def live_brokers(self) -> list[Broker]:
        """Brokers that may get partitions, by id."""
        return [self.brokers[i] for i in sorted(self.brokers) if self.brokers[i].is_active]

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """What was set for the topic; empty if the topic is missing."""
        found = self.topics.get(name)
        return _EMPTY if found is None else found.configs

    def _next(self) -> ClusterImage:
        image = ClusterImage.__new__(ClusterImage)
        image.version = self.version + 1
        image.cluster_id = self.cluster_id
        image.controller_id = self.controller_id
        image.controller_epoch = self.controller_epoch
        image.brokers = self.brokers
        image.topics = self.topics
        image.topic_names = self.topic_names
        image.topics_in_deletion = self.topics_in_deletion
        image.broker_configs = self.broker_configs
        image.group_configs = self.group_configs
        image.client_configs = self.client_configs
        image.client_metrics = self.client_metrics
        image.features = self.features
        image.features_epoch = self.features_epoch
        image.acls = self.acls
        image.tokens = self.tokens
        image.controllers = self.controllers
        image.next_producer_id = self.next_producer_id
        return image

    def with_cluster_id(self, cluster_id: str) -> ClusterImage:
        """With this cluster id."""
        image = self._next()
        image.cluster_id = cluster_id
        return image

    def with_controller(self, controller_id: int, controller_epoch: int) -> ClusterImage:
        """With this controller and its epoch."""
        image = self._next()
        image.controller_id = controller_id
        image.controller_epoch = controller_epoch
        return image

    def with_broker(self, broker: Broker) -> ClusterImage:
        """Add a broker, or replace the one with its id."""
        image = self._next()
        image.brokers = {**self.brokers, broker.id: broker}
        return image

    def with_brokers(self, brokers: Mapping[int, Broker]) -> ClusterImage:
        """These in the place of all."""
        image = self._next()
        image.brokers = brokers
        return image

    def with_topics(self, topics: Iterable[Topic]) -> ClusterImage:
        """Add topics or put them in the place of those of the same name."""
        image = self._next()
        changed = {topic.name: topic for topic in topics}
        added: dict[bytes, str] = {}
        replaced = []
        for name, topic in changed.items():
            old = self.topics.get(name)
            # Most changes keep the id: then the index by id stays shared.
            if old is None or old.id != topic.id:
                added[topic.id] = name
                if old is not None:
                    replaced.append(old.id)
        if changed:
            image.topics = self.topics.changed(changed)
        if added:
            image.topic_names = self.topic_names.changed(added, replaced)
        return image

    def with_topic(self, topic: Topic) -> ClusterImage:
        """Add a topic, or replace the one of its name."""
        return self.with_topics((topic,))

    def without_topics(self, names: Iterable[str]) -> ClusterImage:
        """Without these topics, also among those in deletion; a missing one is no error."""
        image = self._next()
        gone = dict.fromkeys(names)
        found = [self.topics[name] for name in gone if name in self.topics]
        if found:
            image.topics = self.topics.changed({}, [topic.name for topic in found])
            image.topic_names = self.topic_names.changed({}, [topic.id for topic in found])
        image.topics_in_deletion = self.topics_in_deletion.difference(gone)
        return image

    def with_topics_in_deletion(self, names: Iterable[str]) -> ClusterImage:
        """With these topics, and no others, marked for deletion."""
        image = self._next()
        image.topics_in_deletion = frozenset(names)
        return image

    def with_topic_configs(self, topic: str, configs: Mapping[str, str]) -> ClusterImage:
        """Put these in the place of all overrides of the topic; KeyError when there is no such topic."""
        return self.with_topics((self.topics[topic]._replace(configs=configs),))

    def with_broker_configs(self, broker: str, configs: Mapping[str, str]) -> ClusterImage:
        """`broker` is an id as text or DEFAULT_BROKER; empty configs remove the entry."""
        image = self._next()
        image.broker_configs = _with_entry(self.broker_configs, broker, configs)
        return image

    def with_group_configs(self, group_id: str, configs: Mapping[str, str]) -> ClusterImage:
        """Replace what was set for a group; empty configs remove the entry."""
        image = self._next()
        image.group_configs = _with_entry(self.group_configs, group_id, configs)
        return image

    def with_client_metrics(self, name: str, configs: Mapping[str, str]) -> ClusterImage:
        """Replace a subscription to client metrics; empty configs remove it."""
        image = self._next()
        image.client_metrics = _with_entry(self.client_metrics, name, configs)
        return image

    def with_client_configs(self, changed: Mapping[ClientEntity, Mapping[str, str]]) -> ClusterImage:
        """Put these in the place of what was set for each; an entry stays even when its last setting is removed."""
        image = self._next()
        image.client_configs = {**self.client_configs, **changed}
        return image

    def without_client_configs(self, entities: Iterable[ClientEntity]) -> ClusterImage:
        """Without what was set for these; a missing one is no error."""
        image = self._next()
        gone = frozenset(entities)
        image.client_configs = {entity: each for entity, each in self.client_configs.items() if entity not in gone}
        return image

    def with_configs_of(self, other: ClusterImage) -> ClusterImage:
        """All of the other's configurations but those of topics, and its features. What is equal stays as it is."""
        image = self._next()
        if other.broker_configs != self.broker_configs:
            image.broker_configs = other.broker_configs
        if other.group_configs != self.group_configs:
            image.group_configs = other.group_configs
        if other.client_configs != self.client_configs:
            image.client_configs = other.client_configs
        if other.client_metrics != self.client_metrics:
            image.client_metrics = other.client_metrics
        image.features = other.features
        image.features_epoch = other.features_epoch
        return image

    def with_acls(self, acls: Mapping[bytes, AclBinding]) -> ClusterImage:
        """Replace all ACLs."""
        image = self._next()
        image.acls = acls
        return image

    def with_tokens(self, tokens: Mapping[str, DelegationToken]) -> ClusterImage:
        """Replace all delegation tokens."""
        image = self._next()
        image.tokens = tokens
        return image

    def with_controllers(self, controllers: Mapping[int, ControllerRegistration]) -> ClusterImage:
        """Replace all registered controllers."""
        image = self._next()
        image.controllers = controllers
        return image

    def with_next_producer_id(self, producer_id: int) -> ClusterImage:
        """With the first producer id that no broker has allocated."""
        image = self._next()
        image.next_producer_id = producer_id
        return image

    def with_features(self, levels: Mapping[str, int], epoch: int) -> ClusterImage:
        """With these finalized levels and their epoch."""
        image = self._next()
        image.features = levels
        image.features_epoch = epoch
        return image


def _with_entry(
    entries: Mapping[str, Mapping[str, str]], name: str, configs: Mapping[str, str]
) -> Mapping[str, Mapping[str, str]]:
    changed = dict(entries)
    if configs:
        changed[name] = configs
    else:
        changed.pop(name, None)
    return changed
