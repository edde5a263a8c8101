"""DescribeProducers: only a leader describes; each partition has an answer of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.api import api_61_describe_producers
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic


class Replica:
    """A partition with one producer; only a leader may describe it."""

    def __init__(self, *, leads: bool) -> None:
        self.leads = leads
        producer = SimpleNamespace(
            producer_id=5, epoch=3, last_sequence=9, last_timestamp=77, coordinator_epoch=2, transaction_first_offset=11
        )
        self.log = SimpleNamespace(history=SimpleNamespace(producers=SimpleNamespace(producers={5: producer})))

    def check_leader(self) -> None:
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads")


def describe(*partitions: int) -> list[Any]:
    replicas = {0: Replica(leads=True), 1: Replica(leads=False)}

    def require(topic: str, index: int) -> Any:
        if index not in replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return replicas[index]

    context: Any = SimpleNamespace(services=SimpleNamespace(partitions=SimpleNamespace(require=require)))
    request = DescribeProducersRequest([DescribeProducersRequestTopic("t", list(partitions))])
    return api_61_describe_producers.handle(request, context).topics[0].partitions


def test_leader_describes_its_producers() -> None:
    (found,) = describe(0)
    (producer,) = found.active_producers
    assert (found.partition_index, found.error_code) == (0, ErrorCode.NONE)
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 3, 9)
    assert (producer.last_timestamp, producer.coordinator_epoch) == (77, 2)
    assert producer.current_txn_start_offset == 11


def test_replica_that_is_not_the_leader_describes_nothing() -> None:
    """Its state may lag behind: a tool would take a hanging transaction for one that ended."""
    found = describe(0, 1, 2)
    assert [each.error_code for each in found] == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [len(each.active_producers) for each in found] == [1, 0, 0]
