"""Clients that speak frames of their own: what our client does not ask, or is stricter about than others."""

from __future__ import annotations

import asyncio

from odradek.client.admin import Admin
from odradek.groups.placement import partition_for_group
from odradek.records.topic_partition import TopicIdPartition, TopicPartition
from odradek.sim.checkers.history import Held
from odradek.sim.workloads.clients import FAILURES, app_random, note_failure
from odradek.sim.workloads.deletions import delete_records
from odradek.sim.world.hosts import ClientHost
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

GROUP_COORDINATOR = 0
SESSION_SECONDS = 6.0
_REBALANCE_TIMEOUT_MS = 5_000
HELD_SECONDS = min(SESSION_SECONDS, _REBALANCE_TIMEOUT_MS / 1000)
"""A member may miss the response that revokes partitions, and is removed after this time."""
LEAVE = -1
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
REJOIN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH})


async def move_replicas(host: ClientHost, topics: dict[str, int]) -> None:
    """Send replicas to other log directories (KIP-113), and delete records now and then."""
    world, rng = host.world, app_random(host)
    brokers = [each.node_id for each in world.brokers]
    paths = world.brokers[0].settings["log.dirs"].split(",")
    while not world.is_stopping():
        try:
            async with Admin(**host.options()) as admin:
                while not world.is_stopping():
                    await asyncio.sleep(rng.expovariate(0.4))
                    topic = rng.choice(sorted(topics))
                    index = rng.randrange(topics[topic])
                    if rng.random() < 0.25 and topic != "short":
                        await delete_records(host, admin, TopicPartition(topic, index), rng.random() * 0.3)
                        continue
                    wanted = AlterReplicaLogDirsRequestTopic(topic, [index])
                    request = AlterReplicaLogDirsRequest([AlterReplicaLogDirsRequestDir(rng.choice(paths), [wanted])])
                    where = rng.choice(brokers) if len(brokers) > 1 else brokers[0]
                    answer = await admin.cluster.request(where, request, AlterReplicaLogDirsResponse)
                    for result in answer.results:
                        for each in result.partitions:
                            world.mark(f"replica move: {ErrorCode(each.error_code).name}")
        except FAILURES as error:
            note_failure(host, "move replicas", error)
            await asyncio.sleep(0.3)


class Member:
    """A member of a consumer group of KIP-848: it heartbeats, takes what it is given, gives up what it is asked for."""

    __slots__ = ("_answered_at", "_failed", "_held", "_host", "epoch", "group", "member_id", "owned", "topic")

    def __init__(self, host: ClientHost, group: str, topic: str) -> None:
        self._host = host
        self.group = group
        self.topic = topic
        self.member_id = ""
        self.epoch = 0
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self._held: list[Held] = []
        self._answered_at = 0.0
        self._failed = False

    async def beat(self, admin: Admin, *, full: bool) -> int:
        """One heartbeat; the error code. It gives up revoked partitions before the coordinator knows."""
        now = self._host.world.now()
        # What an answer that did not come would have said is not said again, unless everything is asked for.
        full = full or self._failed
        self._failed = True
        if self.epoch > 0 and now - self._answered_at > HELD_SECONDS:
            # The coordinator may have given everything to others: a good member thinks so, too. If it has not, it
            # returns the assignment again, but only to a member that names all fields.
            self.lose()
            full = True
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(self.owned):
            by_topic.setdefault(topic_id, []).append(index)
        owned = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, parts) for topic_id, parts in by_topic.items()]
        joining = self.epoch <= 0
        request = ConsumerGroupHeartbeatRequest(
            self.group,
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS if full or joining else -1,
            subscribed_topic_names=[self.topic] if full or joining else None,
            topic_partitions=owned if full or joining or self.epoch > 0 else None,
        )
        asked = now
        answer = await admin.cluster.request_coordinator(
            GROUP_COORDINATOR, self.group, request, ConsumerGroupHeartbeatResponse
        )
        if answer.error_code in REJOIN:
            self.lose()
            self.epoch = 0
            return int(answer.error_code)
        if answer.error_code:
            if answer.error_code in MOVED:
                admin.cluster.forget_coordinator(GROUP_COORDINATOR, self.group)
            return int(answer.error_code)
        # The session ran from when the coordinator got the request at the latest.
        self._answered_at = asked
        self._failed = False
        if self.epoch == LEAVE:
            return 0
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.member_epoch
        if self._host.world.now() - asked > HELD_SECONDS:
            # It was stopped meanwhile: the partitions returned may be another's by now, and are requested again.
            self.lose()
            self._failed = True
            return 0
        if answer.assignment is not None:
            given = frozenset((t.topic_id, p) for t in answer.assignment.topic_partitions for p in t.partitions)
            self._take(given)
        if not self._is_deposed(await admin.cluster.coordinator(GROUP_COORDINATOR, self.group)):
            for each in self._held:
                each.until = asked + HELD_SECONDS
        return 0

    def _is_deposed(self, node_id: int) -> bool:
        """Whether another broker leads the group's partition: of what this one answers the present coordinator knows
        nothing. A heartbeat that changes nothing is not written: who is cut off answers it as if nothing were."""
        stored = self._host.world.stored
        topic = stored.topics.get("__consumer_offsets")
        if topic is None:
            return False
        state = stored.states.get(("__consumer_offsets", partition_for_group(self.group, len(topic.replicas))))
        return state is not None and state.leader != node_id

    def _take(self, given: frozenset[TopicIdPartition]) -> None:
        now = self._host.world.now()
        for each in list(self._held):
            if each.partition not in given:
                each.until = now
                self._held.remove(each)
        for partition in sorted(given - self.owned):
            held = Held(self.group, partition, self.member_id, self.epoch, now, now + HELD_SECONDS)
            self._held.append(held)
            self._host.world.history.held.append(held)
            self._host.world.mark("partition taken by a KIP-848 member")
        self.owned = given

    def lose(self) -> None:
        """Everything is gone, at the end of the session at the latest."""
        now = self._host.world.now()
        for each in self._held:
            each.until = min(each.until, now)
        self._held.clear()
        self.owned = frozenset()

    async def leave(self, admin: Admin) -> None:
        """Leave the group."""
        self.lose()
        self.epoch = LEAVE
        await self.beat(admin, full=False)


async def modern_member(host: ClientHost, group: str, topic: str) -> None:
    """A member that comes and goes; at the end it stays until the group is stable."""
    world, rng = host.world, app_random(host)
    done = False
    while not done:
        member = Member(host, group, topic)
        member.member_id = f"{host.name}.{host.restarts}.{rng.randrange(1 << 30)}"
        try:
            async with Admin(**host.options(request_timeout_ms=3_000, default_api_timeout_ms=6_000)) as admin:
                until = world.now() + rng.uniform(6, 40)
                quiet = 0
                while not done and (world.now() < until or world.is_stopping()):
                    before = (member.epoch, member.owned)
                    code = await member.beat(admin, full=rng.random() < 0.2)
                    if code:
                        world.mark(f"heartbeat {ErrorCode(code).name}")
                    await asyncio.sleep(rng.uniform(0.3, 1.2))
                    quiet = quiet + 1 if (member.epoch, member.owned) == before and not code else 0
                    done = world.is_stopping() and quiet >= 5
                await member.leave(admin)
        except FAILURES as error:
            note_failure(host, f"modern member of {group}", error)
            member.lose()
            await asyncio.sleep(0.2)
