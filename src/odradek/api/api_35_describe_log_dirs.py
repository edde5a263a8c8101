"""DescribeLogDirs: what each log directory holds (KIP-113).

Version notes: 3 an error for the whole; 4 sizes of the volumes (KIP-827); 5 cordoned directories (KIP-1066).
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.api.requests.capabilities import HasLogDirectories
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.services.log_directory_service import ReplicaUsage
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponseLogDir,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseTopic,
)


@api(ApiKey.DESCRIBE_LOG_DIRS)
async def handle(
    request: DescribeLogDirsRequest, context: RequestContext[HasLogDirectories]
) -> DescribeLogDirsResponse:
    """Describe each log directory with its replicas; KAFKA_STORAGE_ERROR for an offline one."""
    wanted = None
    if request.topics is not None:
        wanted = {topic.topic: frozenset(topic.partitions) for topic in request.topics}
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResponseLogDir(
                ErrorCode.KAFKA_STORAGE_ERROR if found.is_offline else ErrorCode.NONE,
                found.path,
                _topics(found.replicas),
                found.total_bytes,
                found.usable_bytes,
                found.is_cordoned,
            )
            for found in await context.services.log_directories.describe(wanted)
        ]
    )


def _topics(replicas: Iterable[ReplicaUsage]) -> list[DescribeLogDirsResponseTopic]:
    topics: dict[str, list[DescribeLogDirsResponsePartition]] = {}
    for topic, partition, size_bytes, lag, is_future in replicas:
        topics.setdefault(topic, []).append(DescribeLogDirsResponsePartition(partition, size_bytes, lag, is_future))
    return [DescribeLogDirsResponseTopic(topic, partitions) for topic, partitions in topics.items()]
