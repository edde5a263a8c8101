"""Bugs of a cluster that are planted on purpose: see `planted`, which searches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from odradek.broker.coordinators.shard import CoordinatorState
from odradek.controller.partition_changes import Election
from odradek.replication.in_sync import committed_offset
from odradek.replication.leadership import successors
from odradek.wire.errors import ErrorCode
from odradek.wire.primitives import ZERO_UUID

Row = tuple[str, str, str, tuple[str, ...], Callable[[Any], Any]]
"""Name, what it stands for, profile, where it goes, what makes the wrong function of the right one."""

CLUSTER_BUGS: Final[list[Row]] = []


def _bug(name: str, story: str, profile: str, *targets: str) -> Callable[[Callable[[Any], Any]], None]:
    def register(make: Callable[[Any], Any]) -> None:
        CLUSTER_BUGS.append((name, story, profile, targets, make))

    return register


def _nothing(*_: Any, **__: Any) -> None:
    return None


_CHANGES: Final = "odradek.controller.partition_changes"
_DECIDING: Final = ("brokers", "in_sync", "reassignments", "elections")
"""Modules of the controller that ask for the next state of a partition."""


# --- leaders and their followers ---


@_bug("minimum not checked", "a leader alone accepts and commits writes below min.insync.replicas", "succession",
      "odradek.replication.partition:Partition._commit_with_followers",
      "odradek.replication.partition:Partition.append")  # fmt: skip
def _(right: Any) -> Any:
    if right.__name__ == "append":

        def append(self: Any, batches: Any, *, all_in_sync: bool = False, **more: Any) -> Any:
            return right(self, batches, **more)

        return append

    def commit(self: Any) -> Any:
        around = self._environment
        offset = committed_offset(
            self.log.end_offset,
            self.followers.progress,
            self.followers.counted,
            around.max_lag_ms,
            around.now_ms(),
            self.followers.is_eligible,
        )
        moved = offset > self.high_watermark
        self.high_watermark = max(offset, self.high_watermark)
        return moved

    return commit


@_bug("new leader commits all", "a new leader considers all records of its log committed", "cluster",
      "odradek.replication.partition:Partition._lead")  # fmt: skip
def _(right: Any) -> Any:
    def lead(self: Any, was_leader: bool, new_epoch: bool, isr_before: Any) -> None:
        if not was_leader:
            self.high_watermark = self.log.end_offset
        right(self, was_leader, new_epoch, isr_before)

    return lead


@_bug("truncation to the high watermark", "a follower of a new leader truncates to its own high watermark",
      "cluster", "odradek.replication.follower:FollowedLog.__init__")  # fmt: skip
def _(right: Any) -> Any:
    def follow(self: Any, partition: Any) -> None:
        right(self, partition)
        partition.replicated.truncate_to(partition.high_watermark)

    return follow


@_bug("shrink not waited for", "a leader commits without a member before the controller has removed it", "cluster",
      "odradek.replication.followers:Followers.count")  # fmt: skip
def _(right: Any) -> Any:
    def count(self: Any) -> None:
        self.counted = frozenset(self._partition.isr if self.proposal is None else self.proposal.isr)

    return count


@_bug("deposed leader acknowledges", "writes that wait when a leader is deposed are answered as committed", "cluster",
      "odradek.replication.partition:Partition.commit_error")  # fmt: skip
def _(right: Any) -> Any:
    def error(self: Any, last_offset: int, otherwise: ErrorCode) -> Any:
        return right(self, last_offset, otherwise) if self.is_leader else ErrorCode.NONE

    return error


def _called_unwritten(right: Any) -> Any:
    """What a deposed leader answered before: clients give the sequences of what they believe unwritten to the next."""

    def error(self: Any, last_offset: int, otherwise: ErrorCode) -> Any:
        code = right(self, last_offset, otherwise)
        is_unconfirmed = code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND and not self.is_leader
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_unconfirmed else code

    return error


_COMMIT_ERROR: Final = "odradek.replication.partition:Partition.commit_error"
_DUPLICATE: Final = "odradek.log.producers.state:ProducerStates._duplicate"


def _is_as(header: Any, batch: Any) -> bool:
    return bool(batch.last_sequence == header.last_sequence and batch.offset_delta == header.last_offset_delta)


@_bug("sequences make a duplicate",
      "a leader reports an unconfirmed batch as unwritten, and any batch with its sequences repeats it",
      "unconfirmed", _COMMIT_ERROR, _DUPLICATE)  # fmt: skip
def _(right: Any) -> Any:
    if right.__name__ == "commit_error":
        return _called_unwritten(right)

    def duplicate(self: Any, entry: Any, header: Any, crc_at: Any) -> Any:
        return next((each for each in entry.batches if _is_as(header, each)), None) or right(
            self, entry, header, crc_at
        )

    return duplicate


@_bug("CRC of a duplicate not compared", "in an open transaction any batch with the sequences of another repeats it",
      "unconfirmed", _COMMIT_ERROR, _DUPLICATE)  # fmt: skip
def _(right: Any) -> Any:
    if right.__name__ == "commit_error":
        return _called_unwritten(right)

    def duplicate(self: Any, entry: Any, header: Any, crc_at: Any) -> Any:
        same = (each for each in entry.batches if _is_as(header, each) and entry.is_in_open_transaction(each))
        return next(same, None) or right(self, entry, header, crc_at)

    return duplicate


@_bug("duplicate of an ended transaction", "a batch repeats one with its CRC and sequences of an earlier transaction",
      "unconfirmed", _COMMIT_ERROR, _DUPLICATE)  # fmt: skip
def _(right: Any) -> Any:
    if right.__name__ == "commit_error":
        return _called_unwritten(right)

    def duplicate(self: Any, entry: Any, header: Any, crc_at: Any) -> Any:
        same = (each for each in entry.batches if _is_as(header, each) and each.crc == header.crc)
        return next(same, None) or right(self, entry, header, crc_at)

    return duplicate


@_bug("log start not followed", "a follower keeps records that DeleteRecords deleted", "cluster5",
      "odradek.replication.replicated_log:ReplicatedLog.advance")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, high_watermark, log_start_offset: right(self, high_watermark, 0)


@_bug("producers unknown to a new leader", "a replica that becomes the leader has forgotten the producers", "cluster",
      "odradek.replication.partition:Partition._lead")  # fmt: skip
def _(right: Any) -> Any:
    def lead(self: Any, was_leader: bool, new_epoch: bool, isr_before: Any) -> None:
        if not was_leader:
            self.log.history.producers.clear()
        right(self, was_leader, new_epoch, isr_before)

    return lead


@_bug("follower shows what is not committed", "a follower serves consumers to the end of its log", "succession",
      "odradek.replication.partition:Partition.read")  # fmt: skip
def _(right: Any) -> Any:
    def read(self: Any, offset: int, max_bytes: int, **more: Any) -> Any:
        if self.is_leader:
            return right(self, offset, max_bytes, **more)
        keep, self.high_watermark = self.high_watermark, self.log.end_offset
        try:
            return right(self, offset, max_bytes, **more)
        finally:
            self.high_watermark = keep

    return read


# --- the controller's decisions ---


@_bug("unclean without leave", "a replica that is not in sync may lead although the topic does not allow it",
      "succession", "odradek.controller.brokers:rules_of")  # fmt: skip
def _(right: Any) -> Any:
    return lambda *arguments: right(*arguments)._replace(election=Election.UNCLEAN)


@_bug("elected outside the ISR", "the first replica that is alive leads, in sync or not", "unclean",
      f"{_CHANGES}:_leader")  # fmt: skip
def _(right: Any) -> Any:
    def leader(before: Any, state: Any, rules: Any, *, bounced: bool) -> Any:
        found = right(before, state, rules, bounced=bounced)
        if found in (before.leader, -1):
            return found
        alive = (b for b in state.replicas if b in rules.brokers and rules.brokers[b].is_active)
        return next((b for b in alive if b != before.leader), found)

    return leader


@_bug("preferred although not in sync", "a preferred election elects any replica that is alive", "cluster5",
      "odradek.controller.elections:can_lead_as_preferred", f"{_CHANGES}:_leader")  # fmt: skip
def _(right: Any) -> Any:
    if right.__name__ == "can_lead_as_preferred":
        return lambda image, state: state.replicas[0] in image.brokers

    def leader(before: Any, state: Any, rules: Any, *, bounced: bool) -> Any:
        if rules.election is Election.PREFERRED and state.replicas[0] in rules.brokers:
            return state.replicas[0]
        return right(before, state, rules, bounced=bounced)

    return leader


@_bug("leader epoch not bumped", "another leader leads in the same epoch", "cluster",
      *(f"odradek.controller.{name}:next_state" for name in _DECIDING))  # fmt: skip
def _(right: Any) -> Any:
    def state(before: Any, wanted: Any, rules: Any) -> Any:
        after = right(before, wanted, rules)
        return after if after is before else after._replace(leader_epoch=max(before.leader_epoch, 0))

    return state


@_bug("proposals without epochs",
      "a controller carries out AlterPartition of a deposed leader or an older state", "succession",
      "odradek.controller.in_sync:_problem")  # fmt: skip
def _(right: Any) -> Any:
    def problem(image: Any, state: Any, broker_id: int, change: Any) -> Any:
        members = {member for member, _ in change.isr}
        if not members or not members <= set(state.replicas) or state.leader < 0:
            return right(image, state, broker_id, change)
        return ErrorCode.NONE

    return problem


@_bug("earlier lives count", "a follower's progress under an earlier registration lets it join the ISR", "blackout",
      "odradek.controller.in_sync:_problem",
      "odradek.broker.replication.isr_changes:IsrChanges.is_eligible")  # fmt: skip
def _(right: Any) -> Any:
    if right.__name__ == "_problem":
        return lambda image, state, broker_id, change: right(
            image, state, broker_id, change._replace(isr=tuple((member, -1) for member, _ in change.isr))
        )
    return lambda self, broker_id, broker_epoch: broker_id in self._image().brokers


@_bug("restart not noticed", "a broker that has restarted stays in sync and continues to lead", "blackout",
      "odradek.controller.brokers:_wanted", "odradek.controller.aliveness:SessionAliveness.has_bounced")  # fmt: skip
def _(right: Any) -> Any:
    if right.__name__ == "has_bounced":
        return lambda self, state, brokers: False
    return lambda state, rules, out_of_sync: right(state, rules._replace(unclean=frozenset()), frozenset())


@_bug("eligible for ever", "a replica that left an ISR that was large enough may be elected later", "succession",
      f"{_CHANGES}:_with_eligible")  # fmt: skip
def _(right: Any) -> Any:
    def eligible(in_sync: Any, state: Any, rules: Any) -> Any:
        candidates = in_sync.union(state.elr).difference(state.isr)
        return state._replace(elr=tuple(b for b in state.replicas if b in candidates))

    return eligible


@_bug("old replicas dropped early", "a move ends before the added replicas are in sync", "cluster5",
      f"{_CHANGES}:_without_finished_move")  # fmt: skip
def _(right: Any) -> Any:
    def finished(state: Any) -> Any:
        if not state.removing_replicas or not set(state.isr) - set(state.removing_replicas):
            return right(state)
        return right(state._replace(adding_replicas=()))

    return finished


@_bug("dead leader left", "the leader of a partition stays what it was when its broker dies", "succession",
      f"{_CHANGES}:is_alive")  # fmt: skip
def _(right: Any) -> Any:
    return lambda state, broker_id, brokers: broker_id in state.replicas


# --- the controller's requests to brokers ---


@_bug("changes of ISRs not sent", "brokers learn of new leaders, not of members that join or leave", "cluster",
      "odradek.broker.cluster.controller_channel:notice")  # fmt: skip
def _(right: Any) -> Any:
    def notice(changes: Any, broker_id: int) -> Any:
        news = right(changes, broker_id)
        roles = {(topic.id, index) for topic, index, before in changes.changed
                 if before is None or before.leader_epoch != topic.partitions[index].leader_epoch}  # fmt: skip
        return news._replace(know=[each for each in news.know if (each.topic.id, each.partition) in roles])

    return notice


@_bug("dead for ever", "a broker that the metadata store has given up does not register again", "cluster",
      "odradek.broker.cluster.membership:Membership._session_lost")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self: self._controller.resign()


# --- controllers one after the other ---


@_bug("stale controller obeyed", "a broker obeys a controller that has been replaced", "handover",
      "odradek.broker.cluster.controller_requests:ControllerRequests._check")  # fmt: skip
def _(right: Any) -> Any:
    async def check(self: Any, request: Any, connection: int) -> None:
        return None

    return check


@_bug("writes of a deposed controller", "a controller writes without checking that it still is one", "handover",
      "odradek.broker.cluster.controller_store:Check")  # fmt: skip
def _(right: Any) -> Any:
    return lambda path, version: right(path, -1)


@_bug("half-made topic left", "a new controller does not make the partitions that are missing", "handover",
      f"{_CHANGES}:_leader")  # fmt: skip
def _(right: Any) -> Any:
    return lambda before, state, rules, *, bounced: (
        -1 if before.leader_epoch < 0 else right(before, state, rules, bounced=bounced)
    )


@_bug("half-done deletion left", "a new controller does not finish deletions", "handover",
      "odradek.broker.cluster.controller:Controller._finish_deletions")  # fmt: skip
def _(right: Any) -> Any:
    async def finish(self: Any, image: Any) -> Any:
        return image

    return finish


@_bug("running moves forgotten", "a new controller does not know of replicas that are being added and removed",
      "handover", "odradek.broker.cluster.controller:load_image")  # fmt: skip
def _(right: Any) -> Any:
    async def load(store: Any, version: int = 0) -> Any:
        image = await right(store, version)
        return image.with_topics(
            topic._replace(
                partitions=tuple(s._replace(adding_replicas=(), removing_replicas=()) for s in topic.partitions)
            )
            for topic in image.topics.values()
        )

    return load


@_bug("deleted while away", "a broker that was away when a topic was deleted keeps it", "handover",
      "odradek.broker.cluster.controller_requests:ControllerRequests.update_metadata")  # fmt: skip
def _(right: Any) -> Any:
    async def update(self: Any, request: Any, connection: int) -> None:
        request.type = 1
        await right(self, request, connection)
        self._view.note_metadata()

    return update


@_bug("deletion of the topic before", "StopReplica, repeated after a lost answer, ends a replica of the next topic",
      "handover",
      "odradek.broker.cluster.controller_channel:ControllerChannel._send_news",
      "odradek.broker.cluster.controller_requests:ControllerRequests.stop_replica")  # fmt: skip
def _(right: Any) -> Any:
    if right.__name__ == "_send_news":

        async def send_news(self: Any, connection: Any, target: Any) -> None:
            known = self.acknowledged
            try:
                await right(self, connection, target)
            finally:
                # The next attempt sends the difference only, not the complete image.
                self.acknowledged = known

        return send_news

    async def stop(self: Any, request: Any, connection: int) -> Any:
        for news in request.topic_states:
            news.topic_id = ZERO_UUID
        return await right(self, request, connection)

    return stop


@_bug("producer ids for two", "two brokers get the same block of producer ids", "cluster",
      "odradek.broker.cluster.controller:Controller._next_producer_id_block")  # fmt: skip
def _(right: Any) -> Any:
    async def block(self: Any, broker_id: int | None) -> Any:
        if broker_id is None:
            return await right(self, broker_id)
        await asyncio.sleep(0)
        return range(1000)

    return block


# --- coordinators ---


def _served_while_loading(coordinator: str, right: Any) -> Any:
    def load(self: Any) -> None:
        if self._environment.name != coordinator:
            right(self)
            return
        # As long as a log that is not tiny takes.
        self._loop.call_later(0.3, right, self)
        self.state = CoordinatorState.ACTIVE

    return load


@_bug("groups before they are loaded", "a group coordinator serves while it still reads its log", "cluster",
      "odradek.broker.coordinators.context:CoordinatorContext.load")  # fmt: skip
def _(right: Any) -> Any:
    return _served_while_loading("group", right)


@_bug("transactions before they are loaded", "a transaction coordinator serves while it still reads its log",
      "succession", "odradek.broker.coordinators.context:CoordinatorContext.load")  # fmt: skip
def _(right: Any) -> Any:
    return _served_while_loading("transaction", right)


@_bug("coordinator stays", "a broker that no longer leads a partition of groups answers for them", "cluster",
      "odradek.broker.coordinators.groups:GroupCoordinatorService.resigned")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("coordinator comes back", "a broker that leads a partition of groups again resumes with its old state",
      "cluster", "odradek.broker.coordinators.groups:GroupCoordinatorService.resigned",
      "odradek.broker.coordinators.groups:GroupCoordinatorService.elected")  # fmt: skip
def _(right: Any) -> Any:
    if right.__name__ == "elected":

        def elected(self: Any, partition: Any) -> None:
            context = self._runtime.context(partition.index)
            right(self, partition)
            if context is not None:
                context.state = CoordinatorState.ACTIVE

        return elected

    def resigned(self: Any, index: int) -> None:
        context = self._runtime.context(index)
        if context is not None:
            context.close()

    return resigned


@_bug("answered before replicated", "coordinators answer as soon as they have written to their own log", "succession",
      "odradek.replication.partition:Partition.is_committed")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, last_offset: last_offset < self.log.end_offset


@_bug("markers not retried", "a coordinator does not retry a marker that a partition's leader rejected", "cluster",
      "odradek.broker.coordinators.markers:RoutedMarkers._on_written")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, delivery, topic, index, committed: right(self, delivery, topic, index, True)


@_bug("markers lost on failover", "a new coordinator does not resend pending markers", "succession",
      "odradek.transactions.coordinator:TransactionCoordinator.loaded")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, now_ms, **_: []


@_bug("not verified elsewhere", "a partition takes a transaction's records without asking a coordinator elsewhere",
      "cluster",
      "odradek.broker.coordinators.transactions:TransactionCoordinatorService._verify_elsewhere")  # fmt: skip
def _(right: Any) -> Any:
    async def verify(self: Any, coordinator: int, request: Any, *, adds: bool, abortable: bool) -> Any:
        await asyncio.sleep(0)
        return {}

    return verify


@_bug("late fetch believed", "a fetch on a connection that its follower has given up counts as progress", "late",
      "odradek.api.data.replica_fetch:_is_left")  # fmt: skip
def _(right: Any) -> Any:
    return lambda request, context: False


@_bug("offsets of the topic before",
      "a group finds its offsets of a deleted topic in the next topic of that name", "disks",
      "odradek.groups.offsets.committed:is_of", "odradek.groups.offsets.requests:is_of")  # fmt: skip
def _(right: Any) -> Any:
    return lambda stored_id, topic_id: True


# --- leases of leadership ---


@_bug("lease not looked at", "a broker acts as a leader whether or not its lease lasts", "stale",
      "odradek.replication.leadership:Leadership.may_lead")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, partition: True


@_bug("lease counted from the answer", "a lease lasts from the arrival of its answer, and clocks count as equal",
      "stale", "odradek.replication.leadership:Leadership.extend")  # fmt: skip
def _(right: Any) -> Any:
    def extend(self: Any, asked_at: float, seconds: float) -> None:
        right(self, self._now(), seconds + 0.5)

    return extend


@_bug("unconfirmed controller grants", "a controller grants leases without a confirmation by the store",
      "stale", "odradek.controller.lease_table:LeaseTable.grant")  # fmt: skip
def _(right: Any) -> Any:
    def grant(self: Any, broker_id: int, epoch: int, now: float, session_end: float) -> Any:
        self.confirm(now)
        return right(self, broker_id, epoch, now, session_end)

    return grant


@_bug("deposed leaders not waited for", "a new leader begins while its predecessor's lease lasts", "stale",
      "odradek.controller.lease_table:LeaseTable.depose")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("promises not kept", "a replica begins to lead although it has promised not to", "stale",
      "odradek.replication.leadership:Leadership.promise")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("promises of a majority", "a leader without a lease acts when one other replica promises", "stale",
      "odradek.replication.leadership:Leadership._is_promised")  # fmt: skip
def _(right: Any) -> Any:
    def is_promised(self: Any, partition: Any, now: float) -> bool:
        place = (partition.topic_id, partition.index)
        return any(p.until > now and place in p.places for p in self._promises.values())

    return is_promised


@_bug("own lease waits for the store", "the controller's broker asks for promises once the store has answered it",
      "silent", "odradek.broker.cluster.controller_link:ControllerLink.lease")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, timeout_ms: right(self, timeout_ms * 1000)


@_bug("new leaders wait for the store", "a newly led partition waits until the controller is confirmed again",
      "silent", "odradek.replication.leadership:Leadership.begin_after")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("new leaders begin at once", "a newly led partition does not wait for the lease of its former leader", "stale",
      "odradek.replication.leadership:Leadership.begin_after")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, seconds: right(self, 0.0)


@_bug("promises for later partitions", "a promise counts for partitions that came after the question", "handover",
      "odradek.replication.leadership:Leadership._is_promised")  # fmt: skip
def _(right: Any) -> Any:
    def is_promised(self: Any, partition: Any, now: float) -> bool:
        promises = [self._promises.get(member) for member in successors(partition, self._node_id)]
        return all(each is not None and each.until > now for each in promises)

    return is_promised


@_bug("ISR expanded before the begin", "a leader that waits for its predecessor adds members that promised nothing",
      "late", "odradek.replication.followers:Followers.has_begun")  # fmt: skip
def _(right: Any) -> Any:
    return property(lambda self: True)


@_bug("lease kept over a registration", "a broker whose registration ended keeps its lease in the next one", "late",
      "odradek.broker.cluster.lease_holder:LeaseHolder.surrender")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("own lease outlives the session", "a controller leads on after its session, and its successor does not wait",
      "stale", "odradek.controller.lease_table:LeaseTable.grant")  # fmt: skip
def _(right: Any) -> Any:
    def grant(self: Any, broker_id: int, *args: Any) -> Any:
        granted = right(self, broker_id, *args)
        is_longer = granted.seconds and broker_id == self._own_id
        return granted._replace(seconds=granted.seconds + 4.0) if is_longer else granted

    return grant


# --- brokers that no longer reach the controller ---


@_bug("silent brokers not fenced",
      "a broker that is cut off from the others leads as long as the store has its session",
      "stale", "odradek.controller.broker_liveness:FencedBrokers.changes")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, brokers, silent: ([], [])


@_bug("deaf controller stays", "a controller that no other broker reaches does not yield", "stale",
      "odradek.broker.cluster.membership:Membership.step_down")  # fmt: skip
def _(right: Any) -> Any:
    return _nothing


@_bug("promises for all partitions", "a promise to one leader holds for the partitions of all others", "silent",
      "odradek.replication.leadership:Leadership._may_begin")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, place, now: all(until <= now for until in self._promised.values())
