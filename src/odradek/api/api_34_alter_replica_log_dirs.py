"""AlterReplicaLogDirs: move replicas to other log directories of this broker (KIP-113)."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasLogDirectories
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
)


@api(ApiKey.ALTER_REPLICA_LOG_DIRS)
def handle(
    request: AlterReplicaLogDirsRequest, context: RequestContext[HasLogDirectories]
) -> AlterReplicaLogDirsResponse:
    """Begin each move, without waiting for its end; one error code for each partition."""
    answers: dict[str, list[AlterReplicaLogDirsResponsePartition]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = _move(directory.path, topic.name, index, context)
                answers.setdefault(topic.name, []).append(AlterReplicaLogDirsResponsePartition(index, code))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirsResponseTopic(topic, partitions) for topic, partitions in answers.items()]
    )


def _move(path: str, topic: str, index: int, context: RequestContext[HasLogDirectories]) -> ErrorCode:
    try:
        context.services.log_directories.move(path, topic, index)
    except KafkaError as error:
        # The code that this API had before the other one existed; clients wait for it.
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return error.code
    return ErrorCode.NONE
