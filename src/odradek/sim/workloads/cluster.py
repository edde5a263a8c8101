"""What is done to a cluster while it is in use: replicas move, leaders are elected, topics come, grow and go."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any, Final

from odradek.client.admin import Admin, NewTopic
from odradek.client.consumer.consumer import Consumer
from odradek.client.network.metadata import TopicInfo
from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.history import Violation
from odradek.sim.workloads.clients import CONSUMER_OPTIONS, FAILURES, PRODUCER_OPTIONS, app_random, note_failure
from odradek.sim.workloads.deletions import delete_records
from odradek.sim.world.hosts import BrokerHost, ClientHost, World
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestReassignablePartition,
    AlterPartitionReassignmentsRequestReassignableTopic,
    AlterPartitionReassignmentsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestState, DeleteTopicsResponse
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
    ElectLeadersResponse,
)
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

MOVE_SECONDS: Final = 60.0
"""Within so long after all faults every move has come to its end."""
READ_SECONDS: Final = 15.0
_PREFERRED: Final = 0
_MOVED: Final = {
    "plain": 2, "ledger": 2, "accounts": 1, "in": 2, "out": 2, "__consumer_offsets": 2, "__transaction_state": 2,
}  # fmt: skip
_NAMES: Final = ("coming", "going")
_MAY_BE: Final = frozenset(
    (
        ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    )
)  # fmt: skip
"""What a change may end with: an earlier attempt had succeeded, too few brokers live, the store is in trouble."""


async def ask_controller(admin: Admin, request: Any, answer: Any) -> Any:
    """The response of the controller that this client knows; it looks again if that one was deposed."""
    connection = await admin.cluster.connections.get(await admin.cluster.controller())
    response = await admin.cluster.ask(connection, request, answer)
    if response.error_code == ErrorCode.NOT_CONTROLLER:
        await admin.cluster.refresh_metadata()
    return response


# --- moves and elections ---


async def reassign(host: ClientHost) -> None:
    """Move replicas between brokers, give moves up, elect preferred leaders; in the end all moves are done."""
    world, rng = host.world, app_random(host)
    while not world.is_stopping():
        try:
            async with Admin(**host.options()) as admin:
                while not world.is_stopping():
                    await asyncio.sleep(rng.expovariate(0.6))
                    what = rng.random()
                    if what < 0.2:
                        await _elect(host, admin, rng)
                    elif what < 0.3:
                        key = TopicPartition("plain", rng.randrange(_MOVED["plain"]))
                        await delete_records(host, admin, key, rng.random() * 0.3)
                    else:
                        await _move(host, admin, rng)
        except FAILURES as error:
            note_failure(host, "reassign", error)
            await asyncio.sleep(0.3)
    until = world.now() + MOVE_SECONDS
    while await _is_moving(host):
        if world.now() > until:
            raise Violation("moves come to their end", f"{MOVE_SECONDS} s after all faults replicas are still moving")
        await asyncio.sleep(1)


async def _move(host: ClientHost, admin: Admin, rng: random.Random) -> None:
    topics: dict[str, list[AlterPartitionReassignmentsRequestReassignablePartition]] = {}
    ids = [each.node_id for each in host.world.brokers]
    for _ in range(rng.choice((1, 1, 3))):
        name = rng.choice(sorted(_MOVED))
        index = rng.randrange(_MOVED[name])
        replicas = None if rng.random() < 0.2 else rng.sample(ids, min(len(ids), rng.choice((2, 3, 3, 3, 4))))
        rows = topics.setdefault(name, [])
        if all(row.partition_index != index for row in rows):
            rows.append(AlterPartitionReassignmentsRequestReassignablePartition(index, replicas))
    wanted = [AlterPartitionReassignmentsRequestReassignableTopic(name, rows) for name, rows in topics.items()]
    request = AlterPartitionReassignmentsRequest(timeout_ms=5_000, topics=wanted)
    answer = await ask_controller(admin, request, AlterPartitionReassignmentsResponse)
    host.world.mark(f"moves asked for: {ErrorCode(answer.error_code).name}")
    for topic in answer.responses:
        for row in topic.partitions:
            host.world.mark(f"move: {ErrorCode(row.error_code).name}")


async def _elect(host: ClientHost, admin: Admin, rng: random.Random) -> None:
    name = rng.choice(sorted(_MOVED))
    wanted = [ElectLeadersRequestTopicPartitions(name, list(range(_MOVED[name])))]
    request = ElectLeadersRequest(_PREFERRED, None if rng.random() < 0.3 else wanted, 5_000)
    answer = await ask_controller(admin, request, ElectLeadersResponse)
    for topic in answer.replica_election_results:
        for row in topic.partition_result:
            host.world.mark(f"preferred election: {ErrorCode(row.error_code).name}")


async def _is_moving(host: ClientHost) -> bool:
    try:
        async with Admin(**host.options()) as admin:
            answer = await ask_controller(
                admin, ListPartitionReassignmentsRequest(5_000, None), ListPartitionReassignmentsResponse
            )
    except FAILURES as error:
        note_failure(host, "list reassignments", error)
        return True
    return bool(answer.error_code or answer.topics)


# --- topics ---


class _Life:
    """A topic between its creation and its deletion, both known for certain."""

    __slots__ = ("acked", "name", "sent", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()


async def topics_come_and_go(host: ClientHost) -> None:
    """Topics are created, grown, written to and deleted; in the end they hold what was written into their last life."""
    world, rng = host.world, app_random(host)
    lives: dict[str, _Life | None] = dict.fromkeys(_NAMES)
    count = Counter[str]()
    while not world.is_stopping():
        try:
            async with Admin(**host.options()) as admin:
                while not world.is_stopping():
                    await asyncio.sleep(rng.expovariate(1.0))
                    name = rng.choice(_NAMES)
                    await _something(host, admin, name, lives, rng, count)
        except FAILURES as error:
            note_failure(host, "topics", error)
            await asyncio.sleep(0.2)
    for life in lives.values():
        if life is not None:
            await _see_contents(host, life)


async def _something(
    host: ClientHost, admin: Admin, name: str, lives: dict[str, _Life | None], rng: random.Random, count: Counter[str]
) -> None:
    life = lives[name]
    action = rng.random()
    if action < 0.35:
        # From here on it is uncertain which life the topic is in, until it surely is recreated.
        lives[name] = None
        await _delete(host, admin, name, life)
    elif action < 0.45 and life is not None:
        _check(host, name, (await admin.create_partitions({name: rng.choice((2, 3, 5))}))[name])
    elif life is None:
        wanted = NewTopic(name, rng.choice((1, 2, 4)), 3)
        made = (await admin.create_topics([wanted]))[name]
        if isinstance(made, KafkaError):
            _check(host, name, made)
        else:
            lives[name] = _Life(name, made)
            host.world.mark("topic created")
    else:
        await _write(host, life, rng, count)


async def _delete(host: ClientHost, admin: Admin, name: str, life: _Life | None) -> None:
    topic_id = life.topic_id if life is not None else b""
    if life is None:
        found = (await admin.describe_topics([name]))[name]
        if isinstance(found, KafkaError):
            return
        topic_id = found.topic_id
    await delete_by_id(host, admin, topic_id)
    admin.cluster.metadata.topics.pop(name, None)


async def delete_by_id(host: ClientHost, admin: Admin, topic_id: bytes) -> None:
    """A request that comes late on another connection must not mean the next topic of the name."""
    request = DeleteTopicsRequest([DeleteTopicsRequestState(None, topic_id)], timeout_ms=5_000)
    connection = await admin.cluster.connections.get(await admin.cluster.controller())
    response = await admin.cluster.ask(connection, request, DeleteTopicsResponse)
    for result in response.responses:
        host.world.mark(f"topic deletion: {ErrorCode(result.error_code).name}")
        if result.error_code == ErrorCode.NOT_CONTROLLER:
            await admin.cluster.refresh_metadata()


def _check(host: ClientHost, name: str, error: KafkaError | None) -> None:
    if error is not None:
        host.world.mark(f"error {error.code.name}")
        if error.code not in _MAY_BE:
            raise Violation("topics can be changed", f"{name}: {error!r}")


async def _write(host: ClientHost, life: _Life, rng: random.Random, count: Counter[str]) -> None:
    """Some records, once no broker that lives takes the topic for the one before it."""
    if not all_know(host.world, life.name, life.topic_id):
        return
    async with Producer(clock=host.clock, **host.options(**PRODUCER_OPTIONS)) as producer:
        partitions = await producer.partitions_for(life.name)
        for _ in range(rng.randrange(1, 4)):
            count["records"] += 1
            value = b"%s %d of %s" % (life.name.encode(), count["records"], life.topic_id.hex().encode())
            life.sent.add(value)
            await (await producer.send(life.name, value, partition=rng.choice([p.partition for p in partitions])))
            life.acked.add(value)


def all_know(world: World, name: str, topic_id: bytes) -> bool:
    """Whether no broker that is up takes the topic for the one before it, or for none."""
    return all(_knows(host, name, topic_id) for host in world.brokers if host.is_up)


def _knows(host: BrokerHost, name: str, topic_id: bytes) -> bool:
    found = host.inspect()
    topic = None if found is None else found.view.image.topics.get(name)
    return topic is not None and topic.id == topic_id


async def _see_contents(host: ClientHost, life: _Life) -> None:
    """The topic has what was acknowledged in this life, and nothing of another one. Raises Violation."""
    until = host.world.now() + MOVE_SECONDS
    while True:
        try:
            # A returned end may be that of the topic before: no reader ever reaches it in this one.
            async with asyncio.timeout(READ_SECONDS):
                read = await _read(host, life)
        except (*FAILURES, TimeoutError) as error:
            note_failure(host, "read a topic", error)
            if host.world.now() > until:
                raise Violation("topics can be read", f"{life.name}: {error!r}") from error
        else:
            missing = sorted(life.acked - set(read))
            strange = sorted(set(read) - life.sent)
            repeated = len(read) != len(set(read))
            # A leader that was cut off and does not know yet that it was deposed, or that the topic was deleted,
            # returns what its own log has.
            if not (missing or strange or repeated) or host.world.now() > until:
                break
        await asyncio.sleep(0.5)
    host.world.mark("topic seen in its last life")
    if missing:
        raise Violation("lost acknowledged write", f"{life.name} of id {life.topic_id.hex()} lacks {missing[0]!r}")
    if strange:
        raise Violation("records of a deleted topic", f"{life.name} of id {life.topic_id.hex()} has {strange[0]!r}")
    if repeated:
        raise Violation("duplicate", f"{life.name} of id {life.topic_id.hex()}: {sorted(read)}")


async def _read(host: ClientHost, life: _Life) -> list[bytes]:
    values: list[bytes] = []
    async with Admin(**host.options()) as admin:
        found = (await admin.describe_topics([life.name]))[life.name]
        if isinstance(found, KafkaError):
            raise found
        assert isinstance(found, TopicInfo)
    async with Consumer(**host.options(**CONSUMER_OPTIONS)) as consumer:
        keys = [TopicPartition(life.name, each.partition) for each in found.partitions]
        ends = await consumer.end_offsets(keys)
        consumer.assign(keys)
        while any([await consumer.position(key) < ends[key] for key in keys]):
            for record in await consumer.poll(500):
                assert isinstance(record.value, bytes)
                values.append(record.value)
    return values
