"""Three brokers: what is acknowledged by all in-sync replicas is on all of them and outlives the leader."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.cluster import ClusterProcess
from odradek.client import Consumer as OurConsumer
from odradek.client import TopicPartition as OurPartition
from odradek.metadata.image import PartitionState
from odradek.records.builder import BatchFields, encode_batch
from odradek.wire.messages import alter_configs, delete_records, fetch, list_offsets, metadata, produce
from tests.integration.clusters import described
from tests.integration.waiting import PATIENCE, until

Connect = Callable[[str], Any]
LARGE = bytes(200_000)
DEBUGGING_REPLICA = -2
"""The replica id with which anybody may ask any replica for the end of its log."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    settings = {
        "min.insync.replicas": 2,
        "broker.rack": "rack-{id}",
        "group.initial.rebalance.delay.ms": 0,
        "replica.fetch.max.bytes": 65536,
        # What was sent before a follower came back, however long ago, does not change how fast it catches up.
        "replication.quota.window.num": 1,
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    with ClusterProcess(tmp_path_factory.mktemp("cluster") / "data", settings=settings) as running:
        yield running


@pytest.fixture
def topic(cluster: ClusterProcess) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (created,) = admin.create_topics([NewTopic(name, 1, 3)]).values()
    created.result(20)
    return name


class Nodes:
    """Raw connections to each broker by its id."""

    def __init__(self, cluster: ClusterProcess, connect: Connect) -> None:
        self.by_id = dict(enumerate(map(connect, cluster.bootstrap.split(",")), 1))

    def state(self, topic: str) -> PartitionState:
        answer = self.by_id[1].call(metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)]), 12)
        (found,) = answer.topics[0].partitions
        return PartitionState(found.leader_id, found.leader_epoch, tuple(found.replica_nodes), tuple(found.isr_nodes))

    def topic_id(self, topic: str) -> bytes:
        answer = self.by_id[1].call(metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)]), 12)
        return bytes(answer.topics[0].topic_id)

    def offset(self, broker_id: int, topic: str, timestamp: int, replica_id: int = DEBUGGING_REPLICA) -> int:
        wanted = list_offsets.ListOffsetsRequestPartition(0, -1, timestamp)
        request = list_offsets.ListOffsetsRequest(replica_id)
        request.topics = [list_offsets.ListOffsetsRequestTopic(topic, [wanted])]
        return int(self.by_id[broker_id].call(request, 7).topics[0].partitions[0].offset)

    def produce(self, topic: str, *values: bytes, acks: int = -1) -> int:
        batch = encode_batch([(int(time.time() * 1000), None, value, ()) for value in values], BatchFields())
        data = produce.ProduceRequestTopic(topic, partition_data=[produce.ProduceRequestPartition(0, bytes(batch))])
        request = produce.ProduceRequest(None, acks, 10_000, [data])
        answer = self.by_id[self.state(topic).leader].call(request, 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    def fetch(self, broker_id: int, topic: str, offset: int, rack: str = "") -> Any:
        wanted = fetch.FetchRequestPartition(0, -1, offset, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, rack_id=rack)
        request.topics = [fetch.FetchRequestTopic(topic_id=self.topic_id(topic), partitions=[wanted])]
        return self.by_id[broker_id].call(request, 15).responses[0].partitions[0]


@pytest.fixture
def nodes(cluster: ClusterProcess, connect: Connect) -> Nodes:
    return Nodes(cluster, connect)


def test_all_replicas_have_what_is_acknowledged(cluster: ClusterProcess, nodes: Nodes, topic: str) -> None:
    assert nodes.produce(topic, b"a", b"b") == 0
    assert nodes.produce(topic, b"c") == 0
    assert [nodes.offset(broker_id, topic, -1) for broker_id in (1, 2, 3)] == [3, 3, 3], "before the answer went out"
    assert len({hashlib.sha256(log).digest() for log in logs(cluster, topic)}) == 1


def logs(cluster: ClusterProcess, topic: str) -> list[bytes]:
    return [
        b"".join(path.read_bytes() for path in sorted(cluster.data_dir.glob(f"broker-{broker}/{topic}-0/*.log")))
        for broker in (1, 2, 3)
    ]


def test_a_consumer_is_sent_to_its_rack_and_reads_there_what_is_committed(nodes: Nodes, topic: str) -> None:
    assert nodes.produce(topic, b"a", b"b") == 0
    leader = nodes.state(topic).leader
    other = next(broker_id for broker_id in (1, 2, 3) if broker_id != leader)
    assert nodes.fetch(leader, topic, 0, f"rack-{leader}").preferred_read_replica == -1
    sent_on = nodes.fetch(leader, topic, 0, f"rack-{other}")
    assert (sent_on.preferred_read_replica, sent_on.records) == (other, b"")
    until(
        lambda: nodes.fetch(other, topic, 0, f"rack-{other}").high_watermark == 2, "a follower knows what is committed"
    )
    assert nodes.fetch(other, topic, 0).records == nodes.fetch(leader, topic, 0).records != b""


def test_our_consumer_reads_from_the_follower_of_its_rack(cluster: ClusterProcess, nodes: Nodes, topic: str) -> None:
    """KIP-392, end to end: the leader names the replica, and all records come from there."""
    leader = nodes.state(topic).leader
    near = next(broker_id for broker_id in (1, 2, 3) if broker_id != leader)

    async def read() -> tuple[list[bytes], float]:
        options: Any = {"bootstrap_servers": cluster.bootstrap, "client_rack": f"rack-{near}"}
        async with OurConsumer(**options, auto_offset_reset="earliest") as consumer, asyncio.timeout(PATIENCE):
            consumer.assign([OurPartition(topic, 0)])
            values: list[bytes] = []
            async for record in consumer:
                values.append(record.value)
                if len(values) == 1:
                    # From here on the position is at the follower: this is in no answer of the leader.
                    await asyncio.to_thread(nodes.produce, topic, LARGE, LARGE)
                if len(values) == 3:
                    break
            received = consumer.metrics().value("incoming-byte-total", node_id=f"node-{leader}")
            return values, received

    assert nodes.produce(topic, b"first") == 0
    values, from_leader = asyncio.run(read())
    assert values == [b"first", LARGE, LARGE]
    assert from_leader < len(LARGE), "the leader has sent no record"


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_group_members_get_partitions_of_their_racks(cluster: ClusterProcess, strategy: str) -> None:
    """KIP-881, end to end: three members in three racks, three partitions of one replica each."""
    name, admin = f"t{uuid.uuid4().hex[:8]}", AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = NewTopic(name, 3, replica_assignment=[[3], [1], [2]], config={"min.insync.replicas": "1"})
    admin.create_topics([wanted])[name].result(20)

    async def joined() -> None:
        async with AsyncExitStack() as stack:
            members = {}
            for rack in (1, 2, 3):
                member: Any = OurConsumer(
                    bootstrap_servers=cluster.bootstrap,
                    group_id=name,
                    client_rack=f"rack-{rack}",
                    partition_assignment_strategy=[strategy],
                )
                members[rack] = await stack.enter_async_context(member)
                member.subscribe([name])
            expected = {1: {OurPartition(name, 1)}, 2: {OurPartition(name, 2)}, 3: {OurPartition(name, 0)}}
            async with asyncio.timeout(2 * PATIENCE):
                while {rack: member.assignment() for rack, member in members.items()} != expected:
                    await asyncio.gather(*(member.poll(timeout_ms=50) for member in members.values()))

    asyncio.run(joined())


def test_deleted_records_are_gone_everywhere_when_it_is_answered(nodes: Nodes, topic: str) -> None:
    assert nodes.produce(topic, b"a", b"b") == 0
    assert nodes.produce(topic, b"c") == 0
    wanted = delete_records.DeleteRecordsRequestTopic(topic, [delete_records.DeleteRecordsRequestPartition(0, 2)])
    request = delete_records.DeleteRecordsRequest([wanted], 10_000)
    answer = nodes.by_id[nodes.state(topic).leader].call(request, 2).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert [nodes.offset(broker_id, topic, -2) for broker_id in (1, 2, 3)] == [2, 2, 2]


def test_a_throttled_follower_catches_up_slowly(cluster: ClusterProcess, nodes: Nodes, topic: str) -> None:
    """A follower that was away has 900 KB to fetch at 200 KB/s; only who is not in sync is held back."""
    leader = nodes.state(topic).leader
    follower = next(broker_id for broker_id in (1, 2, 3) if broker_id != leader)
    set_configs(nodes, 4, str(leader), {"leader.replication.throttled.rate": "200000"})
    set_configs(nodes, 2, topic, {"leader.replication.throttled.replicas": "*", "min.insync.replicas": "1"})
    # One batch would go out at once, whatever its size: here each record is one.
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1})
    with cluster.none_started_again():
        cluster.signal_broker(follower, signal.SIGKILL)
        until(lambda: follower not in nodes_isr(cluster, topic), "the follower has left the ISR")
        for _ in range(90):
            producer.produce(topic, bytes(10_000), partition=0)
        assert producer.flush(PATIENCE) == 0
        began = time.monotonic()
    until(lambda: follower in nodes_isr(cluster, topic), "the follower is in the ISR again")
    # Each window lets 200 KB and a fetch through, and the first one may have begun before: it takes four of a second.
    assert time.monotonic() - began > 2
    set_configs(nodes, 4, str(leader), {})


def nodes_isr(cluster: ClusterProcess, topic: str) -> list[int]:
    return list(described(AdminClient({"bootstrap.servers": cluster.bootstrap}), topic).partitions[0].isrs)


def set_configs(nodes: Nodes, kind: int, name: str, values: dict[str, str]) -> None:
    configs = [alter_configs.AlterConfigsRequestConfig(key, value) for key, value in values.items()]
    resource = alter_configs.AlterConfigsRequestResource(kind, name, configs)
    broker = nodes.by_id[int(name)] if kind == 4 else next(iter(nodes.by_id.values()))
    answer = broker.call(alter_configs.AlterConfigsRequest([resource]), 2)
    assert [each.error_code for each in answer.responses] == [0]


def test_what_is_acknowledged_outlives_its_leaders(cluster: ClusterProcess, topic: str) -> None:
    """Leaders are killed one after the other while an idempotent producer continues."""
    acknowledged: dict[int, bytes] = {}

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acknowledged[message.offset()] = message.value()

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    sent = 0
    for _ in range(3):
        leader = described(admin, topic).partitions[0].leader
        for _ in range(300):
            producer.produce(topic, b"%d" % sent, partition=0, on_delivery=delivered)
            sent += 1
            producer.poll(0.001)
        cluster.signal_broker(leader, signal.SIGKILL)
        for _ in range(300):
            producer.produce(topic, b"%d" % sent, partition=0, on_delivery=delivered)
            sent += 1
            producer.poll(0.001)
        # Who is in sync has all of it: the dead one is not, or is back.
        assert producer.flush(PATIENCE) == 0
        until(lambda: len(nodes_isr(cluster, topic)) == 3, "all are in sync")
    assert sorted(acknowledged.values(), key=int) == [b"%d" % number for number in range(sent)]
    until(lambda: len(nodes_isr(cluster, topic)) == 3, "all are in sync")
    assert read_all(cluster, topic, sent) == [acknowledged[offset] for offset in sorted(acknowledged)]
    assert len({hashlib.sha256(log).digest() for log in logs(cluster, topic)}) == 1


def read_all(cluster: ClusterProcess, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(500, 1):
            if message.error():
                raise KafkaException(message.error())
            found.append(message.value() or b"")
    consumer.close()
    return found
