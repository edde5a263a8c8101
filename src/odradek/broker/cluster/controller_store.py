"""The metadata store as the controller of one epoch writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.controller.batching import batches
from odradek.metadata.changes import read_subtree
from odradek.metadata.nodes import (
    CONTROLLER_EPOCH,
    PRODUCER_ID_BLOCK,
    ConfigNode,
    DeletionNode,
    ProducerIdBlock,
    ProducerIdBlockNode,
    TopicNode,
)
from odradek.ports.store import ANY_VERSION, Check, Create, Delete, MetadataStore, Operation, Put
from odradek.wire.errors import ErrorCode, KafkaError

PRODUCER_IDS_PER_BLOCK: Final = 1000
"""Producer ids that a broker gets at once."""
MAX_PRODUCER_ID: Final = (1 << 63) - 1
"""The largest producer id."""


class ControllerStore:
    """Writes under an epoch: each transaction checks that no other controller has been elected since.

    All methods that read or write raise StoreError.
    """

    __slots__ = ("epoch_version", "store")

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        """The store itself, for reads and watches."""
        self.epoch_version = ANY_VERSION
        """Version of the node of the controller's epoch since its election."""

    async def apply(self, operations: Sequence[Operation]) -> None:
        """One transaction. Raises BadVersion if another controller has been elected, among others."""
        await self.store.apply([Check(CONTROLLER_EPOCH, self.epoch_version), *operations])

    async def is_elected(self) -> bool:
        """Whether no other controller has been elected."""
        node = await self.store.get(CONTROLLER_EPOCH)
        return node is not None and node.version == self.epoch_version

    def transactions(self, operations: Sequence[Operation], cuts: Sequence[int]) -> list[Sequence[Operation]]:
        """The operations in transactions that the store accepts, parted at some of the cuts."""
        return list(batches(operations, cuts, self.store.max_transaction_bytes * 8 // 10))

    async def deletion_of(self, topic: str) -> list[Sequence[Operation]]:
        """Transactions that delete all nodes of a topic that is marked for deletion."""
        nodes = set(await read_subtree(self.store, TopicNode.path(topic)))
        nodes.update(await read_subtree(self.store, ConfigNode.topic_path(topic)))
        # Those below first; the marker last.
        operations: list[Operation] = [Delete(path) for path in sorted(nodes, key=lambda p: (-p.count("/"), p))]
        operations.append(Delete(DeletionNode.path(topic)))
        return self.transactions(operations, range(1, len(operations)))

    async def next_producer_id_block(self, broker_id: int) -> tuple[range, Operation]:
        """The next block of producer ids, and the operation that reserves it. Raises KafkaError if none are left."""
        node = await self.store.get(PRODUCER_ID_BLOCK)
        first = 0 if node is None else ProducerIdBlockNode.decode(node.data).last + 1
        last = first + PRODUCER_IDS_PER_BLOCK - 1
        if last > MAX_PRODUCER_ID:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been used.")
        data = ProducerIdBlockNode.encode(ProducerIdBlock(broker_id, first, last))
        operation = Create(PRODUCER_ID_BLOCK, data) if node is None else Put(PRODUCER_ID_BLOCK, data, node.version)
        return range(first, last + 1), operation
