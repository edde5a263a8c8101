"""A cluster as KRaft's metadata log describes it: the newest snapshot, then the records after it, as an image.

Source: Kafka's `PartitionRegistration.merge`, `MetadataBatchLoader`.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from odradek.kraft.checkpoints import read_checkpoint
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_log import MetadataEntry, read_entries
from odradek.kraft.metadata_records import parse_frame
from odradek.metadata.image import (
    ANY,
    DEFAULT_BROKER,
    ClientEntity,
    ClusterImage,
    PartitionState,
    Topic,
)
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.wire.messages import cluster_metadata as md
from odradek.wire.primitives import DecodeError

UNCHANGED_LEADER: Final = -2
"""The leader in a PartitionChangeRecord that elects none."""
SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

_BEGIN_TRANSACTION, _END_TRANSACTION, _ABORT_TRANSACTION = 23, 24, 25
_DELEGATION_TOKEN, _REMOVE_DELEGATION_TOKEN = 10, 26
_REGISTER_CONTROLLER = 27
_WITHOUT_EFFECT: Final = frozenset({0, 1, 7, 8, 17, 20, 21, _REGISTER_CONTROLLER, 28})
"""Registrations of brokers and controllers, no-ops, the state of a migration, cleared ELRs: of the old cluster only."""

_TOPIC, _BROKER, _CLIENT_METRICS, _GROUP = 2, 4, 16, 32
_ENTITY_FIELDS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}


class KraftMetadata(NamedTuple):
    """What the log says up to its end. `left_out` counts what an image has no place for, by its name.

    Where there are several controllers, the last records of a log may never have been committed.
    """

    image: ClusterImage
    next_producer_id: int
    end_offset: int
    left_out: dict[str, int]
    controllers: frozenset[int] = frozenset()
    acls: frozenset[AclBinding] = frozenset()


def read_kraft_metadata(snapshot: bytes | None, snapshot_end: int, segments: Iterable[bytes]) -> KraftMetadata:
    """Replay a snapshot, whose records lie below `snapshot_end`, and the records of the log from there on.

    A last batch that was cut off, as a crash leaves it, is ignored. Raises CorruptMetadata.
    """
    state = _Replay()
    if snapshot is not None:
        for kept in read_checkpoint(snapshot).entries:
            state.take(kept.offset, kept.value)
        state.end_offset = snapshot_end
    for segment in segments:
        for entry in read_entries(segment, whole=False):
            if isinstance(entry, MetadataEntry) and entry.offset >= snapshot_end:
                state.take(entry.offset, entry.value)
    controllers = frozenset(state.controllers)
    return KraftMetadata(
        state.image(), state.next_producer_id, state.end_offset, state.left_out(), controllers, state.acls()
    )


class _Replay:
    """The mutable state while records are replayed."""

    def __init__(self) -> None:
        self.next_producer_id = 0
        self.end_offset = 0
        self.controllers: set[int] = set()
        self._pending: list[tuple[int, int, int, memoryview]] | None = None
        self._names: dict[bytes, str] = {}
        self._partitions: dict[bytes, dict[int, PartitionState]] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._clients: dict[ClientEntity, dict[str, str]] = {}
        self._features: dict[str, int] = {}
        self._acls: dict[bytes, AclBinding] = {}
        self._others: Counter[str] = Counter()

    def take(self, offset: int, value: memoryview) -> None:
        """Replay one record, or keep it until the metadata transaction that it is part of ends (KIP-868)."""
        try:
            kind, version, position = parse_frame(value)
        except CorruptMetadata as error:
            raise CorruptMetadata(f"the metadata record at offset {offset}: {error}") from error
        self.end_offset = offset + 1
        if kind == _BEGIN_TRANSACTION:
            self._pending = []
        elif kind == _END_TRANSACTION:
            pending, self._pending = self._pending or [], None
            for each in pending:
                self._apply(*each)
        elif kind == _ABORT_TRANSACTION:
            self._pending = None
        elif self._pending is not None:
            self._pending.append((offset, kind, version, value[position:]))
        else:
            self._apply(offset, kind, version, value[position:])

    def _apply(self, offset: int, kind: int, version: int, body: memoryview) -> None:
        if kind in (_DELEGATION_TOKEN, _REMOVE_DELEGATION_TOKEN):
            self._others["delegation token"] += 1 if kind == _DELEGATION_TOKEN else -1
            return
        if kind == _REGISTER_CONTROLLER:
            self.controllers.add(int.from_bytes(body[:4], "big"))
        if kind in _WITHOUT_EFFECT:
            return
        found = _RECORDS.get(kind)
        if found is None:
            self._others[f"metadata record of the unknown type {kind}"] += 1
            return
        message, apply = found
        try:
            record, _ = message.decode(body, 0, version)
            apply(self, record)
        except (DecodeError, KeyError) as error:
            raise CorruptMetadata(f"the {message.__name__} at offset {offset}: {error}") from error

    # --- topics ---

    def topic(self, record: md.TopicRecord) -> None:
        self._names[record.topic_id] = record.name
        self._partitions[record.topic_id] = {}

    def remove_topic(self, record: md.RemoveTopicRecord) -> None:
        name = self._names.pop(record.topic_id)
        del self._partitions[record.topic_id]
        if name not in self._names.values():
            self._configs.pop((_TOPIC, name), None)

    def partition(self, record: md.PartitionRecord) -> None:
        self._partitions[record.topic_id][record.partition_id] = PartitionState(
            record.leader,
            record.leader_epoch,
            tuple(record.replicas),
            tuple(record.isr),
            record.partition_epoch,
            tuple(record.adding_replicas),
            tuple(record.removing_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
        )

    def change_partition(self, record: md.PartitionChangeRecord) -> None:
        before = self._partitions[record.topic_id][record.partition_id]
        elects = record.leader != UNCHANGED_LEADER
        self._partitions[record.topic_id][record.partition_id] = before._replace(
            leader=record.leader if elects else before.leader,
            leader_epoch=before.leader_epoch + 1 if elects else before.leader_epoch,
            partition_epoch=before.partition_epoch + 1,
            isr=_changed(record.isr, before.isr),
            replicas=_changed(record.replicas, before.replicas),
            adding_replicas=_changed(record.adding_replicas, before.adding_replicas),
            removing_replicas=_changed(record.removing_replicas, before.removing_replicas),
            elr=_changed(record.eligible_leader_replicas, before.elr),
        )

    # --- settings and users ---

    def config(self, record: md.ConfigRecord) -> None:
        configs = self._configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def feature(self, record: md.FeatureLevelRecord) -> None:
        self._features[record.name] = record.feature_level

    def quota(self, record: md.ClientQuotaRecord) -> None:
        fields = {}
        for each in record.entity:
            field = _ENTITY_FIELDS.get(each.entity_type)
            if field is None:
                self._others[f"quota of an entity of the unknown type {each.entity_type}"] += 1
                return
            fields[field] = ANY if each.entity_name is None else each.entity_name
        quotas = self._clients.setdefault(ClientEntity(**fields), {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = str(int(record.value)) if record.value == int(record.value) else repr(record.value)

    def scram(self, record: md.UserScramCredentialRecord) -> None:
        mechanism = SCRAM_MECHANISMS.get(record.mechanism)
        if mechanism is None:
            self._others[f"credential of the unknown SCRAM mechanism {record.mechanism}"] += 1
            return
        parts = (("salt", record.salt), ("stored_key", record.stored_key), ("server_key", record.server_key))
        texts = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts]
        text = ",".join((*texts, f"iterations={record.iterations}"))
        self._clients.setdefault(ClientEntity(record.name), {})[mechanism] = text

    def remove_scram(self, record: md.RemoveUserScramCredentialRecord) -> None:
        self._clients.get(ClientEntity(record.name), {}).pop(SCRAM_MECHANISMS.get(record.mechanism, ""), None)

    def producer_ids(self, record: md.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def acl(self, record: md.AccessControlEntryRecord) -> None:
        self._acls[record.id] = AclBinding(
            ResourceType(record.resource_type),
            record.resource_name,
            record.principal,
            AclOperation(record.operation),
            AclPermissionType(record.permission_type),
            record.host,
            PatternType(record.pattern_type),
        )

    def remove_acl(self, record: md.RemoveAccessControlEntryRecord) -> None:
        self._acls.pop(record.id, None)

    # --- the result ---

    def left_out(self) -> dict[str, int]:
        """What an image has no place for."""
        found = {name: count for name, count in self._others.items() if count > 0}
        unknown = len(set(self._acls.values())) - len(self.acls())
        return {"ACL of a kind that this version does not know": unknown, **found} if unknown else found

    def acls(self) -> frozenset[AclBinding]:
        """The ACLs, without those whose codes this version does not know."""
        return frozenset(
            each
            for each in self._acls.values()
            if each.resource_type > ResourceType.ANY
            and each.operation > AclOperation.ANY
            and each.permission > AclPermissionType.ANY
            and each.pattern_type > PatternType.MATCH
        )

    def image(self) -> ClusterImage:
        """All of it. Raises CorruptMetadata for a topic whose partitions are not numbered from 0."""
        image = ClusterImage()
        topics = []
        for topic_id, name in self._names.items():
            by_index = self._partitions[topic_id]
            if sorted(by_index) != list(range(len(by_index))):
                raise CorruptMetadata(f"topic {name} has the partitions {sorted(by_index)}")
            states = tuple(by_index[index] for index in range(len(by_index)))
            topics.append(Topic(name, topic_id, states, self._configs.get((_TOPIC, name), {})))
        image = image.with_topics(topics)
        for (kind, name), configs in self._configs.items():
            if kind == _BROKER:
                image = image.with_broker_configs(name or DEFAULT_BROKER, configs)
            elif kind == _GROUP:
                image = image.with_group_configs(name, configs)
            elif kind == _CLIENT_METRICS:
                image = image.with_client_metrics(name, configs)
        clients = {entity: configs for entity, configs in self._clients.items() if configs}
        if clients:
            image = image.with_client_configs(clients)
        return image.with_features(self._features, 0) if self._features else image


def _changed(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


_RECORDS: Final[dict[int, tuple[Any, Callable[[_Replay, Any], None]]]] = {
    md.TopicRecord.RECORD_TYPE: (md.TopicRecord, _Replay.topic),
    md.PartitionRecord.RECORD_TYPE: (md.PartitionRecord, _Replay.partition),
    md.ConfigRecord.RECORD_TYPE: (md.ConfigRecord, _Replay.config),
    md.PartitionChangeRecord.RECORD_TYPE: (md.PartitionChangeRecord, _Replay.change_partition),
    md.RemoveTopicRecord.RECORD_TYPE: (md.RemoveTopicRecord, _Replay.remove_topic),
    md.UserScramCredentialRecord.RECORD_TYPE: (md.UserScramCredentialRecord, _Replay.scram),
    md.FeatureLevelRecord.RECORD_TYPE: (md.FeatureLevelRecord, _Replay.feature),
    md.ClientQuotaRecord.RECORD_TYPE: (md.ClientQuotaRecord, _Replay.quota),
    md.ProducerIdsRecord.RECORD_TYPE: (md.ProducerIdsRecord, _Replay.producer_ids),
    md.AccessControlEntryRecord.RECORD_TYPE: (md.AccessControlEntryRecord, _Replay.acl),
    md.RemoveAccessControlEntryRecord.RECORD_TYPE: (md.RemoveAccessControlEntryRecord, _Replay.remove_acl),
    md.RemoveUserScramCredentialRecord.RECORD_TYPE: (md.RemoveUserScramCredentialRecord, _Replay.remove_scram),
}
