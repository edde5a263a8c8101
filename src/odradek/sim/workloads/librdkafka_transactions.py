"""A transactional producer that does what librdkafka does where ours is more careful, on frames of its own.

It speaks the protocol of before KIP-890: an epoch lasts for many transactions, and sequences continue from one to the
next. When it aborts, it purges the batches without an acknowledgement. Of a batch whose last answer says "not written"
(NOT_LEADER_OR_FOLLOWER) it believes that: its sequences go to the next batch, in the next transaction. Only for a batch
that was possibly persisted (a lost connection, a timeout, NOT_ENOUGH_REPLICAS_AFTER_APPEND), and for one that was out
of order, it asks for another epoch.

Two things are worse than librdkafka. It sometimes continues the transaction without the record that it gave up. And the
batch that takes over the sequences sometimes has the same CRC, as where an application repeats an aborted record to the
byte: values have to differ for the checkers, so a header makes up for it.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from fastcrc.crc32 import iscsi as crc32c

from odradek.records.batch import CRC_START, parse_header, patch_crc
from odradek.records.builder import BatchFields, encode_batch
from odradek.sim.checkers.history import ABORTED, COMMITTED, OK, UNKNOWN, Send, Transaction
from odradek.sim.workloads.clients import Numbered, app_random
from odradek.sim.workloads.librdkafka_producer import Wire
from odradek.sim.world.hosts import PORT, ClientHost
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)

_TRANSACTION: Final = 1
"""The type of a coordinator's key."""
_TIMEOUT_MS: Final = 8_000
_PATIENCE_S: Final = 6.0
"""For how long a batch is sent again before its transaction is aborted."""
_ACKNOWLEDGED: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_POSSIBLY_PERSISTED: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
_LOADING: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)  # fmt: skip


class _Abort(Exception):
    """The transaction cannot be committed."""


class _GivenUp(_Abort):
    """The batch was, for all that its producer knows, never written."""


class _Lost(Exception):
    """The producer has to begin again, without its epoch."""


class _Batch:
    """A batch and what its producer knows of it."""

    __slots__ = ("data", "deadline", "index", "possibly_persisted", "sends", "sequence")

    def __init__(self, index: int, sequence: int, sends: list[Send], data: bytes, deadline: float) -> None:
        self.index = index
        self.sequence = sequence
        self.sends = sends
        self.data = data
        self.deadline = deadline
        self.possibly_persisted = False


class Transactor:
    """The producer: its identity, the next sequence of each partition, the leaders that it knows."""

    __slots__ = (
        "_host", "_identity", "_leaders", "_name", "_needs_epoch", "_numbered", "_partitions", "_purged", "_rng",
        "_sequences", "_topic", "_wires",
    )  # fmt: skip

    def __init__(self, host: ClientHost, topic: str, partitions: int, transactional_id: str) -> None:
        self._host = host
        self._topic = topic
        self._partitions = partitions
        self._name = transactional_id
        self._rng: random.Random = app_random(host)
        self._numbered = Numbered(host, self._rng)
        self._wires: dict[int, Wire] = {}
        self._leaders: dict[int, int] = {}
        self._identity = (-1, -1)
        self._needs_epoch = True
        self._sequences = [0] * partitions
        self._purged: dict[int, _Batch] = {}
        """Of each partition the first batch whose sequences are free again."""

    async def run(self) -> None:
        """Transact until the faults end."""
        world = self._host.world
        while not world.is_stopping():
            try:
                if self._needs_epoch:
                    await self._initialize()
                await self._transact()
            except (_Lost, OSError) as error:
                world.note(f"{self._host.name}: begins again: {error!r}")
                self._identity, self._needs_epoch = (-1, -1), True
                await asyncio.sleep(0.2)
            await asyncio.sleep(self._rng.expovariate(5.0))
        for wire in self._wires.values():
            wire.lose(OSError("finished"))

    # --- connections ---

    async def _wire(self, node_id: int) -> Wire:
        wire = self._wires.get(node_id)
        if wire is None or wire.broken is not None:
            broker = self._host.world.brokers[node_id - 1]
            stream = await self._host.network.connect(broker.host, PORT, 3.0)
            wire = self._wires[node_id] = Wire(stream, f"{self._host.name}.{self._host.restarts}")
        return wire

    async def _anywhere(self, request: Any, response_type: Any, version: int) -> Any:
        node_id = self._rng.randrange(len(self._host.world.brokers)) + 1
        return await (await self._wire(node_id)).send(request, response_type, version)

    async def _coordinator(self, request: Any, response_type: Any, version: int) -> Any:
        """The answer of the coordinator, asked again while it loads or moves; OSError when that takes too long."""
        until = self._host.world.now() + 15.0
        while self._host.world.now() < until:
            try:
                found = await self._anywhere(
                    FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[self._name]),
                    FindCoordinatorResponse, 4,
                )  # fmt: skip
                row = found.coordinators[0]
                if not row.error_code:
                    answer = await (await self._wire(row.node_id)).send(request, response_type, version)
                    if _code_of(answer) not in _LOADING:
                        return answer
            except OSError as error:
                self._host.world.note(f"{self._host.name}: {error!r}")
            await asyncio.sleep(0.1)
        raise TimeoutError("the coordinator does not answer")

    async def _leader(self, index: int) -> int:
        while index not in self._leaders:
            topic = MetadataRequestTopic(name=self._topic)
            found = await self._anywhere(MetadataRequest([topic], False), MetadataResponse, 9)
            for each in found.topics[0].partitions:
                if each.leader_id > 0:
                    self._leaders[each.partition_index] = each.leader_id
            if index not in self._leaders:
                await asyncio.sleep(0.1)
        return self._leaders[index]

    # --- transactions ---

    async def _initialize(self) -> None:
        request = InitProducerIdRequest(self._name, _TIMEOUT_MS, *self._identity)
        answer = await self._coordinator(request, InitProducerIdResponse, 4)
        if answer.error_code:
            raise _Lost(ErrorCode(answer.error_code).name)
        self._identity = (answer.producer_id, answer.producer_epoch)
        self._sequences = [0] * self._partitions
        self._purged.clear()
        self._needs_epoch = False
        self._numbered.renew()

    async def _transact(self) -> None:
        host = self._host
        history = host.world.history
        transaction = Transaction(self._numbered.name, len(history.transactions), host.world.now())
        history.transactions.append(transaction)
        indexes = self._rng.sample(range(self._partitions), self._rng.randint(1, self._partitions))
        try:
            await self._add(indexes)
            await self._write_all(indexes, transaction)
            committed = self._rng.random() < 0.75
        except _Abort as error:
            host.world.mark(f"foreign transaction aborted: {error}")
            committed = False
        await self._end(transaction, committed=committed)

    async def _add(self, indexes: list[int]) -> None:
        topics = [AddPartitionsToTxnRequestTopic(self._topic, sorted(indexes))]
        request = AddPartitionsToTxnRequest([], self._name, *self._identity, topics)
        answer = await self._coordinator(request, AddPartitionsToTxnResponse, 3)
        code = _code_of(answer)
        if code:
            raise _Lost(code.name)

    async def _end(self, transaction: Transaction, *, committed: bool) -> None:
        world = self._host.world
        if committed:
            transaction.commit_asked_at = world.now()
        try:
            answer = await self._coordinator(EndTxnRequest(self._name, *self._identity, committed), EndTxnResponse, 3)
        except OSError:
            transaction.state = UNKNOWN if committed else ABORTED
            raise
        if answer.error_code:
            transaction.state = UNKNOWN if committed else ABORTED
            raise _Lost(ErrorCode(answer.error_code).name)
        transaction.state, transaction.ended_at = COMMITTED if committed else ABORTED, world.now()

    async def _write_all(self, indexes: list[int], transaction: Transaction) -> None:
        """Write to the partitions at once; when one is given up, purge what is under way to the others."""
        tasks = [asyncio.create_task(self._write(index, transaction)) for index in indexes]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def _write(self, index: int, transaction: Transaction) -> None:
        """Send a few batches to the partition, one after the other; purge the rest when one is given up."""
        left = self._rng.choice((1, 1, 2))
        while left:
            left -= 1
            batch = self._make(index, transaction)
            try:
                await self._deliver(batch)
            except _GivenUp:
                self._purge(batch)
                if self._needs_epoch or self._rng.random() < 0.7:
                    raise
                self._host.world.mark("foreign transaction continues without a record")
                # The next batch takes over the sequences in the same transaction.
                left = max(left, 1)
            except (_Abort, asyncio.CancelledError) as error:
                batch.possibly_persisted |= isinstance(error, asyncio.CancelledError)
                self._purge(batch)
                raise

    def _make(self, index: int, transaction: Transaction) -> _Batch:
        sends = [self._numbered.next(self._topic, index, transaction) for _ in range(self._rng.choice((1, 1, 1, 2)))]
        sequence = self._sequences[index]
        self._sequences[index] += len(sends)
        producer_id, epoch = self._identity
        fields = BatchFields(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
        records = [(self._host.clock.now_ms(), None, send.value, (("padding", bytes(4)),)) for send in sends]
        data = encode_batch(records, fields)
        purged = self._purged.pop(index, None)
        if purged is not None and purged.sends[0].transaction is not transaction and self._rng.random() < 0.5:
            _give_crc(data, parse_header(purged.data).crc)
        return _Batch(index, sequence, sends, bytes(data), self._host.world.now() + _PATIENCE_S)

    def _purge(self, batch: _Batch) -> None:
        """Give up what is not acknowledged: its sequences are free again if it was never persisted."""
        world = self._host.world
        for send in batch.sends:
            send.state, send.outcome_at = UNKNOWN, world.now()
        if batch.possibly_persisted:
            self._needs_epoch = True
        else:
            self._sequences[batch.index] = batch.sequence
            self._purged[batch.index] = batch
            world.mark("foreign transaction reuses sequences")

    async def _deliver(self, batch: _Batch) -> None:
        """Send it until it is acknowledged. Raises _Abort if it is given up."""
        world = self._host.world
        topic = ProduceRequestTopic(self._topic, partition_data=[ProduceRequestPartition(batch.index, batch.data)])
        request = ProduceRequest(self._name, -1, 3_000, [topic])
        while True:
            try:
                wire = await self._wire(await self._leader(batch.index))
            except OSError:
                self._leaders.pop(batch.index, None)
            else:
                try:
                    answer = await wire.send(request, ProduceResponse, 7)
                except OSError:
                    batch.possibly_persisted = True
                    self._leaders.pop(batch.index, None)
                else:
                    row = answer.responses[0].partition_responses[0]
                    if self._is_acknowledged(batch, ErrorCode(row.error_code), row.base_offset):
                        return
            if world.now() > batch.deadline:
                raise _Abort("message timed out")
            await asyncio.sleep(0.1)

    def _is_acknowledged(self, batch: _Batch, code: ErrorCode, base_offset: int) -> bool:
        world = self._host.world
        if code in _ACKNOWLEDGED:
            for number, send in enumerate(batch.sends):
                send.state, send.acked_at, send.outcome_at = OK, world.now(), world.now()
                send.offset = base_offset + number if base_offset >= 0 else -1
            return True
        world.mark(f"foreign transaction: {code.name}")
        if code in _POSSIBLY_PERSISTED:
            batch.possibly_persisted = True
        elif code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._leaders.pop(batch.index, None)
            if self._rng.random() < 0.6:
                # The application does not wait for it to be sent again.
                raise _GivenUp("given up by its application")
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._needs_epoch = True
            raise _Abort(code.name)
        elif code not in (ErrorCode.NOT_ENOUGH_REPLICAS, *_LOADING):
            batch.possibly_persisted = True
            raise _Abort(code.name)
        return False


def _give_crc(batch: bytearray, wanted: int) -> None:
    """Choose the last four bytes of the batch so that it has this CRC.

    A CRC is linear: each of the 32 bits flips a fixed set of its bits, so that a system of linear equations says which.
    """
    tail = len(batch) - 4
    batch[tail:] = bytes(4)
    without = crc32c(memoryview(batch)[CRC_START:])
    rows: list[tuple[int, int]] = []
    for bit in range(32):
        batch[tail:] = (1 << bit).to_bytes(4, "big")
        row = (crc32c(memoryview(batch)[CRC_START:]) ^ without, 1 << bit)
        for flips, bits in rows:
            if row[0] ^ flips < row[0]:
                row = row[0] ^ flips, row[1] ^ bits
        rows.append(row)
        rows.sort(reverse=True)
    missing, chosen = wanted ^ without, 0
    for flips, bits in rows:
        if missing ^ flips < missing:
            missing, chosen = missing ^ flips, chosen ^ bits
    batch[tail:] = chosen.to_bytes(4, "big")
    patch_crc(memoryview(batch), 0, parse_header(batch).batch_length)


def _code_of(answer: Any) -> ErrorCode:
    """The first error of the answer."""
    if isinstance(answer, AddPartitionsToTxnResponse):
        rows = [row for topic in answer.results_by_topic_v3_and_below for row in topic.results_by_partition]
        return ErrorCode(next((row.partition_error_code for row in rows if row.partition_error_code), 0))
    return ErrorCode(answer.error_code)


async def transact(host: ClientHost, topic: str, partitions: int, transactional_id: str) -> None:
    """Write transactions to the topic until the faults end."""
    await Transactor(host, topic, partitions, transactional_id).run()
