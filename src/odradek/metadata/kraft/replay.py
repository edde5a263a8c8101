"""`replay(records, image)`: the image after these records. Pure; the given image never changes.

What no record carries stays as the given image has it: version, controller, cluster id, topics in deletion.
Metadata transactions (KIP-868) are above this module: their records are replayed when they end.
Source: the `replay` methods of Kafka's `MetadataDelta` and its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from odradek.kraft.errors import CorruptMetadata, UnknownMetadata
from odradek.metadata.features import KRAFT_VERSION
from odradek.metadata.image import Broker, ClientEntity, ClusterImage
from odradek.metadata.kraft import client_records as clients
from odradek.metadata.kraft.registration_records import broker_of, changed_broker, controller_of
from odradek.metadata.kraft.replayed_topics import ReplayedTopics
from odradek.wire.messages import cluster_metadata as md

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""Types of resources in a ConfigRecord (Kafka's `ConfigResource.Type`)."""
_CONFIGURED: Final = frozenset((TOPIC, BROKER, CLIENT_METRICS, GROUP))
_NONE: Final[Mapping[str, str]] = {}

K = TypeVar("K")
V = TypeVar("V")


def replay(records: Iterable[Any], image: ClusterImage) -> ClusterImage:
    """The image after the records, objects of the generated classes. Raises CorruptMetadata."""
    state = ReplayedImage(image)
    for record in records:
        state.replay(record)
    return state.image()


class ReplayedImage:
    """An image while records are replayed: each part is copied at its first change, and the others stay shared."""

    def __init__(self, image: ClusterImage) -> None:
        self._before = image
        self._topics = ReplayedTopics(image)
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._clients: dict[ClientEntity, dict[str, str]] = {}
        self._brokers = _Entries(image.brokers)
        self._controllers = _Entries(image.controllers)
        self._acls = _Entries(image.acls)
        self._tokens = _Entries(image.tokens)
        self._features = _Entries(image.features or {})
        self._next_producer_id = image.next_producer_id
        self._applied: Mapping[type, Callable[[Any], None]] = {
            md.PartitionRecord: self._topics.set_partition,
            md.PartitionChangeRecord: self._topics.change_partition,
            md.TopicRecord: self._topics.create,
            md.RemoveTopicRecord: self._remove_topic,
            md.ClearElrRecord: self._topics.clear_elr,
            md.ConfigRecord: self._configure,
            md.FeatureLevelRecord: self._finalize,
            md.RegisterBrokerRecord: self._register,
            md.UnregisterBrokerRecord: self._unregister,
            md.BrokerRegistrationChangeRecord: self._change_registration,
            md.FenceBrokerRecord: self._fence,
            md.UnfenceBrokerRecord: self._fence,
            md.RegisterControllerRecord: self._register_controller,
            md.ClientQuotaRecord: self._set_quota,
            md.UserScramCredentialRecord: self._set_credential,
            md.RemoveUserScramCredentialRecord: self._remove_credential,
            md.AccessControlEntryRecord: self._add_acl,
            md.RemoveAccessControlEntryRecord: self._remove_acl,
            md.DelegationTokenRecord: self._set_token,
            md.RemoveDelegationTokenRecord: self._remove_token,
            md.ProducerIdsRecord: self._allocate_producer_ids,
            md.NoOpRecord: _ignore,
            md.ZkMigrationStateRecord: _ignore,
        }

    def replay(self, record: Any) -> None:
        """Apply one record.

        Raises CorruptMetadata where the image lacks what the record changes, and for records that delimit metadata
        transactions. Raises UnknownMetadata, without a change, for a kind of thing that this version does not know.
        """
        apply = self._applied.get(type(record))
        if apply is None:
            raise CorruptMetadata(f"{type(record).__name__} cannot be replayed")
        apply(record)

    def replay_usual_partition(self, value: memoryview) -> bool:
        """Apply the value of a usual PartitionRecord; False, without a change, for another. Raises CorruptMetadata."""
        return self._topics.set_usual_partition(value)

    def image(self) -> ClusterImage:
        """The image after all records. Raises CorruptMetadata for a topic whose partitions are not numbered from 0."""
        image = self._with_topics(self._before)
        for (kind, name), configs in self._configs.items():
            if kind == BROKER:
                image = image.with_broker_configs(name, configs)
            elif kind == GROUP:
                image = image.with_group_configs(name, configs)
            elif kind == CLIENT_METRICS:
                image = image.with_client_metrics(name, configs)
        if self._clients:
            image = image.with_client_configs(self._clients)
            if empty := [entity for entity, settings in self._clients.items() if not settings]:
                image = image.without_client_configs(empty)
        if self._brokers.is_changed:
            image = image.with_brokers(self._brokers.now)
        if self._controllers.is_changed:
            image = image.with_controllers(self._controllers.now)
        if self._acls.is_changed:
            image = image.with_acls(self._acls.now)
        if self._tokens.is_changed:
            image = image.with_tokens(self._tokens.now)
        if self._features.is_changed:
            image = image.with_features(self._features.now, self._before.features_epoch)
        if self._next_producer_id != self._before.next_producer_id:
            image = image.with_next_producer_id(self._next_producer_id)
        return image

    def _with_topics(self, image: ClusterImage) -> ClusterImage:
        if removed := self._topics.removed_names():
            in_deletion = image.topics_in_deletion
            image = image.without_topics(removed).with_topics_in_deletion(in_deletion)
        configs = {name: settings for (kind, name), settings in self._configs.items() if kind == TOPIC}
        changed = {topic.name: topic for topic in self._topics.changed(configs)}
        for name, settings in configs.items():
            if name not in changed and name in image.topics:
                changed[name] = image.topics[name]._replace(configs=settings)
        return image.with_topics(changed.values()) if changed else image

    # --- topics and settings ---

    def _remove_topic(self, record: md.RemoveTopicRecord) -> None:
        name = self._topics.remove(record)
        if name is not None:
            self._configs[TOPIC, name] = {}

    def _configure(self, record: md.ConfigRecord) -> None:
        kind, name = record.resource_type, record.resource_name
        if kind not in _CONFIGURED:
            raise UnknownMetadata(f"setting of a resource of the unknown type {kind}")
        configs = self._configs.get((kind, name))
        if configs is None:
            configs = self._configs[kind, name] = dict(self._configs_before(kind, name))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def _configs_before(self, kind: int, name: str) -> Mapping[str, str]:
        image = self._before
        if kind == TOPIC:
            return image.topic_configs(name)
        if kind == BROKER:
            return image.broker_configs.get(name, _NONE)
        return (image.group_configs if kind == GROUP else image.client_metrics).get(name, _NONE)

    def finalize_kraft_version(self, level: int) -> None:
        """A control record has finalized this kraft.version, which no FeatureLevelRecord does."""
        self._features.change()[KRAFT_VERSION] = level

    def _finalize(self, record: md.FeatureLevelRecord) -> None:
        # Level 0 stays in the image: a feature that it does not name has its initial level.
        self._features.change()[record.name] = record.feature_level

    # --- brokers and controllers ---

    def _register(self, record: md.RegisterBrokerRecord) -> None:
        found = broker_of(record)
        before = self._brokers.now.get(found.id)
        unclean = before is not None and before.epoch == found.epoch and before.unclean
        self._brokers.change()[found.id] = found._replace(unclean=unclean)

    def _unregister(self, record: md.UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        del self._brokers.change()[record.broker_id]

    def _change_registration(self, record: md.BrokerRegistrationChangeRecord) -> None:
        before = self._registered(record.broker_id, record.broker_epoch)
        self._brokers.change()[record.broker_id] = changed_broker(before, record)

    def _fence(self, record: md.FenceBrokerRecord | md.UnfenceBrokerRecord) -> None:
        before = self._registered(record.id, record.epoch)
        self._brokers.change()[record.id] = before._replace(fenced=isinstance(record, md.FenceBrokerRecord))

    def _registered(self, broker_id: int, epoch: int) -> Broker:
        found = self._brokers.now.get(broker_id)
        if found is None:
            raise CorruptMetadata(f"broker {broker_id} is missing")
        if found.epoch != epoch:
            raise CorruptMetadata(f"broker {broker_id} has epoch {found.epoch}, not {epoch}")
        return found

    def _register_controller(self, record: md.RegisterControllerRecord) -> None:
        self._controllers.change()[record.controller_id] = controller_of(record)

    # --- clients ---

    def _settings_of(self, entity: ClientEntity) -> dict[str, str]:
        found = self._clients.get(entity)
        if found is None:
            found = self._clients[entity] = dict(self._before.client_configs.get(entity, _NONE))
        return found

    def _set_quota(self, record: md.ClientQuotaRecord) -> None:
        settings = self._settings_of(clients.entity_of(record))
        if record.remove:
            settings.pop(record.key, None)
        else:
            settings[record.key] = clients.quota_text(record.key, record.value)

    def _set_credential(self, record: md.UserScramCredentialRecord) -> None:
        name = clients.mechanism_name(record.mechanism)
        self._settings_of(ClientEntity(record.name))[name] = clients.credential_text(record)

    def _remove_credential(self, record: md.RemoveUserScramCredentialRecord) -> None:
        name = clients.mechanism_name(record.mechanism)
        self._settings_of(ClientEntity(record.name)).pop(name, None)

    def _add_acl(self, record: md.AccessControlEntryRecord) -> None:
        self._acls.change()[record.id] = clients.acl_of(record)

    def _remove_acl(self, record: md.RemoveAccessControlEntryRecord) -> None:
        self._acls.change().pop(record.id, None)

    def _set_token(self, record: md.DelegationTokenRecord) -> None:
        self._tokens.change()[record.token_id] = clients.token_of(record)

    def _remove_token(self, record: md.RemoveDelegationTokenRecord) -> None:
        self._tokens.change().pop(record.token_id, None)

    def _allocate_producer_ids(self, record: md.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id


class _Entries(Generic[K, V]):
    """A mapping of an image, copied at its first change."""

    __slots__ = ("_copy", "now")

    def __init__(self, before: Mapping[K, V]) -> None:
        self.now = before
        self._copy: dict[K, V] | None = None

    @property
    def is_changed(self) -> bool:
        """Whether `change` was called."""
        return self._copy is not None

    def change(self) -> dict[K, V]:
        """The copy, which is `now` from here on."""
        if self._copy is None:
            self.now = self._copy = dict(self.now)
        return self._copy


def _ignore(_record: Any) -> None:
    """A record without effect on an image."""
