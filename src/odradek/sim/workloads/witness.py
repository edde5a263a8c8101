"""Clients that ask every broker directly, whatever Metadata says: which of them answer, and what.

A client that follows Metadata rarely meets a leader that was deposed and does not know it. These do: each broker is
asked for the ends of partitions and for committed offsets, and the checkers compare the answers of all.
"""

from __future__ import annotations

import asyncio

from odradek.client.admin import Admin
from odradek.client.model import LATEST, READ_COMMITTED, READ_UNCOMMITTED
from odradek.client.network.cluster import GROUP_COORDINATOR
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.history import OK, UNKNOWN, Committed, Looked
from odradek.sim.workloads.clients import FAILURES, app_random, note_failure
from odradek.sim.world.hosts import ClientHost
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
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

GROUPS = ("seen-1", "seen-2", "seen-3")
"""Groups without members, so that their offsets have coordinators of their own."""
COMMITTED_WITHOUT_STORE = "committed while no broker reaches the store"
_TOPICS = {"plain": 2, "ledger": 2}
_LIST_OFFSETS_VERSION = 7
_OFFSET_FETCH_VERSION = 8
_COMMITTED = TopicPartition("plain", 0)
_TIMEOUT_MS = 1_500.0


async def commit(host: ClientHost, group: str) -> None:
    """Commit one offset after the other for a group, through the coordinator that Metadata names."""
    world, rng = host.world, app_random(host)
    offset = 1_000_000 * host.restarts
    while not world.is_stopping():
        try:
            async with Admin(**host.options()) as admin:
                while not world.is_stopping():
                    offset += 1
                    await _commit(host, admin, group, offset)
                    await asyncio.sleep(rng.expovariate(3.0))
        except FAILURES as error:
            note_failure(host, "commit", error)
            await asyncio.sleep(0.1)


async def _commit(host: ClientHost, admin: Admin, group: str, offset: int) -> None:
    world = host.world
    partition = OffsetCommitRequestPartition(_COMMITTED.partition, offset)
    request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(_COMMITTED.topic, partitions=[partition])])
    asked, state = world.now(), UNKNOWN
    try:
        answer = await admin.cluster.request_coordinator(
            GROUP_COORDINATOR, group, request, OffsetCommitResponse, at_most=8, timeout_ms=_TIMEOUT_MS
        )
        code = answer.topics[0].partitions[0].error_code
        if code:
            admin.cluster.forget_coordinator(GROUP_COORDINATOR, group)
        else:
            state = OK
            if all(each.store is not None and each.store.cut_until > asked for each in world.brokers):
                world.mark(COMMITTED_WITHOUT_STORE)
    finally:
        key = (_COMMITTED.topic, _COMMITTED.partition)
        world.history.commits.append(Committed(asked, world.now(), group, key, offset, "", -1, state))


async def witness(host: ClientHost) -> None:
    """Ask all brokers at the same time, again and again."""
    world, rng = host.world, app_random(host)
    while not world.is_stopping():
        try:
            async with Admin(**host.options()) as admin:
                await admin.list_topics()
                while not world.is_stopping():
                    brokers = [each.node_id for each in world.brokers]
                    await asyncio.gather(*(_ask(host, admin, node_id, rng.random() < 0.5) for node_id in brokers))
                    await asyncio.sleep(rng.expovariate(4.0))
        except FAILURES as error:
            note_failure(host, "witness", error)
            await asyncio.sleep(0.2)


async def _ask(host: ClientHost, admin: Admin, node_id: int, committed: bool) -> None:
    """One broker that does not answer in time does not affect the others."""
    try:
        await (_look_at_groups(host, admin, node_id) if committed else _look_at_ends(host, admin, node_id))
    except FAILURES as error:
        note_failure(host, f"ask broker {node_id}", error)


async def _look_at_ends(host: ClientHost, admin: Admin, node_id: int) -> None:
    world = host.world
    for what, isolation in (("stable", READ_COMMITTED), ("latest", READ_UNCOMMITTED)):
        topics = [
            ListOffsetsRequestTopic(name, [ListOffsetsRequestPartition(i, -1, LATEST) for i in range(count)])
            for name, count in _TOPICS.items()
        ]
        asked = world.now()
        answer = await admin.cluster.request(
            node_id,
            ListOffsetsRequest(-1, isolation, topics),
            ListOffsetsResponse,
            purpose="witness",
            at_most=_LIST_OFFSETS_VERSION,
            timeout_ms=_TIMEOUT_MS,
        )
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    key = (topic.name, each.partition_index)
                    world.mark(f"witness: {what}")
                    look = Looked(asked, world.now(), what, key, each.offset, each.leader_epoch)
                    world.history.looks.append(look)


async def _look_at_groups(host: ClientHost, admin: Admin, node_id: int) -> None:
    world = host.world
    for group in GROUPS:
        wanted = OffsetFetchRequestGroupTopic(_COMMITTED.topic, partition_indexes=[_COMMITTED.partition])
        asked = world.now()
        answer = await admin.cluster.request(
            node_id,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=[wanted])]),
            OffsetFetchResponse,
            purpose="witness",
            at_most=_OFFSET_FETCH_VERSION,
            timeout_ms=_TIMEOUT_MS,
        )
        for found in answer.groups:
            for topic in () if found.error_code else found.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        key = (topic.name, each.partition_index)
                        world.mark("witness: committed")
                        look = Looked(asked, world.now(), f"committed:{group}", key, each.committed_offset)
                        world.history.looks.append(look)


PROGRAMS = (
    *((f"committer-{group}", lambda host, group=group: commit(host, group)) for group in GROUPS),
    ("witness-1", witness),
    ("witness-2", witness),
)
