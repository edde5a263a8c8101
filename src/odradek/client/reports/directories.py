"""Log directories of brokers as rows: how full each one is, and where replicas of a topic lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.client.admin import Admin


async def directory_rows(admin: Admin) -> list[dict[str, Any]]:
    """A row for each log directory. `error` is a message, also of a broker that does not describe its directories.

    Raises KafkaError, ClientError.
    """
    rows: list[dict[str, Any]] = []
    for broker, directories in sorted((await admin.log_dirs.describe()).items()):
        if isinstance(directories, KafkaError):
            rows.append({"broker": broker, "path": None, "error": directories.message, "replicas": 0,
                         "replica_bytes": None, "total_bytes": None, "usable_bytes": None})  # fmt: skip
            continue
        for path, each in sorted(directories.items()):
            rows.append(
                {
                    "broker": broker,
                    "path": path,
                    "error": None if each.error is None else each.error.message,
                    "replicas": len(each.replicas),
                    "replica_bytes": sum(replica.size_bytes for replica in each.replicas.values()),
                    "total_bytes": each.total_bytes,
                    "usable_bytes": each.usable_bytes,
                }
            )
    return rows


async def replica_rows(admin: Admin, places: list[TopicPartition]) -> dict[int, list[dict[str, Any]]]:
    """Rows of the replicas by partition: broker, directory, bytes, lag. Brokers that do not answer are left out.

    `places` are partitions of one topic. Raises ClientError.
    """
    rows: dict[int, list[dict[str, Any]]] = {}
    for broker, directories in sorted((await admin.log_dirs.describe(partitions=places)).items()):
        if isinstance(directories, KafkaError):
            continue
        for path, directory in sorted(directories.items()):
            for place, replica in directory.replicas.items():
                rows.setdefault(place.partition, []).append(
                    {
                        "broker": broker,
                        "path": path,
                        "size_bytes": replica.size_bytes,
                        "offset_lag": replica.offset_lag,
                        "is_future": replica.is_future,
                    }
                )
    return rows
