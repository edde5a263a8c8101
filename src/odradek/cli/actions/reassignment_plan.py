"""Plans of `odradek reassign`: the JSON form of Apache's kafka-reassign-partitions, and the cluster that they meet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.partition_files import entries_of, partition_of, read_document, unique
from odradek.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.client.admin import Admin, PartitionReassignment

ANY_DIRECTORY: Final = "any"


class Plan(NamedTuple):
    """Replicas by partition, and log directories by (partition, broker) where the plan names one."""

    replicas: dict[TopicPartition, tuple[int, ...]]
    log_dirs: dict[tuple[TopicPartition, int], str]


class Current(NamedTuple):
    """The cluster: replicas of the partitions (None: it does not exist), racks of live brokers, running moves.

    The replicas of a partition in reassignment are those before the reassignment.
    """

    replicas: dict[TopicPartition, tuple[int, ...] | None]
    racks: dict[int, str | None]
    running: dict[TopicPartition, PartitionReassignment]


def read_plan(path: str) -> Plan:
    """Raises UsageError."""
    where = f"--reassignment-json-file {path}"
    replicas: dict[TopicPartition, tuple[int, ...]] = {}
    log_dirs: dict[tuple[TopicPartition, int], str] = {}
    entries = entries_of(read_document(path, "reassignment-json-file"), "partitions", where)
    unique([partition_of(each, where) for each in entries], where)
    for entry in entries:
        place = partition_of(entry, where)
        brokers = entry.get("replicas")
        if not isinstance(brokers, list) or not brokers or not all(type(each) is int for each in brokers):
            raise UsageError(f'{where}: "replicas" of {place} is not a list of broker ids')
        if len(set(brokers)) < len(brokers):
            raise UsageError(f"{where}: {place} names a broker twice")
        paths = entry.get("log_dirs", [ANY_DIRECTORY] * len(brokers))
        if not isinstance(paths, list) or len(paths) != len(brokers) or not all(isinstance(p, str) for p in paths):
            raise UsageError(f'{where}: "log_dirs" of {place} is not a list with an entry for each replica')
        replicas[place] = tuple(brokers)
        log_dirs.update({(place, b): p for b, p in zip(brokers, paths, strict=True) if p != ANY_DIRECTORY})
    return Plan(replicas, log_dirs)


def document_of(replicas: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """The JSON document of a plan."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "replicas": list(brokers),
                "log_dirs": [ANY_DIRECTORY] * len(brokers),
            }
            for place, brokers in sorted(replicas.items())
        ],
    }


def plan_text(replicas: Mapping[TopicPartition, Sequence[int]]) -> str:
    """The plan on one line, as Apache's tool prints it."""
    return json.dumps(document_of(replicas), separators=(",", ":"))


async def current_of(admin: Admin, partitions: Iterable[TopicPartition]) -> Current:
    """Raises KafkaError, ClientError."""
    from odradek.client.network.metadata import TopicInfo

    wanted = list(partitions)
    running = await admin.replicas.reassignments()
    described = await admin.describe_topics(sorted({each.topic for each in wanted}))
    replicas: dict[TopicPartition, tuple[int, ...] | None] = {}
    for place in wanted:
        topic = described[place.topic]
        known = {each.partition: each for each in topic.partitions} if isinstance(topic, TopicInfo) else {}
        found = known.get(place.partition)
        moving = running.get(place)
        added = moving.adding_replicas if moving is not None else ()
        replicas[place] = None if found is None else tuple(each for each in found.replicas if each not in added)
    brokers = (await admin.describe_cluster()).brokers
    return Current(replicas, {each.node_id: each.rack for each in brokers}, running)


def check(plan: Plan, current: Current) -> None:
    """Raise CommandError when the plan names partitions or brokers that do not exist."""
    missing = [place for place, replicas in current.replicas.items() if replicas is None]
    if missing:
        listed = ", ".join(map(str, missing[:5]))
        raise CommandError(f"the plan names partitions that do not exist: {listed}", "UNKNOWN_TOPIC_OR_PARTITION")
    unknown = {each for replicas in plan.replicas.values() for each in replicas} - current.racks.keys()
    if unknown:
        raise CommandError(
            f"the plan names brokers that are not live: {', '.join(map(str, sorted(unknown)))}", "BROKER_NOT_AVAILABLE"
        )


async def begin_moves(admin: Admin, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Start reassignments. Those that fail with a retriable error are tried again, for some five seconds.

    Raises CommandError that names every rejected one; the others are under way. Raises KafkaError, ClientError.
    """
    from odradek.client.reports.moves import listed, request_moves

    rejected = await request_moves(admin, targets)
    if rejected:
        others = "the others run" if len(rejected) < len(targets) else "none runs"
        raise CommandError(
            f"{len(rejected)} of {len(targets)} reassignments were rejected and not begun, {others}: "
            f"{listed(rejected)}",
            next(iter(rejected.values())).code.name,
        )
