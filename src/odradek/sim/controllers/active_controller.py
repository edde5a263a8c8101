"""The decisions of a simulated controller while it leads: `RecordController`, sessions of brokers, their states.

Source: Kafka's `QuorumController`, `BrokerHeartbeatManager`, `ClusterControlManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.record_controller import RecordController, Recorded
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.registration_records import broker_of
from odradek.ports.randomness import SeededRandom
from odradek.records.topic_partition import TopicPartition
from odradek.sim.controllers.model_quorum import ModelController
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest
from odradek.wire.messages.cluster_metadata import (
    RegisterBrokerRecord,
    RegisterBrokerRecordBrokerEndpoint,
    RegisterBrokerRecordBrokerFeature,
)

T = TypeVar("T")

SESSION_SECONDS: Final = 6.0
"""`broker.session.timeout.ms` of simulated clusters."""
_BALANCE_SECONDS: Final = 5.0


class ActiveController:
    """Decides from the moment at which a record of its epoch is committed. Implements `Leading`."""

    def __init__(
        self, controller: ModelController, image: ClusterImage, config: BrokerConfig, *, balances: bool
    ) -> None:
        """`balances`: whether leadership returns to preferred replicas."""
        quorum = controller.quorum
        self._controller = controller
        self._now = quorum.loop.time
        self._spawn = quorum.spawn
        seed = f"{quorum.loop.seed}:controller:{controller.epoch}"
        self._records = RecordController(image, config, SeededRandom(seed))
        now = self._now()
        self._contacts = dict.fromkeys(image.brokers, now)
        self._offsets: dict[int, int] = {}
        """The metadata offsets that brokers have reported."""
        self._shutdown_offsets: dict[int, int] = {}
        self._balances = balances
        self._balanced_at = now
        self._is_deciding = False
        self._spawn(controller, self.decide(RecordController.begin))

    @property
    def image(self) -> ClusterImage:
        """The image after the last decision, committed or not."""
        return self._records.image

    async def decide(self, event: Callable[[RecordController], Recorded[T]], *, as_one: bool = False) -> Sequence[T]:
        """Let an event take effect; the replies count once its records are committed. Raises KafkaError, Deposed."""
        recorded = event(self._records)
        await self._controller.append_records(recorded.records, recorded.image, as_one=as_one)
        replies = [*recorded.replies]
        while recorded.rest is not None:
            recorded = recorded.rest()
            await self._controller.append_records(recorded.records, recorded.image, as_one=as_one)
            replies += recorded.replies
        return replies

    # --- sessions ---

    def tick(self) -> None:
        """Fence a broker whose session is over, one at a time, and balance leaders now and then."""
        now = self._now()
        if self._is_deciding:
            return
        for broker_id, contact in sorted(self._contacts.items()):
            broker = self.image.brokers.get(broker_id)
            if broker is not None and not broker.fenced and now - contact > SESSION_SECONDS:
                self._controller.quorum.note(f"broker {broker_id} is fenced: its session is over")
                self._begin(partial(_fenced, broker_id))
                return
        if self._balances and now - self._balanced_at > _BALANCE_SECONDS:
            self._balanced_at = now
            self._begin(lambda records: records.balance_leaders(0))

    def _begin(self, event: Callable[[RecordController], Recorded[T]]) -> None:
        self._is_deciding = True
        self._spawn(self._controller, self._decided(event))

    async def _decided(self, event: Callable[[RecordController], Recorded[T]]) -> None:
        await self.decide(event)
        self._is_deciding = False

    # --- brokers ---

    async def register(self, request: BrokerRegistrationRequest) -> int:
        """Register a broker; its epoch. Raises KafkaError."""
        if request.cluster_id != self.image.cluster_id:
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID)
        now, broker_id = self._now(), request.broker_id
        known = self.image.brokers.get(broker_id)
        is_new = known is None or known.incarnation_id != request.incarnation_id
        has_session = now - self._contacts.get(broker_id, -SESSION_SECONDS) <= SESSION_SECONDS
        if known is not None and is_new and has_session and not known.in_controlled_shutdown:
            raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        self._controller.quorum.reported(request)
        record = RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=self._controller.log.end.offset,
            end_points=[
                RegisterBrokerRecordBrokerEndpoint(each.name, each.host, each.port, each.security_protocol)
                for each in request.listeners
            ],
            features=[
                RegisterBrokerRecordBrokerFeature(each.name, each.min_supported_version, each.max_supported_version)
                for each in request.features
            ],
            rack=request.rack,
            fenced=True,
            log_dirs=list(request.log_dirs),
        )
        broker = broker_of(record)
        self._contacts[broker_id] = now
        self._shutdown_offsets.pop(broker_id, None)
        await self.decide(lambda records: records.register_broker(broker, request.previous_broker_epoch), as_one=True)
        return self.image.brokers[broker_id].epoch

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Take a heartbeat. Raises KafkaError."""
        broker_id, epoch = request.broker_id, request.broker_epoch
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if broker.epoch != epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        self._controller.quorum.reported(request)
        self._contacts[broker_id] = self._controller.quorum.reported_at[broker_id] = self._now()
        self._offsets[broker_id] = request.current_metadata_offset
        await self._controller.wait_until_followed()
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        if request.offline_log_dirs:
            await self.decide(lambda records: records.fail_directories(broker_id, request.offline_log_dirs))
        if broker.fenced:
            is_ready = not request.want_fence and request.current_metadata_offset >= epoch
            if is_ready and not request.want_shut_down:
                await self.decide(lambda records: records.fence_brokers((), [broker_id]))
        elif request.want_fence:
            await self.decide(lambda records: records.fence_brokers([broker_id]))
        elif request.want_shut_down:
            await self._shut_down(broker_id, epoch)
        await self.decide(lambda records: Recorded((), records.image, ()))
        now_known = self.image.brokers[broker_id]
        if now_known.epoch != epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        if not now_known.fenced:
            self._controller.quorum.unfenced_at[broker_id, epoch] = self._now()
        return BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= epoch,
            is_fenced=now_known.fenced,
            should_shut_down=request.want_shut_down and now_known.fenced,
        )

    async def _shut_down(self, broker_id: int, epoch: int) -> None:
        # With each heartbeat: another replica may have come in sync since the last one.
        await self.decide(lambda records: records.shut_down_broker(broker_id, epoch))
        self._shutdown_offsets.setdefault(broker_id, self._controller.log.end.offset)
        image = self.image
        led = (s for topic in image.topics.values() for s in topic.partitions if s.leader == broker_id)
        active = {each.id for each in image.brokers.values() if each.is_active}
        if any(not active.isdisjoint(state.isr) for state in led):
            return
        others = [each.id for each in image.brokers.values() if not each.fenced and each.id != broker_id]
        if all(self._offsets.get(each, -1) + 1 >= self._shutdown_offsets[broker_id] for each in others):
            await self.decide(lambda records: records.fence_brokers([broker_id]))


def _fenced(broker_id: int, records: RecordController) -> Recorded[TopicPartition]:
    return records.fence_brokers([broker_id])
