"""One shard of the transaction coordinator: all transactional ids of one partition of `__transaction_state`.

Requests decide: they look at the state and answer with records and a reply (`TransactionDecision`). `replay` alone
changes the state, live and at load alike; a record is the complete new state of its id. A decision's markers wait until
its records are committed.
Source: Kafka's TransactionCoordinator, TransactionMetadata and TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from odradek.records.topic_partition import PartitionKey
from odradek.transactions.deadlines import Deadlines
from odradek.transactions.events import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    Markers,
    ProducerIdSource,
    ProducerResult,
    TransactionDecision,
    TransactionDescription,
    TransactionListing,
)
from odradek.transactions.records import (
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    NO_TIME,
    TV_0,
    TV_2,
    Transaction,
    TransactionRecord,
)
from odradek.transactions.settings import TransactionSettings
from odradek.transactions.states import PREPARED, STATES_BY_TITLE, State, may_follow
from odradek.wire.errors import ErrorCode

_TOMBSTONES_BYTES = 128 * 1024
"""Bound on the tombstones in one batch: the log would reject a larger batch for ever."""
_TOMBSTONE_BYTES = 16
DEADLINES_AT_ONCE: Final = 64
"""Deadlines in one step: others wait for the event loop meanwhile, and each transaction to abort is an append."""


class TransactionCoordinator:
    """A shard. Pass its log to `replay`, then send the markers of `loaded`; before that its answers mean nothing."""

    __slots__ = ("_deadlines", "_ids", "_retry_ms", "_settings", "_uncertain", "transactions")

    def __init__(self, settings: TransactionSettings, ids: ProducerIdSource) -> None:
        self._settings = settings
        self._ids = ids
        self.transactions: dict[str, Transaction] = {}
        self._retry_ms: dict[str, int] = {}
        """Until when an abort or expiry that the log rejected waits."""
        self._uncertain: set[str] = set()
        """Ids whose last epochs the log may have lost."""
        self._deadlines = Deadlines(self._deadline_of)

    # --- the log ---

    def replay(self, record: TransactionRecord) -> None:
        """Apply a record that is in the log."""
        transactional_id, value = record
        self._retry_ms.pop(transactional_id, None)
        if transactional_id in self._uncertain:
            before = self.transactions[transactional_id].producer_id
            if value is None or value.producer_id != before:
                self._uncertain.discard(transactional_id)
        if value is None:
            self.transactions.pop(transactional_id, None)
            self._deadlines.forget(transactional_id)
        else:
            self.transactions[transactional_id] = value
            self._deadlines.update(transactional_id)

    def loaded(self, now_ms: int, *, uncertain: bool = False) -> list[Markers]:
        """The whole log has been replayed: the markers of transactions whose end is decided but not complete.

        A transaction that began in the future (the clock was set back, or another broker's is ahead) begins now, or it
        would stay open for that long beyond its timeout.

        `uncertain`: it may have lost its end, as when the machine lost power. An epoch that is handed out then could be
        one that a producer had, and partitions that lost less would take its batches for repeated ones. So the next
        InitProducerId of each id gives a new producer id, as when epochs are exhausted.
        """
        if uncertain:
            self._uncertain.update(self.transactions)
        for transactional_id, transaction in self.transactions.items():
            if transaction.state is State.ONGOING and transaction.start_ms > now_ms:
                self.transactions[transactional_id] = transaction._replace(start_ms=now_ms)
                self._deadlines.update(transactional_id)
        return [
            _markers(transactional_id, transaction)
            for transactional_id, transaction in self.transactions.items()
            if transaction.state in PREPARED
        ]

    # --- InitProducerId ---

    def init_producer_id(self, request: InitProducerId, now_ms: int) -> TransactionDecision:
        """The reply is a ProducerResult. Raises NoProducerIds (nothing has happened then)."""
        if not request.transactional_id:
            return _failed(ErrorCode.INVALID_REQUEST)
        if not 0 < request.timeout_ms <= self._settings.max_timeout_ms:
            return _failed(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self.transactions.get(request.transactional_id)
        if transaction is None:
            producer_id = self._ids.take()
            created = Transaction(producer_id, 0, request.timeout_ms, State.EMPTY, now_ms)
            return _initialized(request, created._replace(previous_producer_id=producer_id))
        if request.is_recovery and not _is_known_producer(request, transaction):
            return _failed(ErrorCode.PRODUCER_FENCED)
        if transaction.state in PREPARED:
            return _failed(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is State.ONGOING:
            # Kafka lets a recovery with any epoch of this producer id end the transaction, a delayed one too.
            if request.is_recovery and request.producer_epoch != transaction.producer_epoch:
                return _failed(ErrorCode.PRODUCER_FENCED)
            # The client comes back, finds the transaction aborted, and gets its epoch then.
            aborted = self._fence(request.transactional_id, transaction, now_ms)
            return aborted._replace(reply=ProducerResult(ErrorCode.CONCURRENT_TRANSACTIONS))
        return self._next_epoch(request, transaction, now_ms)

    def _next_epoch(self, request: InitProducerId, transaction: Transaction, now_ms: int) -> TransactionDecision:
        is_recovery = request.is_recovery
        uncertain = request.transactional_id in self._uncertain
        current = (
            not is_recovery
            or request.producer_epoch == transaction.producer_epoch
            or (uncertain and request.producer_epoch > transaction.producer_epoch)
        )
        producer_id, epoch = transaction.producer_id, transaction.producer_epoch
        last_epoch = max(epoch, request.producer_epoch) if is_recovery else NO_EPOCH
        if current and (uncertain or transaction.is_epoch_exhausted):
            producer_id, epoch = self._ids.take(), 0
        elif current:
            epoch += 1
        elif request.producer_epoch == transaction.last_producer_epoch:
            # The answer to the same request was lost; after a request of another client there is no last epoch.
            last_epoch = transaction.last_producer_epoch
        else:
            return _failed(ErrorCode.PRODUCER_FENCED)
        initialized = _advance(
            transaction,
            State.EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=request.timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIME,
        )
        if not current:
            # Another repetition must find the same.
            initialized = initialized._replace(previous_producer_id=transaction.previous_producer_id)
        return _initialized(request, initialized)

    # --- adding partitions ---

    def add_partitions(self, request: AddPartitions, now_ms: int) -> TransactionDecision:
        """The reply is an ErrorCode. An ongoing transaction that has them all needs no record."""
        transaction = self.transactions.get(request.transactional_id)
        error = _check_producer(request, transaction)
        if error or transaction is None:
            return TransactionDecision(reply=error)
        partitions = request.partitions
        start_ms = transaction.start_ms
        if transaction.state is State.ONGOING:
            if partitions <= transaction.partitions:
                return TransactionDecision(reply=ErrorCode.NONE)
            partitions |= transaction.partitions
        else:
            start_ms = now_ms
        ongoing = _advance(
            transaction,
            State.ONGOING,
            now_ms,
            partitions=partitions,
            start_ms=start_ms,
            last_producer_epoch=NO_EPOCH,
            client_version=request.client_version,
        )
        return TransactionDecision((TransactionRecord(request.transactional_id, ongoing),), ErrorCode.NONE)

    def verify_partitions(self, request: AddPartitions) -> dict[PartitionKey, ErrorCode]:
        """Whether each partition is part of the producer's transaction; TRANSACTION_ABORTABLE if it is not."""
        transaction = self.transactions.get(request.transactional_id)
        error = _check_producer(request, transaction)
        if error or transaction is None:
            return dict.fromkeys(request.partitions, error)
        return {
            partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in request.partitions
        }

    # --- EndTxn ---

    def end(self, request: EndTransaction, now_ms: int) -> TransactionDecision:
        """The reply is a ProducerResult, with id and epoch only under transaction.version 2.

        Raises NoProducerIds (nothing has happened then).
        """
        if not request.transactional_id:
            return _failed(ErrorCode.INVALID_REQUEST)
        transaction = self.transactions.get(request.transactional_id)
        if transaction is None:
            return _failed(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if request.client_version >= TV_2:
            return self._end_bumping(request, transaction, now_ms)
        if transaction.producer_id != request.producer_id:
            return _failed(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if transaction.producer_epoch != request.producer_epoch:
            return _failed(ErrorCode.PRODUCER_FENCED)
        if transaction.state is not State.ONGOING:
            error = _when_not_ongoing(transaction.state, request.commit)
            if error is not ErrorCode.NONE:
                return _failed(error)
            # Written again, so that the answer waits for the in-sync replicas. A coordinator that was replaced and does
            # not know it yet would answer for the transaction before: this epoch does not distinguish the two.
            record = TransactionRecord(request.transactional_id, transaction)
            return TransactionDecision((record,), ProducerResult(ErrorCode.NONE))
        prepared = _advance(
            transaction,
            State.PREPARE_COMMIT if request.commit else State.PREPARE_ABORT,
            now_ms,
            client_version=TV_0,
        )
        return _prepared(request.transactional_id, prepared, ProducerResult(ErrorCode.NONE))

    def _end_bumping(self, request: EndTransaction, transaction: Transaction, now_ms: int) -> TransactionDecision:
        """transaction.version 2: the same epoch means the next transaction, the one before it a repeated request."""
        after_rotation = (
            transaction.previous_producer_id == request.producer_id != transaction.producer_id
            and request.producer_epoch == LAST_CLIENT_EPOCH
            and transaction.producer_epoch == 0
        )
        repeated = after_rotation or transaction.producer_epoch == request.producer_epoch + 1
        if transaction.producer_id != request.producer_id and not after_rotation:
            return _failed(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        state = transaction.state
        current = request.producer_epoch == transaction.producer_epoch
        may_repeat = repeated and state is not State.EMPTY and state is not State.ONGOING
        if not may_repeat and (not current or state in PREPARED):
            return _failed(ErrorCode.PRODUCER_FENCED)
        if may_repeat:
            error = _when_not_ongoing(state, request.commit)
            if error is ErrorCode.NONE:
                return TransactionDecision(
                    reply=ProducerResult(error, transaction.producer_id, transaction.producer_epoch)
                )
            return _failed(error)
        if request.commit and state is not State.ONGOING:
            return _failed(ErrorCode.INVALID_TXN_STATE)
        next_producer_id = self._ids.take() if transaction.is_epoch_exhausted else NO_PRODUCER_ID
        epoch = min(transaction.producer_epoch + 1, MAX_EPOCH)
        prepared = _advance(
            transaction,
            State.PREPARE_COMMIT if request.commit else State.PREPARE_ABORT,
            now_ms,
            producer_epoch=epoch,
            last_producer_epoch=epoch - 1,
            next_producer_id=next_producer_id,
            start_ms=transaction.start_ms if state is State.ONGOING else now_ms,
            client_version=request.client_version,
        )
        after = _completed(prepared, now_ms)
        return _prepared(
            request.transactional_id,
            prepared,
            ProducerResult(ErrorCode.NONE, after.producer_id, after.producer_epoch),
        )

    def markers_written(self, markers: Markers, now_ms: int) -> TransactionDecision:
        """Every partition has its marker: the transaction is complete, unless that is known already."""
        transaction = self.transactions.get(markers.transactional_id)
        if (
            transaction is None
            or transaction.state not in PREPARED
            or transaction.producer_id != markers.producer_id
            or transaction.producer_epoch != markers.producer_epoch
        ):
            return TransactionDecision()
        return TransactionDecision((TransactionRecord(markers.transactional_id, _completed(transaction, now_ms)),))

    def _fence(self, transactional_id: str, transaction: Transaction, now_ms: int) -> TransactionDecision:
        """Abort the ongoing transaction and fence its producer in one step (PrepareEpochFence, then PrepareAbort)."""
        assert may_follow(transaction.state, State.PREPARE_EPOCH_FENCE)
        version = self._settings.transaction_version()
        epoch = min(transaction.producer_epoch + 1, MAX_EPOCH)
        prepared = _advance(
            transaction,
            State.PREPARE_ABORT,
            now_ms,
            producer_epoch=epoch,
            last_producer_epoch=epoch - 1 if version >= TV_2 else NO_EPOCH,
            client_version=version if version >= TV_2 else TV_0,
        )
        return _prepared(transactional_id, prepared, None)

    # --- time ---

    def _deadline_of(self, transactional_id: str) -> int | None:
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.state in PREPARED:
            return None
        if transaction.state is State.ONGOING:
            deadline = transaction.start_ms + transaction.timeout_ms + 1
        else:
            interval = self._settings.remove_expired_interval_ms
            expiry = transaction.update_ms + self._settings.id_expiration_ms
            deadline = -(-expiry // interval) * interval
        return max(deadline, self._retry_ms.get(transactional_id, deadline))

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do, unless that is put off by then."""
        return self._deadlines.next_ms()

    def expire(self, now_ms: int) -> list[TransactionDecision]:
        """Abort transactions that took too long and forget ids that were idle too long. Each outcome stands alone.

        `DEADLINES_AT_ONCE` of them at most; `next_deadline_ms` has the others.

        One that the log rejects is decided again after `abort_timed_out_interval_ms`.
        """
        outcomes: list[TransactionDecision] = []
        tombstones: list[TransactionRecord] = []
        size = 0
        for _ in range(DEADLINES_AT_ONCE):
            transactional_id = self._deadlines.pop_due(now_ms)
            if transactional_id is None:
                break
            transaction = self.transactions[transactional_id]
            if transaction.state is State.ONGOING:
                outcomes.append(self._fence(transactional_id, transaction, now_ms))
            else:
                assert may_follow(transaction.state, State.DEAD)
                if size > _TOMBSTONES_BYTES:
                    outcomes.append(TransactionDecision(tombstones))
                    tombstones, size = [], 0
                tombstones.append(TransactionRecord(transactional_id, None))
                size += len(transactional_id) + _TOMBSTONE_BYTES
            self._retry_ms[transactional_id] = now_ms + self._settings.abort_timed_out_interval_ms
            self._deadlines.update(transactional_id)
        if tombstones:
            outcomes.append(TransactionDecision(tombstones))
        return outcomes

    # --- looking ---

    def describe(self, transactional_id: str) -> TransactionDescription:
        """The transactional id as DescribeTransactions returns it."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return TransactionDescription(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
        return TransactionDescription(
            ErrorCode.NONE,
            transactional_id,
            transaction.state.title,
            transaction.timeout_ms,
            transaction.start_ms,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.partitions,
        )

    def listings(
        self,
        now_ms: int,
        states: frozenset[State] | None,
        producer_ids: frozenset[int] | None,
        duration_ms: int,
        matches: Callable[[str], object] | None,
    ) -> list[TransactionListing]:
        """Those that pass all filters: None and a negative duration let everything pass."""
        return [
            TransactionListing(transactional_id, transaction.producer_id, transaction.state.title)
            for transactional_id, transaction in self.transactions.items()
            if (states is None or transaction.state in states)
            and (producer_ids is None or transaction.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - transaction.start_ms > duration_ms)
            and (matches is None or matches(transactional_id))
        ]


def states_of(titles: Iterable[str]) -> tuple[frozenset[State], list[str]]:
    """The states of these names, and the names that are none."""
    names = list(titles)
    known = frozenset(STATES_BY_TITLE[name] for name in names if name in STATES_BY_TITLE)
    return known, [name for name in names if name not in STATES_BY_TITLE]


def _is_known_producer(request: InitProducerId, transaction: Transaction) -> bool:
    """Whether a recovering producer may be this id's: its epoch is checked later.

    The previous id with its last epoch, or the one it recovered with, had its answer, with the id that follows, lost.
    """
    if request.producer_id == transaction.producer_id:
        return True
    return request.producer_id == transaction.previous_producer_id and (
        request.producer_epoch >= LAST_CLIENT_EPOCH or request.producer_epoch == transaction.last_producer_epoch
    )


def _check_producer(request: AddPartitions, transaction: Transaction | None) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if transaction is None or transaction.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


def _when_not_ongoing(state: State, commit: bool) -> ErrorCode:
    """What a repeated EndTxn gets: success if the same end is reached, patience if it is on its way."""
    if state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT):
        return ErrorCode.NONE
    if state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def _advance(
    transaction: Transaction,
    state: State,
    now_ms: int,
    *,
    producer_id: int | None = None,
    producer_epoch: int | None = None,
    last_producer_epoch: int | None = None,
    next_producer_id: int = NO_PRODUCER_ID,
    timeout_ms: int | None = None,
    partitions: frozenset[PartitionKey] | None = None,
    start_ms: int | None = None,
    client_version: int | None = None,
) -> Transaction:
    """The next state of a transactional id; what is not given stays."""
    assert may_follow(transaction.state, state), f"{transaction.state.title} to {state.title}"
    old = transaction
    return Transaction(
        old.producer_id if producer_id is None else producer_id,
        old.producer_epoch if producer_epoch is None else producer_epoch,
        old.timeout_ms if timeout_ms is None else timeout_ms,
        state,
        max(now_ms, old.update_ms),
        old.start_ms if start_ms is None else start_ms,
        old.partitions if partitions is None else partitions,
        old.producer_id,
        next_producer_id,
        old.last_producer_epoch if last_producer_epoch is None else last_producer_epoch,
        old.client_version if client_version is None else client_version,
    )


def _completed(prepared: Transaction, now_ms: int) -> Transaction:
    """What a prepared transaction becomes once its markers are written."""
    rotates = prepared.client_version >= TV_2 and prepared.next_producer_id != NO_PRODUCER_ID
    return _advance(
        prepared,
        State.COMPLETE_COMMIT if prepared.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
        now_ms,
        producer_id=prepared.next_producer_id if rotates else None,
        producer_epoch=0 if rotates else None,
        partitions=NO_PARTITIONS,
    )


def _markers(transactional_id: str, prepared: Transaction) -> Markers:
    return Markers(
        transactional_id,
        prepared.producer_id,
        prepared.producer_epoch,
        prepared.state is State.PREPARE_COMMIT,
        prepared.partitions,
        prepared.client_version,
    )


def _prepared(transactional_id: str, prepared: Transaction, reply: ProducerResult | None) -> TransactionDecision:
    record = TransactionRecord(transactional_id, prepared)
    return TransactionDecision((record,), reply, (_markers(transactional_id, prepared),))


def _initialized(request: InitProducerId, transaction: Transaction) -> TransactionDecision:
    reply = ProducerResult(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
    return TransactionDecision((TransactionRecord(request.transactional_id, transaction),), reply)


def _failed(error: ErrorCode) -> TransactionDecision:
    return TransactionDecision(reply=ProducerResult(error))
