"""`difference(before, after)`: the records that lead from one image to another. Pure.

`replay(difference(a, b), a)` equals b in all that records carry. They do not carry version, controller, cluster id,
topics in deletion, the epoch of features, `Broker.unclean`, nor of a partition `controller_epoch`,
`leader_broker_epoch` and `offline_replicas`. No record removes a finalized feature or a controller.
Source: the `write` methods of Kafka's images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from odradek.metadata.features import KRAFT_VERSION
from odradek.metadata.image import ClusterImage, Topic
from odradek.metadata.kraft.client_records import acl_record, client_changes, token_record
from odradek.metadata.kraft.partition_records import partition_change, partition_record
from odradek.metadata.kraft.registration_records import broker_change, broker_record, controller_record
from odradek.metadata.kraft.replay import BROKER, CLIENT_METRICS, GROUP, TOPIC
from odradek.metadata.topic_changes import changed_indexes, topic_changes
from odradek.wire.messages import cluster_metadata as md

_NONE: Mapping[str, str] = {}


def difference(before: ClusterImage, after: ClusterImage) -> list[Any]:
    """The records, objects of the generated classes, in an order in which they can be replayed.

    Parts that are the same object in both images cost nothing. Raises ValueError where `after` lacks a finalized
    feature or a controller of `before`, and for a client's setting that is neither a quota nor a credential.
    """
    return list(differences(before, after))


def differences(before: ClusterImage, after: ClusterImage) -> Iterator[Any]:
    """As `difference`, one by one: those of a large cluster take seconds."""
    yield from _features(before, after)
    yield from _nodes(before, after)
    yield from _topics(before, after)
    yield from _settings(before, after)
    yield from _clients(before, after)


def _features(before: ClusterImage, after: ClusterImage) -> Iterator[Any]:
    old, new = before.features or {}, after.features or {}
    if missing := old.keys() - new.keys() - {KRAFT_VERSION}:
        raise ValueError(f"the finalized features {sorted(missing)} cannot disappear")
    for name, level in new.items():
        if old.get(name) != level and name != KRAFT_VERSION:  # the voters append that, in a control record
            yield md.FeatureLevelRecord(name, level)


def _nodes(before: ClusterImage, after: ClusterImage) -> Iterator[Any]:
    if missing := before.controllers.keys() - after.controllers.keys():
        raise ValueError(f"the registered controllers {sorted(missing)} cannot disappear")
    for controller in after.controllers.values():
        if before.controllers.get(controller.id) != controller:
            yield controller_record(controller)
    for gone in before.brokers.keys() - after.brokers.keys():
        yield md.UnregisterBrokerRecord(gone, before.brokers[gone].epoch)
    for broker in after.brokers.values():
        old = before.brokers.get(broker.id)
        if old is broker:
            continue
        record = broker_record(broker) if old is None else broker_change(old, broker)
        if record is not None:
            yield record


def _topics(before: ClusterImage, after: ClusterImage) -> Iterator[Any]:
    changed = []
    for old, topic in topic_changes(before, after):
        known = old
        # No record removes a partition: a topic with fewer of them is removed and created again.
        if old is not None and (topic is None or len(topic.partitions) < len(old.partitions)):
            yield md.RemoveTopicRecord(old.id)
            known = None
        if topic is not None:
            changed.append((known, topic))
    for known, topic in changed:
        yield from _topic(known, topic)


def _topic(before: Topic | None, after: Topic) -> Iterator[Any]:
    if before is None:
        yield md.TopicRecord(after.name, after.id)
    states = () if before is None else before.partitions
    for index in changed_indexes(states, after.partitions):
        state = after.partitions[index]
        if index >= len(states):
            yield partition_record(after.id, index, state)
        else:
            record = partition_change(after.id, index, states[index], state)
            if record is not None:
                yield record
    yield from _configs(TOPIC, after.name, _NONE if before is None else before.configs, after.configs)


def _settings(before: ClusterImage, after: ClusterImage) -> Iterator[Any]:
    for kind, old, new in (
        (BROKER, before.broker_configs, after.broker_configs),
        (GROUP, before.group_configs, after.group_configs),
        (CLIENT_METRICS, before.client_metrics, after.client_metrics),
    ):
        if old is new:
            continue
        for name in dict.fromkeys((*old, *new)):
            yield from _configs(kind, name, old.get(name, _NONE), new.get(name, _NONE))


def _configs(kind: int, resource: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Any]:
    if before is after:
        return
    for name in before.keys() - after.keys():
        yield md.ConfigRecord(kind, resource, name, None)
    for name, value in after.items():
        if before.get(name) != value:
            yield md.ConfigRecord(kind, resource, name, value)


def _clients(before: ClusterImage, after: ClusterImage) -> Iterator[Any]:
    old, new = before.client_configs, after.client_configs
    for entity in dict.fromkeys((*old, *new)) if old is not new else ():
        yield from client_changes(entity, old.get(entity, _NONE), new.get(entity, _NONE))
    for gone in before.acls.keys() - after.acls.keys():
        yield md.RemoveAccessControlEntryRecord(gone)
    for acl_id, acl in after.acls.items():
        if before.acls.get(acl_id) != acl:
            yield acl_record(acl_id, acl)
    for token_id in before.tokens.keys() - after.tokens.keys():
        yield md.RemoveDelegationTokenRecord(token_id)
    for token in after.tokens.values():
        if before.tokens.get(token.token_id) != token:
            yield token_record(token)
    if before.next_producer_id != after.next_producer_id:
        yield md.ProducerIdsRecord(broker_id=-1, next_producer_id=after.next_producer_id)
