"""The metadata store as the controller of one epoch writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from odradek.broker.cluster.registrations import burial
from odradek.controller.batching import batches
from odradek.controller.producer_ids import producer_id_block
from odradek.metadata.changes import read_subtree
from odradek.metadata.image import Broker
from odradek.metadata.nodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    PRODUCER_ID_BLOCK,
    ConfigNode,
    ControllerEpochNode,
    DeletionNode,
    ProducerIdBlock,
    ProducerIdBlockNode,
    TopicNode,
)
from odradek.ports.store import ANY_VERSION, Check, Create, Delete, MetadataStore, Operation, Put

DEPOSED: Final = "/odradek/deposed"
"""Odradek's own node: whether brokers are deposed that may still act as leaders."""
YIELDED: Final = "/odradek/yielded"
"""Odradek's own node: the registration of the controller that yielded last, and gave up its lease before."""
REIGN: Final = "/odradek/reign"
"""Odradek's own node: the newest election of a controller whose session the store bounds, and the one before it."""
REIGNS: Final = "/odradek/reigns"
"""Odradek's own nodes: one of each such election, which nothing but the end of the controller's session removes."""
_MARKED: Final = b"1"
_CLEAR: Final = b"0"


class ControllerStore:
    """Writes under an epoch: each transaction checks that no other controller has been elected since.

    All methods that read or write raise StoreError.
    """

    __slots__ = ("_deposed_node", "_epoch_version", "_is_deposed_marked", "store")

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        """The store itself, for reads and watches."""
        self._epoch_version = ANY_VERSION
        self._deposed_node = False
        self._is_deposed_marked = False

    def elected(self, epoch_version: int) -> None:
        """Write as the controller from now on; this is the version of the node of its epoch."""
        self._epoch_version = epoch_version

    async def apply(self, operations: Sequence[Operation]) -> None:
        """One transaction. Raises BadVersion if another controller has been elected, among others."""
        await self.store.apply([Check(CONTROLLER_EPOCH, self._epoch_version), *operations])

    # --- the mark that brokers are deposed, and may still act as leaders ---

    @property
    def is_deposed_marked(self) -> bool:
        """Whether the mark is set, as far as is known."""
        return self._is_deposed_marked

    async def read_deposed(self) -> bool:
        """Whether the mark is set: a controller has written that brokers are deposed, and has not seen them end."""
        node = await self.store.get(DEPOSED)
        self._deposed_node = node is not None
        self._is_deposed_marked = node is not None and node.data == _MARKED
        return self._is_deposed_marked

    def mark_deposed(self) -> list[Operation]:
        """The operations that set the mark, to be written before or with the change that deposes; none if it is set."""
        if self._is_deposed_marked:
            return []
        return [Put(DEPOSED, _MARKED) if self._deposed_node else Create(DEPOSED, _MARKED)]

    def deposed_marked(self) -> None:
        """The mark has been written."""
        self._deposed_node = self._is_deposed_marked = True

    async def clear_deposed(self) -> None:
        """Remove the mark: all former leaders have ended."""
        await self.apply([Put(DEPOSED, _CLEAR)])
        self._is_deposed_marked = False

    async def read_yielded(self) -> tuple[int, int] | None:
        """Broker id and registration epoch of the last controller that yielded; None if none has."""
        node = await self.store.get(YIELDED)
        return None if node is None else _decode_yielded(node.data)

    async def read_ended(self, epoch: int) -> tuple[int, int] | None:
        """Epoch and broker id of the controller before that epoch, if its session with the store has ended."""
        node = await self.store.get(REIGN)
        found = None if node is None else _numbers(node.data, 4)
        if found is None:
            return None
        newest, _, former, broker_id = found
        # A controller in between that wrote nothing here does not bound its lease by its session.
        if (newest, former) != (epoch, epoch - 1) or await self.store.get(f"{REIGNS}/{former}") is not None:
            return None
        return former, broker_id

    async def is_elected(self) -> bool:
        """Whether no other controller has been elected."""
        node = await self.store.get(CONTROLLER_EPOCH)
        return node is not None and node.version == self._epoch_version

    def transactions(self, operations: Sequence[Operation], cuts: Sequence[int]) -> Iterator[Sequence[Operation]]:
        """The operations in transactions that the store accepts, parted at some of the cuts, each when asked for."""
        return batches(operations, cuts, self.store.max_transaction_bytes * 8 // 10)

    async def deletion_of(self, topic: str) -> Iterator[Sequence[Operation]]:
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
        block = producer_id_block(first)
        data = ProducerIdBlockNode.encode(ProducerIdBlock(broker_id, block[0], block[-1]))
        operation = Create(PRODUCER_ID_BLOCK, data) if node is None else Put(PRODUCER_ID_BLOCK, data, node.version)
        return block, operation


def _decode_yielded(data: bytes) -> tuple[int, int] | None:
    """None for a content that is not of this version: the lease is waited for then."""
    found = _numbers(data, 2)
    return None if found is None else (found[0], found[1])


def _numbers(data: bytes, count: int) -> list[int] | None:
    try:
        found = [int(word) for word in data.split()]
    except ValueError:
        return None
    return found if len(found) == count else None


async def election(store: MetadataStore, epoch: int, broker_id: int) -> list[Operation]:
    """The operations that note an election, besides those of Kafka; none where the store bounds no session.

    The leases that a controller of this version grants to its own broker end before its session does, so that its
    successor need not wait for them once the session has ended. Raises StoreError.
    """
    if store.renew_session() is None:
        return []
    node = await store.get(REIGN)
    known = None if node is None else _numbers(node.data, 4)
    former, former_id = (-1, -1) if known is None else known[:2]
    data = b"%d %d %d %d" % (epoch, broker_id, former, former_id)
    return [
        Create(REIGN, data) if node is None else Put(REIGN, data, node.version),
        Create(f"{REIGNS}/{epoch}", b"", ephemeral=True),
    ]


async def yielding(store: MetadataStore, controller: Broker, epoch: int) -> list[Operation]:
    """The operations that end the reign of that epoch and the controller's registration, in favour of another broker.

    The controller must have given up its lease. Empty if another one has been elected. Raises StoreError.
    """
    elected = await store.get(CONTROLLER_EPOCH)
    if elected is None or ControllerEpochNode.decode(elected.data) != epoch:
        return []
    known = await store.get(YIELDED)
    data = b"%d %d" % (controller.id, controller.epoch)
    return [
        Check(CONTROLLER_EPOCH, elected.version),
        Create(YIELDED, data) if known is None else Put(YIELDED, data, known.version),
        *await burial(store, controller),
        Delete(CONTROLLER),
    ]
