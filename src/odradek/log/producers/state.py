"""What a partition knows of its producers: sequences, epochs, open transactions (ProducerStateManager, KIP-98).

Pure: snapshots go in and out as bytes. `check` decides about a batch before it is written, `apply` is the only thing
that changes state, for live appends, replication and recovery alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.records.batch import DELETE_HORIZON_BIT, MAX_SEQUENCE, NO_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from odradek.records.control import ControlRecord, ControlType
from odradek.wire.errors import ErrorCode, KafkaError

BATCHES_TO_RETAIN: Final = 5
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
NO_CRC: Final = -1
"""Of a batch that only a snapshot knows (Kafka's format has no room for a CRC), or that compaction has changed."""

_SNAPSHOT_HEADER: Final = Struct(">hI")
_SNAPSHOT_COUNT: Final = Struct(">i")
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_SNAPSHOT_VERSION: Final = 1


class CorruptSnapshot(ValueError):
    """A `.snapshot` file is not one; an earlier one and the log take its place."""


class AppendedBatch(NamedTuple):
    """What is remembered of one of a producer's last batches."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    """Its max timestamp in the log, ms since the epoch."""
    crc: int = NO_CRC
    """CRC-32C as the log has it."""

    @property
    def first_offset(self) -> int:
        """The offset of the batch's first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """The sequence number of the batch's first record."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE


_NO_BATCH: Final = AppendedBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)


class ProducerEntry:
    """A producer's state in this partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_first_offset")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_first_offset = NO_OFFSET
        """The offset at which its open transaction began; -1 without one."""
        self.batches: list[AppendedBatch] = []
        """Its last BATCHES_TO_RETAIN batches. A list: a deque takes 760 bytes however few it has."""

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last appended record; NO_SEQUENCE before the first."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def is_in_open_transaction(self, batch: AppendedBatch) -> bool:
        """Whether the batch belongs to the transaction that is open: no marker came after it.

        Nothing else needs to be remembered for it, so it is known after a restart, too.
        """
        return NO_OFFSET != self.transaction_first_offset <= batch.first_offset

    def set_epoch(self, epoch: int) -> None:
        """Enter the epoch; a new one forgets the batches of the one before."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch


class CompletedTransaction(NamedTuple):
    """A transaction that a marker ended; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerStates:
    """All producers of a partition."""

    __slots__ = (
        "_frozen",
        "_guards",
        "_idle",
        "_old_guards",
        "_ongoing",
        "_unreplicated",
        "producers",
    )

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self._frozen: FrozenProducers | None = None
        # Producers whose last batch is old -> its last offset, as the last `remove_expired` found them.
        self._idle: dict[int, int] = {}
        self._guards: dict[int, object] = {}
        self._old_guards: set[object] = set()
        # First offset of open transactions -> producer id. Offsets only grow, so the order of insertion is theirs.
        self._ongoing: dict[int, int] = {}
        # First offset -> marker's offset of ended transactions whose marker is not below the high watermark.
        self._unreplicated: dict[int, int] = {}

    # --- decide ---

    def check(
        self, header: BatchHeader, *, from_client: bool, crc_at: Callable[[int], int] | None = None
    ) -> AppendedBatch | None:
        """Return None if the batch may follow, or the original if it repeats one of the producer's last five.

        `crc_at` gives the CRC that the batch has with another LogAppendTime (ms), where the topic has that type.
        Raises KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER (clients only), INVALID_TXN_STATE.
        A producer that is not known may begin with any sequence: its batches may have been deleted
        (ProducerAppendInfo).
        """
        entry = self.producers.get(header[9])
        if entry is None:
            return None
        epoch = header[10]
        if from_client and epoch == entry.epoch:
            sequence = header[11]
            batches = entry.batches
            if batches:
                last = batches[-1][0]
                if sequence != last + 1 and not (sequence == 0 and last == MAX_SEQUENCE):
                    return self._duplicate(entry, header, crc_at)
            elif sequence != 0:
                raise _out_of_order(entry, header)
        elif epoch != entry.epoch:
            self._check_epoch(entry, header, from_client)
        if entry.transaction_first_offset != NO_OFFSET and not header[5] & TRANSACTIONAL_BIT:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {entry.producer_id} has a transaction open since offset {entry.transaction_first_offset} "
                "and sent a batch outside of it",
            )
        return None

    def _duplicate(
        self, entry: ProducerEntry, header: BatchHeader, crc_at: Callable[[int], int] | None
    ) -> AppendedBatch:
        """The batch that this one repeats; OUT_OF_ORDER_SEQUENCE_NUMBER if it repeats none.

        Equal sequences do not make a duplicate: a client that believes a batch lost gives its sequences to the next.
        """
        last_sequence = header.last_sequence
        for batch in entry.batches:
            if batch.last_sequence == last_sequence and batch.offset_delta == header.last_offset_delta:
                if header.is_transactional and not entry.is_in_open_transaction(batch):
                    raise _out_of_order(entry, header, "an ended transaction has a batch with these sequences")
                crc = header.crc if crc_at is None else crc_at(batch.timestamp)
                if batch.crc not in (crc, NO_CRC):
                    raise _out_of_order(entry, header, "another batch has these sequences")
                return batch
        raise _out_of_order(entry, header)

    def _check_epoch(self, entry: ProducerEntry, header: BatchHeader, from_client: bool) -> None:
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {header.producer_epoch} of producer {entry.producer_id} is below the last seen {entry.epoch}",
            )
        if from_client and header.base_sequence != 0 and entry.epoch != NO_EPOCH:
            raise _out_of_order(entry, header)

    def check_marker(self, header: BatchHeader, marker: ControlRecord) -> None:
        """Whether a transaction marker may be written: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED."""
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, header, from_client=False)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} for producer {entry.producer_id} is below "
                f"{entry.coordinator_epoch}",
            )

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open in this partition under that epoch."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.transaction_first_offset != NO_OFFSET

    def guard(self, producer_id: int) -> object:
        """A token for the time in which a transaction's coordinator is asked whether the producer may write here."""
        return self._guards.setdefault(producer_id, object())

    def guard_holds(self, producer_id: int, guard: object) -> bool:
        """Whether no marker of the producer has come since `guard`: then the coordinator's answer still counts."""
        return self._guards.get(producer_id) is guard

    # --- replay ---

    def apply(self, header: BatchHeader, base_offset: int) -> None:
        """A data batch of a producer was written at the offset."""
        entry = self._entry(header[9])
        delta = header[6]
        if header[10] != entry.epoch:
            entry.set_epoch(header[10])
        sequence = header[11]
        last_sequence = (sequence + delta) & MAX_SEQUENCE if sequence >= 0 else NO_SEQUENCE
        timestamp = header[8]
        # Compaction writes some batches again, without the records that it removes.
        crc = header[4] if header[12] > delta and not header[5] & DELETE_HORIZON_BIT else NO_CRC
        batches = entry.batches
        if len(batches) == BATCHES_TO_RETAIN:
            del batches[0]
        # Without the constructor of a NamedTuple.
        batches.append(tuple.__new__(AppendedBatch, (last_sequence, base_offset + delta, delta, timestamp, crc)))
        entry.last_timestamp = timestamp
        if header[5] & TRANSACTIONAL_BIT and entry.transaction_first_offset == NO_OFFSET:
            self._guards.pop(header[9], None)
            entry.transaction_first_offset = base_offset
            self._ongoing[base_offset] = entry.producer_id

    def apply_marker(self, header: BatchHeader, offset: int, marker: ControlRecord) -> CompletedTransaction | None:
        """A marker was written; the transaction that it ended, unless that was empty. Then call `complete`."""
        self._guards.pop(header.producer_id, None)
        entry = self._entry(header.producer_id)
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        return CompletedTransaction(entry.producer_id, first_offset, offset, marker.type is ControlType.ABORT)

    def complete(self, transaction: CompletedTransaction) -> AbortedTransaction | None:
        """Close the transaction; what goes into the transaction index if it was aborted."""
        self._ongoing.pop(transaction.first_offset, None)
        self._unreplicated[transaction.first_offset] = transaction.last_offset
        if not transaction.aborted:
            return None
        stable = next(iter(self._ongoing), transaction.last_offset + 1)
        return AbortedTransaction(transaction.producer_id, transaction.first_offset, transaction.last_offset, stable)

    def _entry(self, producer_id: int) -> ProducerEntry:
        """The producer's entry, which is about to change."""
        if self._frozen is not None:
            self._frozen.keep(producer_id)
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        return entry

    # --- stable offsets ---

    def on_high_watermark(self, high_watermark: int) -> None:
        """Transactions whose marker is below it no longer hold the stable offset back."""
        if self._unreplicated:
            self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= high_watermark}

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or whose marker is not yet known to be replicated."""
        first = next(iter(self._ongoing), None)
        if self._unreplicated:
            unreplicated = min(self._unreplicated)
            return unreplicated if first is None or unreplicated < first else first
        return first

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of a transaction that is open."""
        return next(iter(self._ongoing), None)

    def on_log_start(self, log_start_offset: int) -> None:
        """Forget ended transactions whose records lie below the new log start."""
        self.on_high_watermark(log_start_offset)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forget producers that were idle for `producer.id.expiration.ms` and have no open transaction; their ids.

        The time of a producer's last record may be older than its last write, as where a client copies old records. So
        it is idle only if it has written nothing since the last call. Kafka forgets it, and writes a repeated batch
        again.
        """
        limit = now_ms - expiration_ms
        idle = {
            producer_id: entry.batches[-1].last_offset if entry.batches else NO_OFFSET
            for producer_id, entry in self.producers.items()
            if entry.last_timestamp <= limit and entry.transaction_first_offset == NO_OFFSET
        }
        expired = [producer_id for producer_id, offset in idle.items() if self._idle.get(producer_id) == offset]
        for producer_id in expired:
            del self.producers[producer_id], idle[producer_id]
        self._idle = idle
        # Those whose coordinator rejected them or never answered: no request has waited since the last call of this.
        self._guards = {key: guard for key, guard in self._guards.items() if guard not in self._old_guards}
        self._old_guards = set(self._guards.values())
        return expired

    # --- snapshots ---

    def clear(self) -> None:
        """Forget all producers and transactions."""
        self.producers.clear()
        self._idle.clear()
        self._guards.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def load(self, data: bytes) -> None:
        """Take over a snapshot file's content. Raises CorruptSnapshot, then unchanged."""
        entries = decode_snapshot(data)
        self.clear()
        opened = []
        for entry in entries:
            if entry.transaction_first_offset != NO_OFFSET:
                opened.append((entry.transaction_first_offset, entry.producer_id))
            self.producers[entry.producer_id] = entry
        self._ongoing = dict(sorted(opened))

    def open_transactions(self) -> list[tuple[int, int]]:
        """(first offset, producer id) of each."""
        return list(self._ongoing.items())

    def forget_transaction(self, first_offset: int) -> None:
        """Close it, however it ended."""
        self.producers[self._ongoing.pop(first_offset)].transaction_first_offset = NO_OFFSET

    def complete_windows(self, headers: Iterable[BatchHeader]) -> None:
        """Remember the batches before each producer's last one again, from the log's tail in order of offsets.

        A snapshot holds the last one only. Kafka leaves it at that: there, what a producer had in flight when the
        broker stopped and sends again is out of order unless it is the last.
        """
        if not self.producers:
            return
        found: dict[int, deque[AppendedBatch]] = {}
        for header in headers:
            entry = self.producers.get(header.producer_id)
            if entry is None or not entry.batches or header.is_control or header.base_sequence < 0:
                continue
            if header.producer_epoch != entry.epoch:
                continue
            delta = header.last_offset_delta
            last_offset = header.base_offset + delta
            batches = found.setdefault(header.producer_id, deque(maxlen=BATCHES_TO_RETAIN))
            crc = header.crc if header.records_count > delta and not header.has_delete_horizon else NO_CRC
            batches.append(AppendedBatch(header.last_sequence, last_offset, delta, header.max_timestamp, crc))
        for producer_id, batches in found.items():
            entry = self.producers[producer_id]
            # Compaction may have taken batches out: then the snapshot knows more than the log.
            if batches[-1].last_offset == entry.batches[-1].last_offset:
                entry.batches = list(batches)

    def snapshot(self) -> bytes:
        """The content of a `.snapshot` file."""
        return encode_snapshot(self.producers.values())

    def freeze(self) -> FrozenProducers:
        """The producers as they are now, to be encoded while they change; until `thaw`."""
        self._frozen = FrozenProducers(self.producers)
        return self._frozen

    def thaw(self) -> None:
        """What was frozen is encoded, or given up."""
        self._frozen = None


class FrozenProducers:
    """A snapshot of many producers, encoded piece by piece: a producer that changes meanwhile is encoded before."""

    __slots__ = ("_left", "_packed")

    def __init__(self, producers: dict[int, ProducerEntry]) -> None:
        self._left = producers.copy()
        self._packed: list[bytes] = []

    def keep(self, producer_id: int) -> None:
        """Encode the producer as it still is."""
        entry = self._left.pop(producer_id, None)
        if entry is not None:
            self._packed.append(_packed(entry))

    def encode(self, most: int) -> bool:
        """Encode this number of producers at most; whether there are more."""
        left = self._left
        for _ in range(min(most, len(left))):
            self._packed.append(_packed(left.popitem()[1]))
        return bool(left)

    def snapshot(self) -> bytes:
        """The content of a `.snapshot` file; encodes all that is left."""
        self.encode(len(self._left))
        return _snapshot_of(self._packed)


def _out_of_order(entry: ProducerEntry, header: BatchHeader, reason: str = "") -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {entry.producer_id} epoch {header.producer_epoch} sent sequences {header.base_sequence} to "
        f"{header.last_sequence}, its last here is {entry.last_sequence} in epoch {entry.epoch}"
        + (f"; {reason}" if reason else ""),
    )


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Kafka's ProducerSnapshot version 1: version int16, CRC-32C of what follows it, then an array of entries."""
    return _snapshot_of(list(map(_packed, entries)))


def _packed(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else _NO_BATCH
    return _SNAPSHOT_ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        last[0],
        last[1],
        last[2],
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _snapshot_of(packed: list[bytes]) -> bytes:
    body = _SNAPSHOT_COUNT.pack(len(packed)) + b"".join(packed)
    return _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The entries of a snapshot. Raises CorruptSnapshot."""
    header_size = _SNAPSHOT_HEADER.size
    if len(data) < header_size + _SNAPSHOT_COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are no producer snapshot")
    version, crc = _SNAPSHOT_HEADER.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"unknown version {version}")
    if crc != crc32c(data[header_size:]):
        raise CorruptSnapshot(f"CRC {crc:#010x} does not match the content")
    (count,) = _SNAPSHOT_COUNT.unpack_from(data, header_size)
    start = header_size + _SNAPSHOT_COUNT.size
    if count < 0 or start + count * _SNAPSHOT_ENTRY.size > len(data):
        raise CorruptSnapshot(f"{len(data)} bytes cannot hold {count} entries")
    return [_entry_at(data, start + index * _SNAPSHOT_ENTRY.size) for index in range(count)]


def _entry_at(data: bytes, position: int) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first_offset = (
        _SNAPSHOT_ENTRY.unpack_from(data, position)
    )
    entry = ProducerEntry(producer_id)
    entry.epoch = epoch
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    entry.transaction_first_offset = max(first_offset, NO_OFFSET)
    if last_offset >= 0:
        entry.batches.append(AppendedBatch(last_sequence, last_offset, offset_delta, timestamp))
    return entry
