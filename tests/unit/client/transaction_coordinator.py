"""A coordinator of transactions of the first version (TV1), and a producer that it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from odradek.client.producer.transactions import TransactionalProducer
from odradek.wire.apis import ApiKey
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
)
from odradek.wire.messages.end_txn import EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdResponse
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.unit.client.fake_cluster import OPTIONS, FakeBroker, FakeCluster


class Coordinator(FakeCluster):
    """Answers a transactional producer; notes the order of what it asks."""

    def __init__(self, brokers: int = 1) -> None:
        super().__init__(brokers, topics={"t": 2})
        self.epoch = -1
        self.ended: list[tuple[int, bool]] = []

    def asked(self) -> list[str]:
        quiet = {ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR}
        return [key.name for _, key, _, _ in self.requests if key not in quiet]

    def on_init_producer_id(self, broker: FakeBroker, request: Any, version: int) -> Any:
        self.epoch += 1
        return InitProducerIdResponse(0, 0, 7, self.epoch)

    def on_add_partitions_to_txn(self, broker: FakeBroker, request: Any, version: int, code: int = 0) -> Any:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnResponseTopic(
                    t.name, [AddPartitionsToTxnResponsePartition(p, code) for p in t.partitions]
                )
                for t in request.v3_and_below_topics
            ]
        )

    def on_add_offsets_to_txn(self, broker: FakeBroker, request: Any, version: int) -> Any:
        return AddOffsetsToTxnResponse()

    def on_txn_offset_commit(self, broker: FakeBroker, request: Any, version: int) -> Any:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    t.name, [TxnOffsetCommitResponsePartition(p.partition_index) for p in t.partitions]
                )
                for t in request.topics
            ]
        )

    def on_end_txn(self, broker: FakeBroker, request: Any, version: int) -> Any:
        self.ended.append((request.producer_epoch, request.committed))
        return EndTxnResponse()


Body = Callable[[TransactionalProducer], Coroutine[Any, Any, None]]


def run(cluster: Coordinator, body: Body, **options: Any) -> None:
    options = {"transactional_id": "x", "linger_ms": 0, **OPTIONS, **options}

    async def main() -> None:
        async with asyncio.timeout(20):
            async with TransactionalProducer(network=cluster, **options) as producer:
                await body(producer)

    asyncio.run(main())
