"""A client that behaves as librdkafka does where ours is more careful, on frames of its own.

Everything goes over one connection: Produce requests up to five at a time, from the very first batch on, and fetches
that wait at the broker between them. Answers are taken in the order of the requests, whatever they say they belong to.
After a lost connection or a refusal it waits until nothing is under way and sends again what is not acknowledged, from
the oldest on, with the numbers that it had. It never gives a record up, so a broker that keeps its promises never
answers that a number is out of order.

A batch whose answer was lost with its connection may be in the log. A broker that does not lead yet rejects it when it
is sent again; if the broker leads when the next batch arrives, it appends that one, as Apache Kafka does. The
acknowledgement of the next batch then counts for both, as in librdkafka (`rd_kafka_dr_implicit_ack`). No batch may
overtake one that was only rejected.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any, Final, TypeVar

from odradek.ports.network import WOULD_BLOCK, Stream
from odradek.records.batch import split_batches, verify_crc
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.errors import CorruptRecords
from odradek.records.record import decode_records
from odradek.sim.checkers.history import OK, UNKNOWN, Reader, Seen, Send, Violation
from odradek.sim.workloads.clients import Numbered, app_random
from odradek.sim.world.hosts import PORT, ClientHost
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import FrameReader
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from odradek.wire.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)

T = TypeVar("T")

MAX_IN_FLIGHT: Final = 5
_TIMEOUT_S: Final = 4.0
_EARLIEST: Final = -2
_ACKNOWLEDGED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_AFRESH: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class Wire:
    """One connection. The oldest open request gets the next answer; any other correlation id is a violation."""

    __slots__ = ("_client_id", "_correlation_id", "_frames", "_open", "_out", "_stream", "broken")

    def __init__(self, stream: Stream, client_id: str) -> None:
        self._stream = stream
        self._client_id = client_id
        self._correlation_id = 0
        self._frames = FrameReader(1 << 26)
        self._open: deque[tuple[int, Any, int, asyncio.Future[Any]]] = deque()
        self._out = bytearray()
        self.broken: BaseException | None = None
        stream.watch_reads(self._readable)

    def send(self, request: Any, response_type: type[T], version: int) -> asyncio.Future[T]:
        """The answer to come; it fails with OSError when the connection is lost or the answer late."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self.broken is not None:
            future.set_exception(self.broken)
            return future
        self._correlation_id += 1
        frame = bytearray(4)
        encode_request_header(frame, request.API_KEY, version, self._correlation_id, self._client_id)
        request.encode(frame, version)
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        self._open.append((self._correlation_id, response_type, version, future))
        self._out += frame
        self._flush()
        loop.call_later(_TIMEOUT_S, self._check, self._correlation_id)
        return future

    def _check(self, correlation_id: int) -> None:
        if self._open and self._open[0][0] <= correlation_id:
            self.lose(TimeoutError(f"no answer to request {correlation_id}"))

    def _flush(self) -> None:
        try:
            while self._out:
                sent = self._stream.send(self._out, False)
                if sent == WOULD_BLOCK:
                    self._stream.watch_writes(self._flush)
                    return
                del self._out[:sent]
            self._stream.watch_writes(None)
        except OSError as error:
            self.lose(error)

    def _readable(self) -> None:
        try:
            received = self._stream.receive_into(self._frames.space())
            if received == 0:
                raise ConnectionResetError("closed by the broker")
            if received != WOULD_BLOCK:
                for frame in self._frames.received(received):
                    self._answered(memoryview(bytes(frame)))
        except (OSError, Violation) as error:
            self.lose(error)

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        if not self._open or correlation_id != self._open[0][0]:
            expected = self._open[0][0] if self._open else "none"
            raise Violation(
                "answers in the order of requests", f"{self._client_id} got answer {correlation_id}, {expected} was due"
            )
        _, response_type, version, future = self._open.popleft()
        _, position = parse_response_header(frame, response_type.API_KEY, version)
        response, _ = response_type.decode(frame, position, version)
        if not future.done():
            future.set_result(response)

    def lose(self, error: BaseException) -> None:
        """Close it; everything open fails."""
        if self.broken is not None:
            return
        self.broken = error
        self._stream.close()
        for *_, future in self._open:
            if not future.done():
                future.set_exception(error)
                # The waiting task may have been cancelled.
                future.exception()
        self._open.clear()


class _Batch:
    """`possibly_persisted`: the broker may have appended it to the log and answered on a connection that was lost.
    `may_be_appended`: no answer on this connection says that it was not.
    """

    __slots__ = ("data", "may_be_appended", "possibly_persisted", "sends", "under_way")

    def __init__(self, sends: list[Send], data: bytes) -> None:
        self.sends = sends
        self.data = data
        self.under_way = False
        self.may_be_appended = False
        self.possibly_persisted = False


class Foreign:
    """The client: what it has not got acknowledged, and how far it has read."""

    __slots__ = (
        "_batches", "_draining", "_due", "_host", "_identity", "_in_flight", "_numbered", "_positions", "_reader",
        "_rng", "_sequences", "_topic", "_wakeup",
    )  # fmt: skip

    def __init__(self, host: ClientHost, topic: str, partitions: int) -> None:
        self._host = host
        self._topic = topic
        self._rng: random.Random = app_random(host)
        self._numbered = Numbered(host, self._rng)
        self._reader = Reader(f"{host.name}.{host.restarts}", "read_uncommitted")
        host.world.history.readers.append(self._reader)
        self._positions: dict[int, int | None] = dict.fromkeys(range(partitions))
        self._identity: tuple[int, int] | None = None
        self._due = 0.0
        self._wakeup = asyncio.Event()
        self._reset()

    def _reset(self) -> None:
        """A new producer: what was not acknowledged is given up."""
        for batches in getattr(self, "_batches", {}).values():
            for batch in batches:
                for send in batch.sends:
                    send.state, send.outcome_at = UNKNOWN, self._host.world.now()
        self._identity = None
        self._numbered.renew()
        self._batches: dict[int, deque[_Batch]] = {index: deque() for index in self._positions}
        self._sequences = dict.fromkeys(self._positions, 0)
        self._in_flight = 0
        self._draining = False

    def _bump_epoch(self) -> None:
        """What is under way is given up, and the next epoch begun without asking: late records of the old one must
        not be written after records of the new one.
        """
        assert self._identity is not None
        producer_id, epoch = self._identity
        name = self._numbered.name
        self._reset()
        self._numbered.name = name
        self._identity = (producer_id, epoch + 1)
        self._host.world.mark("foreign producer gave up an epoch")

    async def run(self) -> None:
        """Produce until the run stops."""
        host = self._host
        while not self._is_finished():
            broker = self._rng.choice(host.world.brokers)
            try:
                stream = await host.network.connect(broker.host, PORT, 3.0)
            except OSError:
                await asyncio.sleep(self._rng.uniform(0.05, 0.5))
                continue
            wire = Wire(stream, f"{host.name}.{host.restarts}")
            try:
                await self._serve(wire)
            except OSError as error:
                host.world.note(f"{host.name}: {error!r}")
            finally:
                wire.lose(OSError("given up"))
                waiting = [batch for batches in self._batches.values() for batch in batches]
                is_under_way = any(batch.under_way for batch in waiting)
                for batch in waiting:
                    batch.possibly_persisted |= batch.may_be_appended
                self._rewind()
                if is_under_way and self._rng.random() < 0.4:
                    self._bump_epoch()

    async def _serve(self, wire: Wire) -> None:
        tasks = {asyncio.create_task(self._produce(wire)), asyncio.create_task(self._consume(wire))}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()

    def _is_finished(self) -> bool:
        return self._host.world.is_stopping() and not any(self._batches.values()) and self._has_read_all()

    def _has_read_all(self) -> bool:
        world = self._host.world
        history = world.history
        ends = dict.fromkeys(self._positions, 0)
        # What was sent before a loss of power may be gone; its acknowledgement may come after that.
        since = history.power_losses[-1].at if history.power_losses and not world.keeps_producers else 0.0
        for send in history.sends.values():
            if send.producer == self._numbered.name and send.state == OK and send.sent_at > since:
                ends[send.partition[1]] = max(ends[send.partition[1]], send.offset + 1)
        return all((self._positions[index] or 0) >= end for index, end in ends.items())

    def _rewind(self) -> None:
        """No request is under way: the oldest record goes first again."""
        for batches in self._batches.values():
            for batch in batches:
                batch.under_way = False
        self._in_flight = 0
        self._draining = False

    # --- producing ---

    async def _produce(self, wire: Wire) -> None:
        while not self._is_finished():
            if wire.broken is not None:
                raise wire.broken
            if self._identity is None:
                await self._identify(wire)
            if self._draining and not self._in_flight:
                self._rewind()
            if self._host.world.now() >= self._due and not self._host.world.is_stopping():
                self._due = self._host.world.now() + self._rng.expovariate(1.5)
                for _ in range(self._rng.choice((1, 2, 7))):
                    self._make(self._rng.choice(sorted(self._positions)))
            while not self._draining and self._in_flight < MAX_IN_FLIGHT and (chosen := self._unsent()):
                self._send(wire, *chosen)
            await self._pause(0.3)

    async def _pause(self, seconds: float) -> None:
        self._wakeup.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            return

    async def _identify(self, wire: Wire) -> None:
        request = InitProducerIdRequest(None, 60_000)
        answer = await wire.send(request, InitProducerIdResponse, 4)
        if answer.error_code:
            self._refused(answer.error_code, "InitProducerId")
            await asyncio.sleep(0.1)
        else:
            self._identity = (answer.producer_id, answer.producer_epoch)

    def _refused(self, code: int, what: str) -> None:
        error = KafkaError(ErrorCode(code))
        self._host.world.mark(f"error {error.code.name}")
        if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            raise Violation("no unknown server errors", f"{self._host.name}: {what}")

    def _make(self, index: int) -> None:
        """A batch for the partition; it is encoded when it has its numbers."""
        if self._identity is None or len(self._batches[index]) >= 20:
            return
        sends = [self._numbered.next(self._topic, index) for _ in range(self._rng.choice((1, 1, 4)))]
        records = [(self._host.clock.now_ms(), None, send.value, ()) for send in sends]
        sequence = self._sequences[index]
        self._sequences[index] += len(sends)
        producer_id, epoch = self._identity
        fields = BatchFields(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        self._batches[index].append(_Batch(sends, bytes(encode_batch(records, fields))))

    def _unsent(self) -> tuple[int, _Batch] | None:
        for index, batches in self._batches.items():
            for batch in batches:
                if not batch.under_way:
                    return index, batch
        return None

    def _send(self, wire: Wire, index: int, batch: _Batch) -> None:
        batches = self._batches[index]

        def answered(future: asyncio.Future[ProduceResponse]) -> None:
            self._wakeup.set()
            if future.exception() is not None or self._batches.get(index) is not batches:
                return
            self._in_flight -= 1
            try:
                self._answered(batches, batch, future.result().responses[0].partition_responses[0])
            except Violation as violation:
                wire.lose(violation)

        self._in_flight += 1
        batch.under_way = batch.may_be_appended = True
        topic = ProduceRequestTopic(self._topic, partition_data=[ProduceRequestPartition(index, batch.data)])
        request = ProduceRequest(None, -1, 3_000, [topic])
        # A callback, not a task: answers are taken in the order in which they come.
        wire.send(request, ProduceResponse, 7).add_done_callback(answered)

    def _answered(self, batches: deque[_Batch], batch: _Batch, response: Any) -> None:
        code = ErrorCode(response.error_code)
        if code in _ACKNOWLEDGED:
            self._acknowledged(batches, batch, response.base_offset)
        elif code in _AFRESH and not self._draining and batches and batches[0] is batch:
            self._host.world.mark(f"foreign producer restarts: {code.name}")
            if self._host.world.keeps_producers:
                raise Violation("known producers continue", f"{code.name} for {batch.sends[0]}, the oldest under way")
            self._reset()
        else:
            # An error that comes after the append leaves the offset in the answer, as in Kafka.
            batch.may_be_appended = response.base_offset >= 0
            self._refused(response.error_code, "Produce")
            self._draining = True

    def _acknowledged(self, batches: deque[_Batch], batch: _Batch, base_offset: int) -> None:
        if batch not in batches:
            return
        while (oldest := batches[0]) is not batch:
            if not oldest.possibly_persisted:
                raise Violation("acknowledged out of order", f"{batch.sends[0]} before {oldest.sends[0]}")
            self._host.world.mark("foreign producer: acknowledged by a later batch")
            self._note_acknowledged(batches.popleft(), -1)
        self._note_acknowledged(batches.popleft(), base_offset)

    def _note_acknowledged(self, batch: _Batch, base_offset: int) -> None:
        now = self._host.world.now()
        for number, send in enumerate(batch.sends):
            send.state, send.acked_at, send.outcome_at = OK, now, now
            send.offset = base_offset + number if base_offset >= 0 else -1

    # --- consuming ---

    async def _consume(self, wire: Wire) -> None:
        while not self._is_finished():
            for index, position in self._positions.items():
                if position is None:
                    await self._find_start(wire, index)
            ready = {index: position for index, position in self._positions.items() if position is not None}
            if not ready:
                await asyncio.sleep(0.2)
                continue
            partitions = [FetchRequestPartition(i, -1, at, -1, -1, 200_000) for i, at in ready.items()]
            request = FetchRequest(
                max_wait_ms=self._rng.choice((50, 500)), min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
                topics=[FetchRequestTopic(self._topic, partitions=partitions)],
            )  # fmt: skip
            answer = await wire.send(request, FetchResponse, 11)
            for topic in answer.responses:
                for each in topic.partitions:
                    self._fetched(each)
            await asyncio.sleep(self._rng.choice((0.02, 0.6)))

    async def _find_start(self, wire: Wire, index: int) -> None:
        partition = ListOffsetsRequestPartition(index, timestamp=_EARLIEST)
        request = ListOffsetsRequest(-1, topics=[ListOffsetsRequestTopic(self._topic, [partition])])
        found = (await wire.send(request, ListOffsetsResponse, 5)).topics[0].partitions[0]
        if found.error_code:
            self._refused(found.error_code, "ListOffsets")
        else:
            self._reader.jumped.append(len(self._reader.seen))
            self._positions[index] = found.offset

    def _fetched(self, response: Any) -> None:
        index = response.partition_index
        if response.error_code:
            self._refused(response.error_code, "Fetch")
            if response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._positions[index] = None
            return
        now, position = self._host.world.now(), self._positions[index] or 0
        data = memoryview(response.records or b"")
        try:
            for at, header in split_batches(data, allow_partial_tail=True):
                verify_crc(data, at, header)
                if not header.is_control:
                    for record in decode_records(data, header, at, copy=True):
                        if record.offset >= position:
                            seen = Seen((self._topic, index), record.offset, bytes(record.value or b""))
                            self._reader.seen.append((now, seen))
                position = max(position, header.next_offset)
        except CorruptRecords as error:
            raise Violation("served records are sound", f"{self._topic}-{index} from {position}: {error}") from error
        self._positions[index] = position


async def foreign(host: ClientHost, topic: str, partitions: int) -> None:
    """Produce and consume until the end, then until everything is acknowledged and read."""
    await Foreign(host, topic, partitions).run()
