"""Requests of this broker to a controller over the wire: of clients, in an Envelope (KIP-590), and its own.

The controller is another broker, or a node of a KRaft quorum: `ask` knows which one, and where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from odradek.api.requests.context import Configuration
from odradek.api.services.controller_service import NotTheController
from odradek.broker.cluster.peers import Purpose
from odradek.broker.cluster.view_waits import Watched, wait_until
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.controller.topics import NewTopic
from odradek.metadata.image import PartitionState
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.message import ApiMessage
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestBrokerState,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
)
from odradek.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

Response = TypeVar("Response", bound=ApiMessage)


_KNOWN_WITHIN_SECONDS: Final = 5.0
"""How long a broker that had a topic created waits for it in its image."""
_ELECTED_WITHIN_SECONDS: Final = 5.0
"""How long a broker whose controller has resigned waits for the next one before the client has to ask again."""


class AskController(Protocol):
    """Sends a request to the controller."""

    async def __call__(
        self, request: ApiMessage, kind: type[Response], timeout_ms: float, purpose: Purpose, /
    ) -> Response:
        """The answer. Raises KafkaError NOT_CONTROLLER where no controller can be reached."""
        ...


class ControllerAway(KafkaError):
    """NOT_CONTROLLER since no controller can be reached, not since the one that was asked has resigned."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, text)


class RemoteController:
    """The controller's answers as objects. Each method raises KafkaError, NOT_CONTROLLER among others."""

    __slots__ = ("_ask", "_config", "_node_id", "_view")

    def __init__(self, node_id: int, ask: AskController, view: Watched, config: Configuration) -> None:
        self._node_id = node_id
        self._ask = ask
        self._view = view
        self._config = config

    async def forward(self, envelope: EnvelopeRequest, timeout_ms: int) -> bytes:
        """The response to a client's request, as it is in the envelope's answer.

        Raises NotTheController once the next controller is known, where the one that was asked has resigned.
        """
        asked = self._view.image.controller_epoch
        timeout_ms = max(timeout_ms, self._config.number("request.timeout.ms"))
        answer = await self._ask(envelope, EnvelopeResponse, timeout_ms, Purpose.FORWARDED)
        if answer.error_code == ErrorCode.NOT_CONTROLLER:
            await wait_until(self._view, lambda image: image.controller_epoch > asked, _ELECTED_WITHIN_SECONDS)
            raise NotTheController(ErrorCode.NOT_CONTROLLER)
        _raise(answer.error_code)
        if answer.response_data is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller's envelope is empty.")
        return answer.response_data

    async def create_topics(self, wanted: Sequence[NewTopic]) -> dict[str, ErrorCode]:
        """Create those that are missing, and wait until the broker knows them; the names that could not be created."""
        timeout_ms = self._config.number("request.timeout.ms")
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequestTopic(
                    name=topic.name,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    configs=[CreateTopicsRequestConfig(name, value) for name, value in topic.configs],
                )
                for topic in wanted
            ],
            timeout_ms=timeout_ms,
        )
        answer = await self._ask(request, CreateTopicsResponse, timeout_ms, Purpose.FORWARDED)
        failures = {
            topic.name: ErrorCode(topic.error_code)
            for topic in answer.topics
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        }
        created = [topic.name for topic in wanted if topic.name not in failures]
        await wait_until(self._view, lambda image: all(name in image.topics for name in created), _KNOWN_WITHIN_SECONDS)
        return failures

    async def next_producer_id_block(self, broker_epoch: int) -> range:
        """Producer ids for this broker alone."""
        request = AllocateProducerIdsRequest(self._node_id, broker_epoch)
        answer = await self._ask(request, AllocateProducerIdsResponse, self._own_timeout_ms(), Purpose.OWN)
        _raise(answer.error_code)
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    async def alter_partitions(self, broker_epoch: int, changes: Sequence[IsrChange]) -> Sequence[IsrChanged]:
        """Ask for other in-sync replicas of partitions that this broker leads."""
        by_topic: dict[bytes, list[AlterPartitionRequestPartition]] = {}
        for change in changes:
            by_topic.setdefault(change.topic_id, []).append(
                AlterPartitionRequestPartition(
                    partition_index=change.partition,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=[AlterPartitionRequestBrokerState(*member) for member in change.isr],
                    partition_epoch=change.partition_epoch,
                )
            )
        request = AlterPartitionRequest(
            self._node_id,
            broker_epoch,
            [AlterPartitionRequestTopic(topic_id, partitions) for topic_id, partitions in by_topic.items()],
        )
        answer = await self._ask(request, AlterPartitionResponse, self._own_timeout_ms(), Purpose.OWN)
        _raise(answer.error_code)
        return [
            IsrChanged(topic.topic_id, p.partition_index, ErrorCode(p.error_code), self._state(topic.topic_id, p))
            for topic in answer.topics
            for p in topic.partitions
        ]

    def _own_timeout_ms(self) -> int:
        """The limit of requests of the broker itself."""
        return self._config.number("controller.socket.timeout.ms")

    def _state(self, topic_id: bytes, reply: object) -> PartitionState | None:
        code, leader, epoch, isr, partition_epoch, index = (
            getattr(reply, name)
            for name in ("error_code", "leader_id", "leader_epoch", "isr", "partition_epoch", "partition_index")
        )
        image = self._view.image
        name = image.topic_names.get(topic_id)
        known = None if name is None else image.partition(name, index)
        if code or known is None:
            return None
        return known._replace(leader=leader, leader_epoch=epoch, isr=tuple(isr), partition_epoch=partition_epoch)


def _raise(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code))


def while_no_controller(code: ErrorCode) -> ErrorCode:
    """The error for a client that asked for metadata: one after which it retries."""
    return ErrorCode.LEADER_NOT_AVAILABLE if code is ErrorCode.NOT_CONTROLLER else code
