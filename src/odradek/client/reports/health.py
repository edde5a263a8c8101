"""What an operator should look at in a cluster, by the protocol alone: it serves for clusters of Apache Kafka, too."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from odradek.client.admin import Admin, ConfigResource, ConfigResourceType
from odradek.client.admin.log_dirs import LogDirDescription
from odradek.client.network.metadata import TopicInfo
from odradek.client.reports.cluster import topics_of
from odradek.client.reports.health_problem import HealthProblem, Severity
from odradek.client.reports.quorum_health import find_quorum_problems
from odradek.wire.errors import KafkaError

LEAST_FREE: Final = 0.05
"""A log directory with a smaller share of free space is a problem, where its broker has no setting for that."""
_LEAST_FREE: Final = "odradek.health.free.space.min.percent"
"""A log directory with a smaller share of usable space is a problem."""
_MIN_ISR: Final = "min.insync.replicas"
_NAMED: Final = 10
"""How many partitions or directories a problem names."""


async def find_problems(admin: Admin) -> list[HealthProblem]:
    """All that was found, the worst first. Raises KafkaError or TransportError when the cluster cannot be asked."""
    found = await admin.describe_cluster()
    live = {broker.node_id for broker in found.brokers}
    problems = []
    if found.controller_id not in live:
        problems.append(
            HealthProblem("controller", Severity.CRITICAL, "no controller is known: nothing can be changed", 1, ())
        )
    problems += await find_quorum_problems(admin)
    topics = await topics_of(admin)
    least = await _least_in_sync(admin, topics)
    problems += of_partitions(topics, least, live)
    least_free = await _least_free(admin, live)
    problems += of_directories(await admin.log_dirs.describe(sorted(live)), least_free)
    return sorted(problems, key=lambda problem: -problem.severity)


async def _least_in_sync(admin: Admin, topics: Sequence[TopicInfo]) -> dict[str, int]:
    """`min.insync.replicas` by topic; a topic whose settings may not be read is left out."""
    names = [topic.name for topic in topics if any(len(each.replicas) > 1 for each in topic.partitions)]
    if not names:
        return {}
    described = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])
    return {
        resource.name: int(entries[_MIN_ISR].value or 1)
        for resource, entries in described.items()
        if not isinstance(entries, KafkaError) and _MIN_ISR in entries
    }


async def _least_free(admin: Admin, brokers: Collection[int]) -> dict[int, float]:
    """Share of free space below which a directory is a problem, by broker; those that do not say it are left out."""
    resources = [ConfigResource(ConfigResourceType.BROKER, str(broker)) for broker in sorted(brokers)]
    described = await admin.describe_configs(resources, keys=[_LEAST_FREE])
    return {
        int(resource.name): int(entries[_LEAST_FREE].value or 0) / 100
        for resource, entries in described.items()
        if not isinstance(entries, KafkaError) and _LEAST_FREE in entries
    }


def of_partitions(topics: Sequence[TopicInfo], least: Mapping[str, int], live: set[int]) -> Iterator[HealthProblem]:
    """Partitions without a leader, below their minimum, and with replicas outside the ISR; each is named once."""
    leaderless: list[str] = []
    below: list[str] = []
    lacking: list[str] = []
    for topic in topics:
        for each in topic.partitions:
            name = f"{topic.name}-{each.partition}"
            if each.leader not in live:
                leaderless.append(name)
            elif len(each.isr) < min(least.get(topic.name, 1), len(each.replicas)):
                below.append(name)
            elif len(each.isr) < len(each.replicas):
                lacking.append(name)
    for check, severity, reason, names in (
        ("offline partitions", Severity.CRITICAL, "partitions have no leader", leaderless),
        ("under min.insync.replicas", Severity.CRITICAL, "partitions reject writes with acks=all", below),
        ("under-replicated partitions", Severity.WARNING, "partitions have replicas outside the ISR", lacking),
    ):
        if names:
            yield HealthProblem(check, severity, reason, len(names), tuple(sorted(names)[:_NAMED]))


def of_directories(
    by_broker: Mapping[int, Mapping[str, LogDirDescription] | KafkaError], least_free: Mapping[int, float]
) -> Iterator[HealthProblem]:
    """Log directories that failed, and those with less than their broker's share free; brokers that did not answer."""
    offline: list[str] = []
    full: list[str] = []
    silent: list[str] = []
    for broker, directories in sorted(by_broker.items()):
        if isinstance(directories, KafkaError):
            silent.append(f"broker {broker}: {directories.message}")
            continue
        for path, each in sorted(directories.items()):
            name = f"broker {broker}: {path}"
            if each.error is not None:
                offline.append(name)
                continue
            free = _share_free(each)
            if free is not None and free < least_free.get(broker, LEAST_FREE):
                full.append(f"{name}: {free:.1%} free")
    for check, severity, reason, names in (
        ("log directories", Severity.CRITICAL, "log directories failed", offline),
        ("disk space", Severity.WARNING, "log directories have little space", full),
        ("log directories", Severity.WARNING, "brokers did not describe their log directories", silent),
    ):
        if names:
            yield HealthProblem(check, severity, reason, len(names), tuple(names[:_NAMED]))


def _share_free(directory: LogDirDescription) -> float | None:
    """0 to 1; None where the broker did not say it (before Kafka 3.3, KIP-827)."""
    if not directory.total_bytes or directory.usable_bytes is None:
        return None
    return directory.usable_bytes / directory.total_bytes
