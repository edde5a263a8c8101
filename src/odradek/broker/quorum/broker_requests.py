"""Requests that brokers send to the active controller of a quorum: registration, heartbeats, directories.

Source: KIP-631, KIP-858; Kafka's `ControllerApis`, `ClusterControlManager`, `ReplicationControlManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.broker.quorum.broker_watch import BrokerWatch
from odradek.broker.quorum.quorum_controller import QuorumController
from odradek.controller.broker_sessions import Heartbeat, NextState, next_state
from odradek.controller.brokers import registered
from odradek.controller.record_controller import RecordController, Recorded
from odradek.controller.registrations import ReplicaDirectory
from odradek.kraft.errors import UnknownMetadata
from odradek.metadata.image import Broker, ClusterImage, ControllerRegistration, Endpoint
from odradek.metadata.kraft.registration_records import endpoints_of, features_of
from odradek.ports.clock import Clock
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from odradek.wire.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from odradek.wire.primitives import ZERO_UUID

_RESERVED_DIRECTORIES: Final = 100
"""Directory ids below this number have meanings of their own (KIP-858)."""

_FENCED: Final = frozenset((NextState.FENCED, NextState.SHUTDOWN_NOW))


class BrokerRequests:
    """Each method raises KafkaError, NOT_CONTROLLER where this controller is not active."""

    __slots__ = ("_clock", "_cluster_id", "_controller", "_releases", "_shutdowns", "_watch")

    def __init__(self, controller: QuorumController, watch: BrokerWatch, cluster_id: str, clock: Clock) -> None:
        self._controller = controller
        self._watch = watch
        self._cluster_id = cluster_id
        self._clock = clock
        self._releases: dict[int, int] = {}
        """By broker, the offset of the records that unfenced it last."""
        self._shutdowns: dict[int, int] = {}
        """By broker in controlled shutdown, the offset after the records that moved its leaderships."""

    async def register(self, request: BrokerRegistrationRequest, connection: int) -> BrokerRegistrationResponse:
        """Register a broker, fenced; the answer has its epoch. `connection` is the one that the request came on."""
        controller = self._controller
        if request.cluster_id != self._cluster_id:
            text = f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}."
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
        if request.is_migrating_zk_broker:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Brokers with ZooKeeper cannot join.")
        if not request.listeners:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No listeners are registered.")
        self._check_directories(request)
        try:
            endpoints = endpoints_of(request.listeners)
        except UnknownMetadata as error:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, str(error)) from error
        known = controller.image.brokers.get(request.broker_id)
        if known is not None and known.incarnation_id != request.incarnation_id and self._may_run(known, endpoints):
            text = f"Another broker is registered with that broker id: {request.broker_id}"
            raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text)
        broker = Broker(
            request.broker_id,
            controller.next_offset,
            request.rack,
            endpoints,
            fenced=True,
            incarnation_id=request.incarnation_id,
            features=features_of(request.features),
            log_dirs=tuple(request.log_dirs),
        )
        epoch = broker.epoch

        def register(decides: RecordController) -> Recorded[TopicPartition]:
            nonlocal epoch
            recorded = decides.register_broker(broker, request.previous_broker_epoch)
            epoch = recorded.image.brokers[broker.id].epoch
            # Before the records are committed: another process may ask for the same id meanwhile, or this one end.
            self._shutdowns.pop(broker.id, None)
            controller.sessions.touch(broker.id, epoch, -1, self._clock.monotonic())
            self._watch.note_heartbeat(broker.id, connection)
            return recorded

        await controller.decide(register)
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def _may_run(self, known: Broker, endpoints: Mapping[str, Endpoint]) -> bool:
        """Whether the former process of a broker may still run while another one registers with these listeners."""
        if known.in_controlled_shutdown or not self._controller.sessions.is_valid(known, self._clock.monotonic()):
            # In controlled shutdown it may have been allowed to end.
            return False
        # Two processes do not have the same addresses. One that keeps its connection lives all the same.
        return self._watch.is_connected(known.id) or dict(known.endpoints) != dict(endpoints)

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        """Raise KafkaError INVALID_REGISTRATION for directories that cannot be this broker's alone."""
        directories = request.log_dirs
        if not directories:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
        if len(set(directories)) != len(directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory specified in request")
        if any(int.from_bytes(each, "big") < _RESERVED_DIRECTORIES for each in directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
        for broker in self._controller.image.brokers.values():
            if broker.id != request.broker_id and set(directories) & set(broker.log_dirs):
                text = f"Broker {broker.id} is already registered with one of the directories."
                raise KafkaError(ErrorCode.INVALID_REGISTRATION, text)

    async def heartbeat(self, request: BrokerHeartbeatRequest, connection: int) -> BrokerHeartbeatResponse:
        """Extend a broker's session, and fence, unfence or release it. `connection` is the one that it came on.

        The answer is a lease of leadership. It waits until no successor of this controller can have been elected more
        than half a fetch timeout before the heartbeat came: see `broker.kraft.heartbeat_lease.lease_ms`.
        """
        controller = self._controller
        if not controller.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        broker_id = request.broker_id
        broker = registered(controller.image, broker_id, request.broker_epoch)
        sessions = controller.sessions
        sessions.touch(broker_id, broker.epoch, request.current_metadata_offset, self._clock.monotonic())
        self._watch.note_heartbeat(broker_id, connection)
        await controller.wait_until_followed()
        if not controller.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        broker = registered(controller.image, broker_id, request.broker_epoch)
        if request.offline_log_dirs:
            await controller.decide(lambda c: c.fail_directories(broker_id, request.offline_log_dirs))
            broker = registered(controller.image, broker_id, request.broker_epoch)
        heartbeat = Heartbeat(broker_id, request.current_metadata_offset, request.want_fence, request.want_shut_down)
        if heartbeat.wants_shutdown and not broker.fenced and not heartbeat.wants_fence:
            broker = await self._move_leaderships(broker)
        state = next_state(
            broker,
            heartbeat,
            has_leaderships=heartbeat.wants_shutdown and leads(controller.image, broker_id),
            moved=sessions.lowest_offset(controller.image.brokers) >= self._shutdowns.get(broker_id, 0) - 1,
        )
        if state is NextState.UNFENCED and broker.fenced:
            self._releases[broker_id] = controller.next_offset
            await controller.decide(lambda c: c.fence_brokers((), [broker_id]))
        elif state in _FENCED:
            # A broker that serves does not ask to be fenced: such a heartbeat was sent before the one that unfenced it,
            # over a connection that it has given up. Its lease lasts, so that no other broker may lead yet.
            if state is NextState.SHUTDOWN_NOW and not broker.fenced:
                # It stops serving with the answer: no follower waits for it any longer than that.
                await controller.decide(lambda c: c.fence_brokers([broker_id]))
        elif controller.committed_offset <= self._releases.get(broker_id, -1):
            # The broker leads by the answer once it has applied what is committed, which may lack the fence before.
            await controller.wait_until_committed()
        return BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.epoch,
            is_fenced=state in _FENCED,
            should_shut_down=state is NextState.SHUTDOWN_NOW,
        )

    async def _move_leaderships(self, broker: Broker) -> Broker:
        controller = self._controller
        if broker.id not in self._shutdowns or leads(controller.image, broker.id):
            await controller.decide(lambda c: c.shut_down_broker(broker.id, broker.epoch))
            self._shutdowns[broker.id] = controller.next_offset
        return registered(controller.image, broker.id, broker.epoch)

    async def assign_directories(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Note the directories of a broker's replicas; each has its own error."""
        wanted = [
            ReplicaDirectory(topic.topic_id, part.partition_index, directory.id)
            for directory in request.directories
            for topic in directory.topics
            for part in topic.partitions
        ]
        codes = iter(
            await self._controller.decide(
                lambda c: c.assign_directories(request.broker_id, request.broker_epoch, wanted)
            )
        )
        return AssignReplicasToDirsResponse(
            directories=[
                AssignReplicasToDirsResponseDirectoryData(
                    directory.id,
                    [
                        AssignReplicasToDirsResponseTopicData(
                            topic.topic_id,
                            [
                                AssignReplicasToDirsResponsePartitionData(part.partition_index, next(codes))
                                for part in topic.partitions
                            ],
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in request.directories
            ]
        )

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        """Note where a controller of the quorum is reached, and its features (KIP-919)."""
        if not request.listeners or request.incarnation_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No listeners or no incarnation in the registration.")
        try:
            endpoints = endpoints_of(request.listeners)
        except UnknownMetadata as error:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, str(error)) from error
        found = ControllerRegistration(
            request.controller_id, request.incarnation_id, endpoints, features_of(request.features)
        )
        await self._controller.decide(lambda c: c.register_controller(found))
        return ControllerRegistrationResponse(error_message=None)


def leads(image: ClusterImage, broker_id: int) -> bool:
    """Whether a broker leads partitions that another replica in sync could lead.

    Those that no other one can lead do not keep it from ending, as in Kafka.
    """
    active = {i for i, broker in image.brokers.items() if broker.is_active and i != broker_id}
    return any(
        state.leader == broker_id and not active.isdisjoint(state.isr)
        for topic in image.topics.values()
        for state in topic.partitions
    )
