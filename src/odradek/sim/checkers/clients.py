"""What must hold of a history, after jepsen/tests/kafka.clj. Each checker knows which configuration promises what.

A checker raises Violation with the shortest story that shows it: the records concerned, what was said of them and when.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from odradek.records.topic_partition import PartitionKey, TopicIdPartition
from odradek.sim.checkers.cycles import check_cycles
from odradek.sim.checkers.history import (
    ABORTED,
    COMMITTED,
    OK,
    OPEN,
    READ_COMMITTED,
    FinalLog,
    Held,
    History,
    Looked,
    Seen,
    Send,
    Transaction,
    Violation,
)

UPKEEP_SECONDS: Final = 15.0
"""The longest time that a broker without faults takes to delete a record after its retention."""


class Promises(NamedTuple):
    """What the configuration of a run promises."""

    survives_power_loss: frozenset[str]
    """Topics whose acknowledged records survive a power loss (flush.messages=1)."""
    loses_power: bool
    compacted: frozenset[str] = frozenset()
    retention_s: Mapping[str, float] = {}
    corrupted: frozenset[str] = frozenset()
    """Topics in whose files bits were flipped: reads of them may fail, never lie."""
    is_cluster: bool = False
    deposed_leaders_answer: bool = False
    """Some brokers are Apache's, which answer as a leader until they learn of their successor: ends of logs go forward
    in the answers of one leader only."""
    unclean: frozenset[str] = frozenset()
    """Topics whose leader may be elected among replicas that are not in sync: they may lose what was acknowledged, and
    offsets mean something else then. What is left is the same in all replicas, written once, in order."""

    def is_durable(self, topic: str) -> bool:
        """Whether acknowledged records of the topic survive every fault of the run."""
        return not self.loses_power or topic in self.survives_power_loss


Checker = Callable[[History, Promises], None]


def _at(key: PartitionKey) -> str:
    return f"{key[0]}-{key[1]}"


def _all_seen(history: History) -> Iterable[tuple[str, Seen]]:
    for reader in history.readers:
        for at, seen in reader.seen:
            yield f"{reader.name} at {at:.3f}", seen
    for log in history.final.values():
        for seen in log.everything:
            yield "the final reader", seen
        for seen in log.committed:
            yield "the final committed reader", seen


def check_invented(history: History, promises: Promises) -> None:
    """Each record that a client read was sent, to the partition where it was found."""
    for who, seen in _all_seen(history):
        send = history.sends.get(seen.value)
        if send is None:
            raise Violation("invented record", f"{who} read {seen}, which no producer sent")
        if send.partition != seen.partition:
            raise Violation("misplaced record", f"{who} read {seen}, which was sent to {_at(send.partition)}: {send}")


def check_agreement(history: History, promises: Promises) -> None:
    """An offset means one record, for the one who wrote it and for all who read it."""
    if promises.loses_power:
        return
    known: dict[tuple[PartitionKey, int], tuple[bytes, str]] = {}
    for send in history.sends.values():
        if send.state == OK and send.offset >= 0 and send.partition[0] not in promises.unclean:
            key = (send.partition, send.offset)
            if key in known:
                raise Violation("one offset, two records", f"{send} and {known[key][0].decode()}")
            known[key] = (send.value, f"ack at {send.acked_at:.3f}")
    for who, seen in _all_seen(history):
        if seen.partition[0] in promises.unclean:
            continue
        before = known.setdefault((seen.partition, seen.offset), (seen.value, who))
        if before[0] != seen.value:
            raise Violation("one offset, two records", f"{seen}: {who}; {before[0].decode()}: {before[1]}")


def check_lost(history: History, promises: Promises) -> None:
    """What was acknowledged is in the log, unless retention took it."""
    acked = history.acked()
    for key, log in history.final.items():
        if key[0] in promises.compacted or key[0] in promises.corrupted or key[0] in promises.unclean:
            continue
        present = {seen.value for seen in log.everything}
        absent = [send for send in acked if send.partition == key and send.value not in present]
        _check_unplaced(key, history, promises, [send for send in absent if send.offset < 0])
        missing = [send for send in absent if send.offset >= log.start]
        if missing and promises.is_durable(key[0]):
            missing.sort(key=lambda send: send.offset)
            raise Violation(
                "lost acknowledged write",
                f"{_at(key)} [{log.start}, {log.end}) lacks {len(missing)}, first {missing[0]}",
            )
        if missing:
            _check_prefix(key, history, present, missing)


def _check_unplaced(key: PartitionKey, history: History, promises: Promises, absent: list[Send]) -> None:
    """A record that was acknowledged without its offset is in the log if an earlier one of its producer is."""
    last_loss = 0.0 if promises.is_durable(key[0]) else max((loss.at for loss in history.power_losses), default=0.0)
    present = [history.sends[seen.value] for seen in history.final[key].everything] if absent else []
    for send in absent:
        earlier = [each for each in present if each.producer == send.producer and each.number < send.number]
        if earlier and send.outcome_or_never() > last_loss:
            raise Violation("lost acknowledged write", f"{_at(key)} has {earlier[-1]} and lacks {send}")


def _check_prefix(key: PartitionKey, history: History, present: set[bytes], missing: list[Send]) -> None:
    """A power loss may cost the end of a log, not its middle."""
    losses = [loss.at for loss in history.power_losses]
    sends = [send for send in history.acked() if send.partition == key and send.offset >= 0]
    for since, at in pairwise((0.0, *losses)):
        era = [send for send in sends if since <= send.sent_at and (send.acked_at or 0.0) < at]
        first = min((send.offset for send in era if send.value not in present), default=-1)
        kept = [send for send in era if send.value in present and send.offset > first >= 0]
        after = min(kept, key=lambda send: send.offset, default=None)
        if after is not None:
            raise Violation("hole after power loss", f"{_at(key)} lost offset {first} but kept {after}")
    last = losses[-1] if losses else 0.0
    for send in missing:
        if send.sent_at > last:
            raise Violation("lost acknowledged write", f"{send}, and no power was lost after {last:.3f}")


def check_retention(history: History, promises: Promises) -> None:
    """Retention takes only what is old enough."""
    looks = [look for look in history.looks if look.what == "earliest" and look.partition[0] in promises.retention_s]
    acked = history.acked() if looks else []
    for look in looks:
        for send in acked:
            age = look.done_at - send.sent_at
            seconds = promises.retention_s[look.partition[0]]
            gone = send.partition == look.partition and 0 <= send.offset < look.offset
            if gone and age < seconds - history.clock_error_s:
                raise Violation(
                    "deleted too early",
                    f"{send} is {age:.1f} s old at {look.done_at:.3f}, retention is {seconds} s",
                )


def check_compacted(history: History, promises: Promises) -> None:
    """Of a key at least the last acknowledged record stays."""
    for key, log in history.final.items():
        if key[0] not in promises.compacted or not promises.is_durable(key[0]):
            continue
        present = {seen.value for seen in log.everything}
        latest: dict[bytes | None, Send] = {}
        for send in sorted(history.acked(), key=lambda each: each.offset):
            if send.partition == key:
                latest[send.key] = send
        for send in latest.values():
            superseded = any(
                history.sends[seen.value].key == send.key and seen.offset > send.offset for seen in log.everything
            )
            if send.value not in present and not superseded:
                raise Violation("lost key", f"{send} was the last of its key {send.key!r}")


def check_expired(history: History, promises: Promises) -> None:
    """Retention deletes old records in time, without any request."""
    for key, log in history.final.items():
        if (seconds := promises.retention_s.get(key[0])) is None:
            continue
        oldest = log.read_at - seconds - history.clock_error_s - UPKEEP_SECONDS
        for send in (history.sends[seen.value] for seen in log.everything):
            if send.outcome_or_never() < oldest:
                story = f"{send} is still in the log at {log.read_at:.3f}, retention is {seconds} s"
                raise Violation("expired records are deleted", story)


def check_superseded(history: History, promises: Promises) -> None:
    """Compaction leaves one record of each key in closed segments, without any request."""
    for partition, log in history.final.items():
        if partition[0] not in promises.compacted:
            continue
        latest: dict[bytes | None, Seen] = {}
        for seen in (each for each in log.everything if each.offset < log.sealed_end):
            key = history.sends[seen.value].key
            if (before := latest.get(key)) is not None:
                story = f"{before} and {seen} have the key {key!r}; the active segment begins at {log.sealed_end}"
                raise Violation("superseded records are removed", story)
            latest[key] = seen


def check_duplicates(history: History, promises: Promises) -> None:
    """An idempotent producer writes each record once."""
    for key, log in history.final.items():
        where: dict[bytes, int] = {}
        for seen in log.everything:
            if seen.value in where:
                raise Violation(
                    "duplicate", f"{_at(key)} has {history.sends[seen.value]} at {where[seen.value]} and {seen.offset}"
                )
            where[seen.value] = seen.offset


def check_send_order(history: History, promises: Promises) -> None:
    """Records of one producer lie in the order in which it sent them."""
    for key, log in history.final.items():
        last: dict[str, Send] = {}
        for seen in log.everything:
            send = history.sends[seen.value]
            before = last.get(send.producer)
            if before is not None and before.number > send.number:
                raise Violation("non-monotonic send", f"{_at(key)}: {before} lies before {send} @{seen.offset}")
            last[send.producer] = send


_TOGETHER_S: Final = 1.0
"""Outcomes that come so close to each other count as one: tasks that wait for them run in any order."""


def check_outcome_order(history: History, promises: Promises) -> None:
    """A producer's records of a partition are acknowledged (or given up) in the order in which it sent them.

    A record that was sent to a former leader may be acknowledged by the next leader after what was sent to that at
    once: then followers had it, and its offset is the lower one. Likewise where a broker without followers has
    restarted, and had the record in its log.
    """
    by_producer: dict[tuple[str, PartitionKey], list[Send]] = defaultdict(list)
    for send in history.sends.values():
        by_producer[send.producer, send.partition].append(send)
    for sends in by_producer.values():
        first: Send | None = None
        for send in reversed(sends):
            if (
                first is not None
                and send.outcome_at is not None
                and send.outcome_at > first.outcome_or_never() + _TOGETHER_S
            ):
                if (
                    send.state == OK
                    and 0 <= send.offset < first.offset
                    and (promises.is_cluster or _ended_between(send, first, history))
                ):
                    continue
                raise Violation(
                    "acknowledged out of order", f"{send} was decided at {send.outcome_at:.3f}, after {first}"
                )
            if send.state == OK and (first is None or send.outcome_or_never() < first.outcome_or_never()):
                first = send


def _ended_between(send: Send, later: Send, history: History) -> bool:
    """Whether a broker ended after the first record was sent and before the later one was acknowledged."""
    return any(send.sent_at < at < later.outcome_or_never() for at in history.broker_ends)


def check_poll_order(history: History, promises: Promises) -> None:
    """A consumer moves forward, within a poll and from one to the next, and leaves nothing out."""
    readable = {
        isolation: {
            key: [seen.offset for seen in (log.committed if isolation == READ_COMMITTED else log.everything)]
            for key, log in history.final.items()
        }
        for isolation in ("read_uncommitted", READ_COMMITTED)
    }
    values = {(key, seen.offset): seen for key, log in history.final.items() for seen in log.everything}
    first_loss = min((loss.at for loss in history.power_losses), default=float("inf"))
    for reader in history.readers:
        jumps = set(reader.jumped)
        last: dict[PartitionKey, int] = {}
        for index, (at, seen) in enumerate(reader.seen):
            if at > first_loss and not promises.is_durable(seen.partition[0]):
                # The log may have become shorter, and positions with it.
                continue
            if seen.partition[0] in promises.unclean:
                continue
            if index in jumps:
                last = {}
            before = last.get(seen.partition)
            last[seen.partition] = seen.offset
            if before is None:
                continue
            if seen.offset <= before:
                raise Violation(
                    "non-monotonic poll",
                    f"{reader.name} at {at:.3f} read {_at(seen.partition)} {seen.offset} after {before}",
                )
            if promises.loses_power or seen.partition not in history.final:
                continue
            offsets = readable[reader.isolation][seen.partition]
            found = bisect_left(offsets, before + 1)
            if found < len(offsets) and offsets[found] < seen.offset:
                skipped = history.sends[values[seen.partition, offsets[found]].value]
                raise Violation(
                    "unseen",
                    f"{reader.name} ({reader.isolation}) went from {before} to {seen.offset} at {at:.3f} "
                    f"over {skipped} @{offsets[found]}",
                )


def check_aborted_reads(history: History, promises: Promises) -> None:
    """read_committed shows nothing of a transaction that was aborted, is open, or was not yet to be committed."""
    if promises.loses_power:
        # The end of a transaction may be lost in one partition and kept in another.
        return
    for reader in history.readers:
        if reader.isolation == READ_COMMITTED:
            for at, seen in reader.seen:
                _check_committed_read(reader.name, at, history.sends[seen.value], seen)
    for log in history.final.values():
        for seen in log.committed:
            _check_committed_read("the final reader", float("inf"), history.sends[seen.value], seen)


def _check_committed_read(who: str, at: float, send: Send, seen: Seen) -> None:
    transaction = send.transaction
    if transaction is None:
        return
    if transaction.state == ABORTED:
        raise Violation("aborted read", f"{who} at {at:.3f} read {send} @{seen.offset}")
    if transaction.commit_asked_at is None:
        raise Violation("uncommitted read", f"{who} at {at:.3f} read {send} @{seen.offset}")
    if at < transaction.commit_asked_at:
        raise Violation(
            "pre-committed read",
            f"{who} at {at:.3f} read {send} @{seen.offset}, commit was asked at {transaction.commit_asked_at:.3f}",
        )


def check_torn(history: History, promises: Promises) -> None:
    """Of a transaction there is everything or nothing."""
    if promises.loses_power:
        return
    visible = {seen.value for log in history.final.values() for seen in log.committed}
    for transaction in history.transactions:
        sends = [s for s in transaction.sends if s.partition in history.final and _still_there(s, history.final)]
        if transaction.state == COMMITTED or transaction.commit_asked_at is not None:
            acked = [s for s in sends if s.state == OK]
            shown = [s for s in acked if s.value in visible]
            if transaction.state == COMMITTED and len(shown) < len(acked):
                missing = next(s for s in acked if s.value not in visible)
                raise Violation("lost committed write", f"{missing}")
            if shown and len(shown) < len(acked):
                missing = next(s for s in acked if s.value not in visible)
                raise Violation("torn transaction", f"{shown[0]} is visible, {missing} is not")


def _still_there(send: Send, final: dict[PartitionKey, FinalLog]) -> bool:
    return send.offset < 0 or send.offset >= final[send.partition].start


def check_exactly_once(history: History, promises: Promises) -> None:
    """Read-process-write: every input has one committed output."""
    if promises.loses_power:
        return
    outputs: dict[bytes, list[Send]] = defaultdict(list)
    for log in history.final.values():
        for seen in log.committed:
            send = history.sends[seen.value]
            if send.source is not None:
                outputs[send.source].append(send)
    for source, made in outputs.items():
        if len(made) > 1:
            raise Violation("processed twice", f"{history.sends[source]}: {made[0]} and {made[1]}")
    for (group, key), offset in history.group_offsets.items():
        if not group.startswith("rpw") or key not in history.final:
            continue
        for seen in history.final[key].committed:
            if seen.offset < offset and not outputs.get(seen.value):
                raise Violation("never processed", f"{group} committed {offset} of {_at(key)}, nothing came of {seen}")


def check_group_offsets(history: History, promises: Promises) -> None:
    """Committed offsets of a group that moves forward only do not go back, and are what was committed."""
    if promises.loses_power:
        return
    highest: dict[tuple[str, PartitionKey], list[tuple[float, int]]] = defaultdict(list)
    for commit in sorted(history.commits, key=lambda c: c.done_at):
        if commit.state == OK and commit.partition[0] not in promises.unclean:
            key = (commit.group, commit.partition)
            top = max(commit.offset, highest[key][-1][1] if highest[key] else -1)
            highest[key].append((commit.done_at, top))
    for look in history.looks:
        if not look.what.startswith("committed:"):
            continue
        floor = _latest_before(highest.get((look.what[10:], look.partition), []), look.asked_at)
        if look.offset < floor:
            raise Violation(
                "offset regress",
                f"{look.what[10:]} received {look.offset} for {_at(look.partition)} at {look.done_at:.3f}; "
                f"{floor} had been committed before {look.asked_at:.3f}",
            )
    for commit in history.commits:
        floor = _latest_before(highest[commit.group, commit.partition], commit.asked_at)
        if commit.state == OK and commit.offset < floor:
            raise Violation("offset regress", f"{commit} was accepted when {floor} had been committed")


def _latest_before(steps: list[tuple[float, int]], at: float) -> int:
    index = bisect_left(steps, (at, -1))
    return steps[index - 1][1] if index else -1


def check_offsets_move_forward(history: History, promises: Promises) -> None:
    """Log start, last stable offset and high watermark never go back, and reach what was acknowledged.

    In a cluster each leader shows at once that it has deleted records, and the next one may have them: a client
    without the acknowledgement of a deletion cannot rely on it. So does Kafka's `Partition.deleteRecordsOnLeader`.
    """
    if promises.loses_power:
        return
    acked = _acknowledged(history)
    looks: dict[tuple[str, PartitionKey], list[Looked]] = defaultdict(list)
    for look in history.looks:
        if look.what.startswith("committed:"):
            continue
        if look.what == "earliest" and look.partition[0] in promises.retention_s and history.power_losses:
            # Files that retention removed may be there again, until it looks the next time.
            continue
        looks[look.what, look.partition].append(look)
    for key, found in looks.items():
        if key[1][0] in promises.unclean:
            continue
        if promises.is_cluster and key[0] == "earliest":
            # A leader may have deleted records of which the next one has not learned.
            _check_each_leader(found, acked[key])
        elif promises.deposed_leaders_answer:
            # Acknowledgements have no epoch.
            _check_each_leader(found, [])
        else:
            # A deposed leader answers no client once its successor does.
            _check_forward(found, acked[key])
    for partition, log in history.final.items():
        deleted = max((look.offset for look in acked["earliest", partition]), default=0)
        if log.start < deleted and partition[0] not in promises.unclean:
            raise Violation("earliest offset goes back", f"{_at(partition)} begins at {log.start}, not at {deleted}")


def _acknowledged(history: History) -> dict[tuple[str, PartitionKey], list[Looked]]:
    """What a look at the end, or the start, of a partition has to reach, as if a client had looked."""
    acked: dict[tuple[str, PartitionKey], list[Looked]] = defaultdict(list)
    for send in history.acked():
        if send.acked_at is not None and send.offset >= 0:
            look = Looked(send.acked_at, send.acked_at, "latest", send.partition, send.offset + 1)
            acked["latest", send.partition].append(look)
    for deletion in history.deletions:
        at = deletion.kept_since
        if at is not None:
            look = Looked(at, at, "earliest", deletion.partition, deletion.offset, deletion.epoch)
            acked["earliest", deletion.partition].append(look)
    return acked


def _check_each_leader(looks: list[Looked], acked: list[Looked]) -> None:
    """A later request to the leader of an epoch returns no lower offset, nor one below what is known of that epoch."""
    for epoch in {look.epoch for look in looks}:
        if epoch >= 0:
            known = [look for look in acked if look.epoch <= epoch]
            _check_forward([look for look in looks if look.epoch == epoch], known, epoch)


def _check_forward(looks: list[Looked], known: Iterable[Looked] = (), epoch: int | None = None) -> None:
    """A later request returns no lower offset than an earlier one; of one epoch only, if it is given."""
    steps: list[tuple[float, int]] = []
    for look in sorted((*looks, *known), key=lambda each: each.done_at):
        steps.append((look.done_at, max(look.offset, steps[-1][1] if steps else -1)))
    for look in looks:
        floor = _latest_before(steps, look.asked_at)
        if look.offset < floor and epoch in (None, look.epoch):
            raise Violation(
                f"{look.what} offset goes back",
                f"{look.what} of {_at(look.partition)}: {look.offset} at {look.done_at:.3f}, {floor} before "
                f"{look.asked_at:.3f}" + (f" (epoch {epoch})" if epoch is not None else ""),
            )


def check_ownership(history: History, promises: Promises) -> None:
    """In one generation of a group a partition has one owner."""
    if promises.loses_power:
        # A generation may be lost, and its number used again.
        return
    owners: dict[tuple[str, int, PartitionKey], tuple[str, float]] = {}
    for owned in history.owned:
        for key in sorted(owned.partitions):
            before = owners.setdefault((owned.group, owned.generation, key), (owned.member, owned.at))
            if before[0] != owned.member:
                raise Violation(
                    "partition owned twice",
                    f"{_at(key)} in generation {owned.generation} of {owned.group}: {before} and "
                    f"{(owned.member, owned.at)}",
                )


def check_held(history: History, promises: Promises) -> None:
    """A partition of a KIP-848 group is given away only when it was given up or its holder's session is over."""
    by_partition: dict[tuple[str, TopicIdPartition], list[Held]] = defaultdict(list)
    for held in sorted(history.held, key=lambda each: each.since):
        by_partition[held.group, held.partition].append(held)
    for (group, partition), holders in by_partition.items():
        for before, after in pairwise(holders):
            if after.member != before.member and after.since < before.until:
                raise Violation(
                    "partition held twice",
                    f"{group}: partition {partition[1]} is held by {before.member} (epoch {before.epoch}) from "
                    f"{before.since:.3f} to {before.until:.3f} and by {after.member} (epoch {after.epoch}) from "
                    f"{after.since:.3f}",
                )


def check_ended(history: History, promises: Promises) -> None:
    """At the end no transaction hangs."""
    for key, log in history.final.items():
        if promises.loses_power:
            # The coordinator's log and the partitions' may have lost different ends: nothing brings them together.
            continue
        if log.last_stable >= 0 and log.last_stable < log.end:
            raise Violation("hanging transaction", f"{_at(key)}: last stable {log.last_stable}, end {log.end}")
    for transaction in history.transactions:
        if transaction.state == OPEN and transaction.ended_at is not None:
            raise Violation("open transaction", f"{transaction} ended without an outcome")


CHECKERS: tuple[Checker, ...] = (
    check_invented,
    check_agreement,
    check_lost,
    check_retention,
    check_compacted,
    check_expired,
    check_superseded,
    check_duplicates,
    check_send_order,
    check_outcome_order,
    check_poll_order,
    check_aborted_reads,
    check_cycles,
    check_torn,
    check_exactly_once,
    check_group_offsets,
    check_offsets_move_forward,
    check_ownership,
    check_held,
    check_ended,
)


def check(history: History, promises: Promises) -> None:
    """All of them. Raises the first Violation."""
    for checker in CHECKERS:
        checker(history, promises)


__all__ = ["CHECKERS", "Promises", "Transaction", "check"]
