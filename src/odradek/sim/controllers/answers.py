"""What a simulated controller answers: the metadata log, registrations, heartbeats, and what brokers ask for.

Answers about the log name the leader that the controller knows, as in KIP-595; the rest is the active controller's.
"""

from __future__ import annotations

import random
from typing import Any, Final

from odradek.api.requests.responses import encode_response
from odradek.controller.in_sync import IsrChange
from odradek.controller.registrations import ReplicaDirectory
from odradek.kraft.metadata_observer import LogEnd
from odradek.sim.controllers.active_controller import ActiveController
from odradek.sim.controllers.client_answers import CLIENT_ANSWERS, topics_not_created
from odradek.sim.controllers.model_quorum import CLUSTER_ID, CONTROLLER_PORT, Deposed, ModelController
from odradek.wire.apis import ApiKey, request_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.headers import parse_request_header
from odradek.wire.messages import fetch, fetch_snapshot
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, ApiVersionsResponseApiVersion
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from odradek.wire.messages.create_topics import CreateTopicsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

_SERVED: Final = (
    ApiKey.FETCH, ApiKey.API_VERSIONS, ApiKey.CREATE_TOPICS, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT, ApiKey.DESCRIBE_CLUSTER, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ASSIGN_REPLICAS_TO_DIRS,
)  # fmt: skip
_TOPIC: Final = "__cluster_metadata"
_TOPIC_ID: Final = bytes(15) + b"\x01"


class Answers:
    """Answers each request of a broker."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def answer(self, controller: ModelController, request: Any, version: int) -> Any:
        """The response of this controller."""
        if isinstance(request, ApiVersionsRequest):
            return _versions()
        if isinstance(request, DescribeClusterRequest):
            return DescribeClusterResponse(endpoint_type=request.endpoint_type, cluster_id=CLUSTER_ID)
        if isinstance(request, fetch.FetchRequest):
            return await self._fetch(controller, request)
        if isinstance(request, fetch_snapshot.FetchSnapshotRequest):
            return self._fetch_snapshot(controller, request)
        try:
            active = controller.active
            if not isinstance(active, ActiveController):
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            return await _decided(active, request, version)
        except Deposed:
            return _failed(request, version, ErrorCode.NOT_CONTROLLER)
        except KafkaError as error:
            return _failed(request, version, error.code)

    # --- the log ---

    async def _fetch(self, controller: ModelController, request: fetch.FetchRequest) -> fetch.FetchResponse:
        if request.cluster_id != CLUSTER_ID:
            return fetch.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        (asked,) = request.topics[0].partitions
        answer = fetch.FetchResponsePartition(high_watermark=-1)
        error = self._error(controller, asked.current_leader_epoch)
        if error is ErrorCode.NONE:
            known = asked.high_watermark
            if controller.log.end.offset == asked.fetch_offset and controller.high_watermark <= known:
                await controller.wait_for_change(min(request.max_wait_ms, 500) / 1000)
                error = self._error(controller, asked.current_leader_epoch)
        if error is ErrorCode.NONE:
            self._find(controller, asked, answer)
        answer.error_code = error
        answer.current_leader = fetch.FetchResponseLeaderIdAndEpoch(controller.leader_id, controller.epoch)
        return fetch.FetchResponse(
            responses=[fetch.FetchResponseTopic(_TOPIC, _TOPIC_ID, [answer])],
            node_endpoints=[fetch.FetchResponseNodeEndpoint(*each) for each in _endpoints(controller)],
        )

    def _find(self, controller: ModelController, asked: Any, answer: fetch.FetchResponsePartition) -> None:
        log, end = controller.log, LogEnd(asked.fetch_offset, asked.last_fetched_epoch)
        if log.needs_snapshot(end):
            assert log.snapshot is not None
            answer.snapshot_id = fetch.FetchResponseSnapshotId(log.snapshot.id.end_offset, log.snapshot.id.epoch)
        elif (common := log.diverging(end)) is not None:
            answer.diverging_epoch = fetch.FetchResponseEpochEndOffset(common.epoch, common.offset)
        else:
            data = log.read(end.offset, self._rng.choice((1, 300, 1 << 20)))
            if self._rng.random() < 0.1:
                # The beginning of another batch, as where max_bytes end inside one.
                rest = log.read(end.offset, 1 << 20)
                data = rest[: self._rng.randrange(len(data), len(rest) + 1)]
            answer.records = data
            answer.high_watermark = controller.high_watermark

    @staticmethod
    def _error(controller: ModelController, epoch: int) -> ErrorCode:
        if epoch > controller.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not controller.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < controller.epoch else ErrorCode.NONE

    def _fetch_snapshot(
        self, controller: ModelController, request: fetch_snapshot.FetchSnapshotRequest
    ) -> fetch_snapshot.FetchSnapshotResponse:
        (asked,) = request.topics[0].partitions
        wanted, snapshot = asked.snapshot_id, controller.log.snapshot
        error = self._error(controller, asked.current_leader_epoch)
        data = b""
        if error is ErrorCode.NONE:
            if snapshot is None or snapshot.id != (wanted.end_offset, wanted.epoch):
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            else:
                data = snapshot.data
        size = self._rng.choice((100, 1_000, 100_000))
        part = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
            0,
            error,
            fetch_snapshot.FetchSnapshotResponseSnapshotId(wanted.end_offset, wanted.epoch),
            fetch_snapshot.FetchSnapshotResponseLeaderIdAndEpoch(controller.leader_id, controller.epoch),
            len(data),
            asked.position,
            data[asked.position : asked.position + size],
        )
        return fetch_snapshot.FetchSnapshotResponse(
            topics=[fetch_snapshot.FetchSnapshotResponseTopicSnapshot(_TOPIC, [part])],
            node_endpoints=[fetch_snapshot.FetchSnapshotResponseNodeEndpoint(*each) for each in _endpoints(controller)],
        )


def _endpoints(controller: ModelController) -> list[tuple[int, str, int]]:
    """Where the leader is that the controller knows."""
    leader = controller.leader_id
    return [
        (each.node_id, each.host, CONTROLLER_PORT) for each in controller.quorum.controllers if each.node_id == leader
    ]


def _versions() -> ApiVersionsResponse:
    kinds = [request_class(key) for key in _SERVED]
    return ApiVersionsResponse(
        api_keys=[ApiVersionsResponseApiVersion(each.API_KEY, each.MIN_VERSION, each.MAX_VERSION) for each in kinds]
    )


# --- decisions ---


async def _decided(active: ActiveController, request: Any, version: int) -> Any:
    if isinstance(request, BrokerRegistrationRequest):
        return BrokerRegistrationResponse(broker_epoch=await active.register(request))
    if isinstance(request, BrokerHeartbeatRequest):
        return await active.heartbeat(request)
    if isinstance(request, AllocateProducerIdsRequest):
        ids = await active.decide(
            lambda records: records.allocate_producer_ids(request.broker_id, request.broker_epoch)
        )
        return AllocateProducerIdsResponse(producer_id_start=ids[0], producer_id_len=len(ids))
    if isinstance(request, AlterPartitionRequest):
        return await _alter_partition(active, request)
    if isinstance(request, AssignReplicasToDirsRequest):
        return await _assign(active, request)
    if isinstance(request, EnvelopeRequest):
        return await _forwarded(active, request)
    return await CLIENT_ANSWERS[type(request)](active, request)


def _failed(request: Any, version: int, code: ErrorCode) -> Any:
    """The response with an error for all of the request."""
    if isinstance(request, CreateTopicsRequest):
        return topics_not_created(request, code)
    kinds = {
        BrokerRegistrationRequest: BrokerRegistrationResponse,
        BrokerHeartbeatRequest: BrokerHeartbeatResponse,
        AllocateProducerIdsRequest: AllocateProducerIdsResponse,
        AlterPartitionRequest: AlterPartitionResponse,
        AssignReplicasToDirsRequest: AssignReplicasToDirsResponse,
        EnvelopeRequest: EnvelopeResponse,
    }
    return kinds[type(request)](error_code=code)


async def _forwarded(active: ActiveController, envelope: EnvelopeRequest) -> EnvelopeResponse:
    frame = memoryview(envelope.request_data)
    key, version, correlation_id, _client, position = parse_request_header(frame)
    request, _ = request_class(key).decode(frame, position, version)
    response = await CLIENT_ANSWERS[type(request)](active, request)
    return EnvelopeResponse(bytes(encode_response(response, key, version, correlation_id))[4:])


async def _alter_partition(active: ActiveController, request: AlterPartitionRequest) -> AlterPartitionResponse:
    changes = [
        IsrChange(
            topic.topic_id, each.partition_index, each.leader_epoch, each.partition_epoch,
            tuple((member.broker_id, member.broker_epoch) for member in each.new_isr_with_epochs),
        )
        for topic in request.topics
        for each in topic.partitions
    ]  # fmt: skip
    changed = await active.decide(
        lambda records: records.alter_partitions(request.broker_id, request.broker_epoch, changes)
    )
    topics: dict[bytes, list[AlterPartitionResponsePartition]] = {}
    for each in changed:
        answer = AlterPartitionResponsePartition(partition_index=each.partition, error_code=each.error)
        if (state := each.state) is not None:
            answer.leader_id, answer.leader_epoch = state.leader, state.leader_epoch
            answer.isr, answer.partition_epoch = list(state.isr), state.partition_epoch
        topics.setdefault(each.topic_id, []).append(answer)
    return AlterPartitionResponse(topics=[AlterPartitionResponseTopic(*each) for each in topics.items()])


async def _assign(active: ActiveController, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
    assigned = [
        ReplicaDirectory(topic.topic_id, each.partition_index, directory.id)
        for directory in request.directories
        for topic in directory.topics
        for each in topic.partitions
    ]
    errors = await active.decide(
        lambda records: records.assign_directories(request.broker_id, request.broker_epoch, assigned)
    )
    return AssignReplicasToDirsResponse(
        directories=[
            AssignReplicasToDirsResponseDirectoryData(
                each.directory,
                [
                    AssignReplicasToDirsResponseTopicData(
                        each.topic_id, [AssignReplicasToDirsResponsePartitionData(each.partition, error)]
                    )
                ],
            )
            for each, error in zip(assigned, errors, strict=True)
        ]
    )
