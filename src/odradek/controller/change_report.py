"""Lines for operators about a change of the cluster: topics, configurations, leaders, replicas, brokers. Pure.

The controller logs the difference of two images. However many partitions a change concerns, its report has a few lines:
equal changes are one line, with their number and the first of their names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from odradek.controller.brokers import broker_changes
from odradek.controller.notices import Difference, difference
from odradek.metadata.configs.catalog import GROUP, TOPIC, broker_definition
from odradek.metadata.configs.client_metrics import DEFINITIONS as CLIENT_METRICS
from odradek.metadata.configs.definitions import ConfigDefinition
from odradek.metadata.configs.effect_rules import group_without_effect, topic_without_effect, without_effect
from odradek.metadata.image import DEFAULT_BROKER, NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.nodes import id_text
from odradek.metadata.topic_changes import changed_topics

_NAMED: Final = 5
"""How many of a line's subjects are named."""
_LINES: Final = 10
"""How many topics or resources have a line of their own."""


class Line(NamedTuple):
    """A message for the log, of this level."""

    level: int
    text: str


def change_report(old: ClusterImage, new: ClusterImage) -> Iterator[Line]:
    """What an operator wants to know of the step from one image to the next."""
    if old.brokers is not new.brokers:
        yield from _brokers(old, new)
    if old.topics is not new.topics:
        changes = difference(old, new)
        yield from _topics(old, changes)
        yield from _partitions(changes)
        yield from _topic_configs(old, new)
    yield from _configs("broker", old.broker_configs, new.broker_configs, broker_definition, without_effect)
    yield from _configs("group", old.group_configs, new.group_configs, GROUP.get, group_without_effect)
    yield from _configs(
        "client metrics subscription", old.client_metrics, new.client_metrics, CLIENT_METRICS.get, _none
    )
    if old.client_configs is not new.client_configs:
        changed = [
            str({k: v for k, v in entity._asdict().items() if v is not None})
            for entity in {**old.client_configs, **new.client_configs}
            if old.client_configs.get(entity) != new.client_configs.get(entity)
        ]
        if changed:
            yield _info(f"quotas or credentials changed of {some_of(changed)}")
    if old.features != new.features and new.features is not None:
        yield _info(f"features changed to {dict(sorted(new.features.items()))}")


def _info(text: str) -> Line:
    return Line(logging.INFO, text)


def some_of(names: Iterable[str]) -> str:
    """The first of the names and the number of the others, for one line of a log."""
    found = list(names)
    more = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _partitions_text(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


# --- brokers ---


def _brokers(old: ClusterImage, new: ClusterImage) -> Iterator[Line]:
    changes = broker_changes(old.brokers, new.brokers)
    for broker_id in sorted(changes.started):
        yield _info(f"broker {broker_id} registered: {_broker_text(new.brokers[broker_id])}")
    for broker_id in sorted(changes.bounced):
        yield _info(f"broker {broker_id} registered again: {_broker_text(new.brokers[broker_id])}")
    for broker_id in sorted(changes.gone):
        yield _info(f"broker {broker_id} is gone: its registration of epoch {old.brokers[broker_id].epoch} ended")
    for broker_id in sorted(old.brokers.keys() & new.brokers.keys()):
        before, after = old.brokers[broker_id], new.brokers[broker_id]
        if after.in_controlled_shutdown and not before.in_controlled_shutdown:
            yield _info(f"broker {broker_id} is in controlled shutdown")
        if after.fenced and not before.fenced:
            reason = "it shuts down" if after.in_controlled_shutdown else "it is silent"
            yield _info(f"broker {broker_id} is fenced: {reason}")
        elif before.fenced and not after.fenced:
            yield _info(f"broker {broker_id} is no longer fenced")


def _broker_text(broker: Broker) -> str:
    addresses = ", ".join(f"{name}://{each.host}:{each.port}" for name, each in broker.endpoints.items())
    rack = "" if broker.rack is None else f", rack {broker.rack}"
    return f"epoch {broker.epoch}, {addresses}{rack}{', may have lost records' if broker.unclean else ''}"


# --- topics ---


def _topics(old: ClusterImage, changes: Difference) -> Iterator[Line]:
    created: dict[str, Topic] = {}
    grown: dict[str, tuple[Topic, int]] = {}
    for topic, _index, before in changes.changed:
        if before is not None:
            continue
        known = old.topics.get(topic.name)
        if known is None or known.id != topic.id:
            created[topic.name] = topic
        else:
            grown[topic.name] = (topic, len(topic.partitions) - len(known.partitions))
    for verb, topics in (("created", list(created.values())), ("deleted", list(changes.deleted))):
        if len(topics) > _LINES:
            count = sum(len(topic.partitions) for topic in topics)
            names = some_of(topic.name for topic in topics)
            yield _info(f"{len(topics)} topics with {_partitions_text(count)} {verb}: {names}")
            continue
        for topic in topics:
            yield _info(f"topic {topic.name} (id {id_text(topic.id)}) {verb}: {_topic_text(topic)}")
            if verb == "created":
                yield from _warnings(f"topic {topic.name}", topic.configs, topic_without_effect)
    for topic, count in grown.values():
        yield _info(f"topic {topic.name}: {_partitions_text(count)} added, now {len(topic.partitions)}")


def _topic_text(topic: Topic) -> str:
    copies = sorted({len(state.replicas) for state in topic.partitions})
    configs = "".join(f", {name}={value}" for name, value in sorted(topic.configs.items()))
    replicas = "-".join(map(str, copies[:: max(1, len(copies) - 1)]))
    return f"{_partitions_text(len(topic.partitions))}, replication factor {replicas}{configs}"


# --- partitions ---


def _partitions(changes: Difference) -> Iterator[Line]:
    """Equal changes are one line: who led and leads now, who left or joined the ISR, what moves."""
    found: dict[Line, list[str]] = {}
    for topic, index, before in changes.changed:
        if before is None:
            continue
        for line in _changes_of(before, topic.partitions[index]):
            found.setdefault(line, []).append(f"{topic.name}-{index}")
    for (level, text), names in found.items():
        yield Line(level, f"{text} {_partitions_text(len(names))}: {some_of(names)}")


def _changes_of(before: PartitionState, after: PartitionState) -> Iterator[Line]:
    if after.leader != before.leader:
        if after.leader == NO_LEADER:
            yield Line(logging.WARNING, f"broker {before.leader} no longer leads, and no other can lead,")
        elif before.leader == NO_LEADER:
            yield _info(f"no broker led; broker {after.leader} now leads")
        else:
            yield _info(f"broker {after.leader} replaces broker {before.leader} as leader of")
    for broker_id in before.isr:
        if broker_id not in after.isr and broker_id in after.replicas:
            yield _info(f"broker {broker_id} left the ISR of")
    for broker_id in after.isr:
        if broker_id not in before.isr:
            yield _info(f"broker {broker_id} joined the ISR of")
    yield from _move_of(before, after)


def _move_of(before: PartitionState, after: PartitionState) -> Iterator[Line]:
    was, now = (before.adding_replicas, before.removing_replicas), (after.adding_replicas, after.removing_replicas)
    if now != was and any(now):
        target = tuple(broker_id for broker_id in after.replicas if broker_id not in after.removing_replicas)
        source = tuple(broker_id for broker_id in after.replicas if broker_id not in after.adding_replicas)
        yield _info(f"reassignment from {_ids(source)} to {_ids(target)} started for")
    elif now == was and after.replicas != before.replicas:
        yield _info(f"replicas changed from {_ids(before.replicas)} to {_ids(after.replicas)} for")
    elif now != was:
        is_cancelled = bool(set(before.adding_replicas) - set(after.replicas)) or (
            not before.adding_replicas and set(before.removing_replicas) <= set(after.replicas)
        )
        outcome = "cancelled" if is_cancelled else "completed"
        yield _info(f"reassignment {outcome}, replicas {_ids(after.replicas)}, of")


def _ids(brokers: Iterable[int]) -> str:
    return f"[{', '.join(map(str, brokers))}]"


# --- configurations ---


def _topic_configs(old: ClusterImage, new: ClusterImage) -> Iterator[Line]:
    before: dict[str, Mapping[str, str]] = {}
    after: dict[str, Mapping[str, str]] = {}
    for topic, known in changed_topics(old, new):
        if known is not None and known.configs is not topic.configs:
            before[topic.name], after[topic.name] = known.configs, topic.configs
    yield from _configs("topic", before, after, TOPIC.get, topic_without_effect)


def _none(_name: str) -> str | None:
    return None


def _configs(
    kind: str,
    old: Mapping[str, Mapping[str, str]],
    new: Mapping[str, Mapping[str, str]],
    definition_of: Callable[[str], ConfigDefinition | None],
    purpose_of: Callable[[str], str | None],
) -> Iterator[Line]:
    if old is new:
        return
    changed = [name for name in sorted({*old, *new}) if old.get(name, {}) != new.get(name, {})]
    if len(changed) > _LINES:
        yield _info(f"configurations of {len(changed)} {kind}s changed: {some_of(changed)}")
        return
    for name in changed:
        before, after = old.get(name, {}), new.get(name, {})
        subject = "all brokers" if (kind, name) == ("broker", DEFAULT_BROKER) else f"{kind} {name}"
        steps = []
        for setting in sorted({*before, *after}):
            was, now = before.get(setting), after.get(setting)
            if was == now:
                continue
            definition = definition_of(setting)
            if definition is None or definition.is_sensitive:
                # It may be a secret.
                was, now = (None if text is None else "[hidden]" for text in (was, now))
            is_set = "deleted" if now is None else f"= {now}"
            steps.append(f"{setting} {is_set}" + ("" if was is None else f" (was {was})"))
        yield _info(f"configuration of {subject} changed: {', '.join(steps)}")
        fresh = {setting: text for setting, text in after.items() if before.get(setting) != text}
        yield from _warnings(subject, fresh, purpose_of)


def _warnings(subject: str, settings: Iterable[str], purpose_of: Callable[[str], str | None]) -> Iterator[Line]:
    for setting in sorted(settings):
        purpose = purpose_of(setting)
        if purpose is not None:
            yield Line(logging.WARNING, f"{setting} of {subject} has no effect ({purpose})")
