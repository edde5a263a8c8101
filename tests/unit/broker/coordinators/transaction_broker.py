"""A transaction coordinator on real partitions of `__transaction_state` and of a topic, without a broker around it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from odradek.broker.cluster.peers import Peers
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.coordinators.timers import CoordinatorClock
from odradek.broker.coordinators.transactions import TransactionCoordinatorService
from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment
from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.network import TcpNetwork
from odradek.replication.partition import Partition
from odradek.transactions.events import AddPartitions, EndTransaction, InitProducerId, ProducerResult
from odradek.transactions.service import Verification
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.cluster.broker_proofs import no_proof

STATE = "__transaction_state"
OFFSETS = "__consumer_offsets"
TOPIC = "t"


class Ids:
    """The controller, as far as it hands out producer ids."""

    def __init__(self, block: int = 1000) -> None:
        self.block = block
        self.next = 0
        self.failing = False

    async def next_producer_id_block(self) -> range:
        await asyncio.sleep(0)
        if self.failing:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        first, self.next = self.next, self.next + self.block
        return range(first, self.next)


class TransactionBroker:
    def __init__(self, directory: Path, settings: dict[str, str] | None = None, ids: Ids | None = None) -> None:
        self.directory = directory
        self.ids = ids or Ids()
        self.is_whole = True
        """Whether a topic outside the image does not exist."""
        self.ended: list[tuple[int, int, int, bool]] = []
        self.partitions: dict[tuple[str, int], Partition] = {}
        for place in ((STATE, 0), (OFFSETS, 0), (TOPIC, 0), (TOPIC, 1)):
            self.partitions[place] = self._partition(*place)
        counts = {STATE: 1, OFFSETS: 1, TOPIC: 2}
        led = PartitionState(1, 0, (1,), (1,))
        self.image = ClusterImage().with_topics(
            Topic(name, name.encode().ljust(16, b"-"), (led,) * count) for name, count in counts.items()
        )
        self.runtime = TransactionCoordinatorService(
            BrokerConfig(settings or {}),
            CoordinatorClock(SystemClock()),
            self,
            self.ids,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self,
            Peers(TcpNetwork(), lambda: self.image, "PLAINTEXT", 1, no_proof),
        )

    def _partition(self, topic: str, index: int) -> Partition:
        path = self.directory / f"{topic}-{index}"
        path.mkdir(exist_ok=True, parents=True)
        config = LogConfig(cleanup_policy=frozenset({"compact"})) if topic.startswith("__") else LogConfig()
        environment = LogEnvironment(SystemDisk(), SystemClock())
        log = PartitionLog.open(topic, index, str(path), config, environment)
        partition = Partition(topic, bytes(16), index, 1, log)
        partition.apply_state(PartitionState(1, 0, (1,), (1,)))
        return partition

    # --- what the runtime asks of its surroundings ---

    def find(self, topic: str, index: int) -> Partition | None:
        return self.partitions.get((topic, index))

    def transaction_ended(self, index: int, producer_id: int, last_offset: int, *, committed: bool) -> None:
        self.ended.append((index, producer_id, last_offset, committed))

    # --- what tests do ---

    @property
    def state(self) -> Partition:
        return self.partitions[STATE, 0]

    def start(self) -> TransactionBroker:
        self.runtime.elected(self.state)
        return self

    def stop(self) -> None:
        self.runtime.close()
        for partition in self.partitions.values():
            partition.log.close()

    def set_followers(self, partition: Partition, *followers: int) -> None:
        """With followers in sync that never fetch, nothing more is committed."""
        replicas = (1, *followers)
        partition.apply_state(PartitionState(1, 0, replicas, replicas, partition.partition_epoch + 1))

    def commit_all(self, partition: Partition) -> None:
        """Without followers."""
        partition.apply_state(PartitionState(1, 0, (1,), (1,), partition.partition_epoch + 1))

    def init(self, transactional_id: str = "tx", timeout_ms: int = 60_000, connection: int = 1) -> Any:
        return self.runtime.init_producer_id(InitProducerId(transactional_id, timeout_ms), connection)

    async def producer(self, transactional_id: str = "tx", timeout_ms: int = 60_000) -> tuple[int, int]:
        result: ProducerResult = await self.init(transactional_id, timeout_ms)
        assert result.error is ErrorCode.NONE
        return result.producer_id, result.producer_epoch

    def add(self, producer: tuple[int, int], *places: tuple[str, int], connection: int = 1) -> Any:
        return self.runtime.add_partitions(AddPartitions("tx", *producer, frozenset(places)), connection)

    def end(self, producer: tuple[int, int], *, commit: bool = True, version: int = 0, connection: int = 1) -> Any:
        return self.runtime.end(EndTransaction("tx", *producer, commit, version), connection)

    def verify_or_add(self, producer: tuple[int, int], *places: tuple[str, int], version: int = 12) -> Any:
        return self.runtime.verify_or_add(Verification("tx", *producer, places), version)

    def shown(self, transactional_id: str = "tx") -> str:
        return self.runtime.describe(transactional_id).state
