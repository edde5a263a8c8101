"""Requests of a broker to the controller: what becomes of each answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.cluster.remote_controller import RemoteController
from odradek.controller.in_sync import IsrChange
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from odradek.wire.messages.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

TOPIC_ID = bytes(15) + b"\7"
KNOWN = PartitionState(1, 4, (1, 2, 3), (1, 2, 3), partition_epoch=9)


def controller(answer: Any) -> RemoteController:
    """One that answers each request with this."""

    async def ask(*_: Any) -> Any:
        return answer

    view: Any = SimpleNamespace(image=ClusterImage("c").with_topics([Topic("t", TOPIC_ID, (KNOWN,))]))
    config: Any = SimpleNamespace(number=lambda _name: 1000)
    return RemoteController(1, ask, view, config)


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER])
def test_rejected_change_of_the_isr_raises_the_error_of_the_answer(code: ErrorCode) -> None:
    """A leader that took the answer without partitions for success would not ask again."""
    change = IsrChange(TOPIC_ID, 0, 4, 9, ((1, -1),))
    with pytest.raises(KafkaError) as raised:
        asyncio.run(controller(AlterPartitionResponse(0, code)).alter_partitions(7, [change]))
    assert raised.value.code is code


def test_changed_isr_is_applied_to_the_known_partition() -> None:
    changed = AlterPartitionResponsePartition(0, 0, 1, 4, [1, 2], partition_epoch=10)
    rejected = AlterPartitionResponsePartition(1, ErrorCode.FENCED_LEADER_EPOCH)
    answer = AlterPartitionResponse(0, 0, [AlterPartitionResponseTopic(TOPIC_ID, [changed, rejected])])
    found = asyncio.run(controller(answer).alter_partitions(7, []))
    assert [tuple(each) for each in found] == [
        (TOPIC_ID, 0, ErrorCode.NONE, KNOWN._replace(isr=(1, 2), partition_epoch=10)),
        (TOPIC_ID, 1, ErrorCode.FENCED_LEADER_EPOCH, None),
    ]


def test_producer_ids_are_those_of_the_answer_unless_it_has_an_error() -> None:
    """Ids from 0 on, of an answer with an error, would be those of another broker's producers."""
    assert asyncio.run(controller(AllocateProducerIdsResponse(0, 0, 500, 10)).next_producer_id_block(7)) == range(
        500, 510
    )
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        asyncio.run(controller(AllocateProducerIdsResponse(0, ErrorCode.STALE_BROKER_EPOCH)).next_producer_id_block(7))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (EnvelopeResponse(None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (EnvelopeResponse(None, 0), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_envelope_without_a_response_raises(answer: EnvelopeResponse, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        asyncio.run(controller(answer).forward(EnvelopeRequest(b""), 1000))
    assert raised.value.code is code
