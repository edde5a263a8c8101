"""A group that commits offsets of a topic which is deleted and recreated repeatedly (KIP-516).

Offsets encode the life of the topic in which they were committed, so each returned one shows whose it is. Commits name
the topic by its id: none can mean another life than its own, however late it comes.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from odradek.client.admin import Admin, NewTopic
from odradek.client.network.cluster import GROUP_COORDINATOR
from odradek.client.offsets import fetch_committed
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.history import Violation
from odradek.sim.workloads.clients import FAILURES, app_random, note_failure
from odradek.sim.workloads.cluster import all_know, delete_by_id
from odradek.sim.world.hosts import ClientHost
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
)

TOPIC: Final = "reborn"
GROUP: Final = "pilgrims"
_IN_A_LIFE: Final = 1_000_000
"""Offsets of a life lie between this many times its number and the next."""
_NONE: Final = -1
_SECONDS: Final = 60.0
"""Within so long after all faults the group can be asked."""


class _Life:
    """A topic from its creation on, with what the group has committed in it."""

    __slots__ = ("acked", "number", "topic_id", "unsure")

    def __init__(self, number: int, topic_id: bytes) -> None:
        self.number = number
        self.topic_id = topic_id
        self.acked = _NONE
        self.unsure: set[int] = set()
        """Commits without an answer: they may have come, and may come still."""

    def check(self, found: int, how: str) -> None:
        """Raises Violation unless that can be what is committed."""
        if found == self.acked or found in self.unsure:
            return
        what = "offsets of a deleted topic" if 0 <= found < self.number * _IN_A_LIFE else "lost commit"
        raise Violation(
            what,
            f"{GROUP}: {TOPIC} in its life {self.number} ({self.topic_id.hex()}) is at {found}, asked by {how}; "
            f"committed: {self.acked}, perhaps {sorted(self.unsure)}",
        )


async def commit_through_lives(host: ClientHost) -> None:
    """Make the topic, commit in it, look, delete it; in the end its last life has what was committed in it."""
    world, rng = host.world, app_random(host)
    life: _Life | None = None
    # A program that is started again does not know the lives before.
    number = host.restarts * 1_000
    while not world.is_stopping():
        try:
            async with Admin(**host.options()) as admin:
                while not world.is_stopping():
                    await asyncio.sleep(rng.expovariate(2.0))
                    if life is None:
                        number += 1
                        life = await _begin(host, admin, number)
                    elif rng.random() < 0.15:
                        gone, life = life, None
                        await delete_by_id(host, admin, gone.topic_id)
                    elif rng.random() < 0.5:
                        await _commit(host, admin, life, rng)
                    else:
                        await _look(host, admin, life, by_name=rng.random() < 0.4)
        except FAILURES as error:
            note_failure(host, "commit through lives", error)
            await asyncio.sleep(0.2)
    if life is not None:
        await _see_at_last(host, life)


async def _begin(host: ClientHost, admin: Admin, number: int) -> _Life | None:
    found = (await admin.describe_topics([TOPIC]))[TOPIC]
    if not isinstance(found, KafkaError):
        await delete_by_id(host, admin, found.topic_id)
    made = (await admin.create_topics([NewTopic(TOPIC, 1, min(3, len(host.world.brokers)))]))[TOPIC]
    if isinstance(made, KafkaError):
        host.world.mark(f"error {made.code.name}")
        return None
    host.world.mark("topic recreated for its group")
    return _Life(number, made)


async def _commit(host: ClientHost, admin: Admin, life: _Life, rng: random.Random) -> None:
    offset = max(life.acked, life.number * _IN_A_LIFE, *life.unsure, 0) + rng.randrange(1, 9)
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                topic_id=life.topic_id, partitions=[OffsetCommitRequestPartition(0, offset, -1, "")]
            )
        ],
    )
    life.unsure.add(offset)
    answer = await admin.cluster.request_coordinator(GROUP_COORDINATOR, GROUP, request, OffsetCommitResponse)
    code = answer.topics[0].partitions[0].error_code
    host.world.mark(f"commit by id: {ErrorCode(code).name}")
    admin.cluster.check_coordinator(GROUP_COORDINATOR, GROUP, code)
    life.acked = offset
    life.unsure.discard(offset)


async def _look(host: ClientHost, admin: Admin, life: _Life, *, by_name: bool) -> None:
    if not by_name:
        life.check(await _fetch(host, admin, life), "its id")
    elif all_know(host.world, TOPIC, life.topic_id):
        # By its name it is whichever topic the coordinator knows: this one, once all brokers do.
        key = TopicPartition(TOPIC, 0)
        found = await fetch_committed(admin.cluster, GROUP, [key])
        life.check(found[key].offset if key in found else _NONE, "its name")


async def _fetch(host: ClientHost, admin: Admin, life: _Life) -> int:
    topics = [OffsetFetchRequestGroupTopic(topic_id=life.topic_id, partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)], require_stable=True)
    answer = await admin.cluster.request_coordinator(GROUP_COORDINATOR, GROUP, request, OffsetFetchResponse)
    group = answer.groups[0]
    admin.cluster.check_coordinator(GROUP_COORDINATOR, GROUP, group.error_code)
    found = group.topics[0].partitions[0]
    admin.cluster.check_coordinator(GROUP_COORDINATOR, GROUP, found.error_code)
    host.world.mark("committed offset seen in its topic's life")
    return int(found.committed_offset)


async def _see_at_last(host: ClientHost, life: _Life) -> None:
    until = host.world.now() + _SECONDS
    while True:
        try:
            async with Admin(**host.options()) as admin:
                return await _look(host, admin, life, by_name=False)
        except FAILURES as error:
            note_failure(host, "look in the end", error)
            if host.world.now() > until:
                raise Violation("committed offsets can be fetched", f"{GROUP}: {error!r}") from error
        await asyncio.sleep(0.5)
