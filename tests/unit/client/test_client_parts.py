"""The pure parts of the client: options, partitioning, sequences, fetch sessions, metadata."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.config import parse_servers, resolve_admin, resolve_consumer, resolve_producer
from odradek.client.consumer.fetch_session import FetchSession, FetchTarget
from odradek.client.consumer.positions import Chunk, PartitionState, RecordReader
from odradek.client.errors import ConfigError, Disconnected, RequestTimedOut, UnsupportedByBroker
from odradek.client.model import AbortedTransaction
from odradek.client.network.connection import open_connection
from odradek.client.network.connections import backoff_seconds
from odradek.client.network.metadata import MetadataCache
from odradek.client.producer.accumulator import Accumulator, Batch
from odradek.client.producer.partitioners import (
    ConsistentPartitioner,
    DefaultPartitioner,
    RoundRobinPartitioner,
    partition_for_key,
)
from odradek.client.producer.sequence_numbers import MAX_EPOCH, ProducerIdentity
from odradek.client.producer.sequences import Sequences
from odradek.ports.randomness import SeededRandom
from odradek.records.batch import parse_header
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.client.fake_cluster import FakeCluster, drop, silent

KEY = ("t", 0)


# --- options ---


def test_dotted_names_and_text_values_are_understood() -> None:
    config = resolve_producer({"bootstrap.servers": "a:1, [::1]:2", "linger.ms": "2.5", "enable.idempotence": "TRUE"})
    assert parse_servers(config["bootstrap_servers"]) == [("a", 1), ("::1", 2)]
    assert config["linger_ms"] == 2.5
    assert config["acks"] == -1
    assert config["enable_idempotence"] is True


@pytest.mark.parametrize(
    "options",
    [
        {"bootstrap.server": "a:1"},
        {"bootstrap_servers": "a"},
        {"bootstrap_servers": ""},
        {"acks": "2"},
        {"linger_ms": -1},
        {"batch_size": "big"},
        {"batch_size": True},
        {"compression_type": "rar"},
        {"security_protocol": "SASL_SSL"},
        {"ssl_cafile": "/ca.pem"},
        {"security_protocol": "SSL", "ssl_cafile": "/a", "ssl.truststore.location": "/b"},
        {"security_protocol": "SSL", "ssl_keyfile": "/key.pem"},
        {"enable_idempotence": True, "acks": 1},
        {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
        {"enable_idempotence": "maybe"},
        {"enable_idempotence": False, "transactional_id": "x"},
        {"enable.idempotence": "false", "transactional.id": "x"},
        {"delivery_timeout_ms": 10},
    ],
)
def test_bad_producer_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        resolve_producer(options)


def test_conflicting_acks_switch_default_idempotence_off() -> None:
    assert resolve_producer({"acks": "1"})["enable_idempotence"] is False


def test_consumer_options() -> None:
    config = resolve_consumer({"partition.assignment.strategy": "range, sticky"})
    assert config["partition_assignment_strategy"] == ["range", "sticky"]
    for bad in ({"group_id": ""}, {"auto_offset_reset": "never"}, {"heartbeat_interval_ms": 50_000}, {"nonsense": 1}):
        with pytest.raises(ConfigError):
            resolve_consumer(bad)
    with pytest.raises(ConfigError):
        resolve_admin({"linger_ms": 1})


# --- partitioning ---


def test_keys_land_where_java_puts_them() -> None:
    """Hashes of Kafka's own UtilsTest."""
    for key, java_hash in {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}.items():
        assert partition_for_key(key, 1_000_003) == (java_hash & 0x7FFFFFFF) % 1_000_003


def test_records_without_a_key_stick_until_a_batch_is_full() -> None:
    partitioner = DefaultPartitioner(SeededRandom(1), 1000)
    chosen = []
    for _ in range(400):
        partition = partitioner.partition("t", None, 4, [0, 1, 3])
        chosen.append(partition)
        partitioner.appended("t", partition, 100, False)
    assert set(chosen) == {0, 1, 3}
    runs = [chosen[n : n + 20] for n in range(0, 400, 20)]
    assert all(len(set(run)) == 1 for run in runs)


def test_busy_partitions_are_drawn_less_often() -> None:
    partitioner = DefaultPartitioner(SeededRandom(1), 1, load=lambda _, partition: 9 if partition == 0 else 0)
    drawn = [0, 0]
    for _ in range(500):
        partition = partitioner.partition("t", None, 2, [0, 1])
        drawn[partition] += 1
        partitioner.appended("t", partition, 1, True)
    assert drawn[0] < drawn[1] / 3


def test_consistent_partitioner_puts_keys_where_librdkafka_does() -> None:
    """Partitions that librdkafka 2.15 chose among seven with `consistent_random`."""
    partitioner = ConsistentPartitioner(SeededRandom(1))
    chosen = {b"21": 6, b"foobar": 6, b"\xff\x00": 0, b"customer-00007": 1, b"a-little-bit-long-string": 3}
    assert {key: partitioner.partition("t", key, 7, []) for key in chosen} == chosen


@pytest.mark.parametrize("key", [None, b""])
def test_consistent_partitioner_changes_with_full_batches_without_a_key(key: bytes | None) -> None:
    partitioner = ConsistentPartitioner(SeededRandom(1))
    seen = set()
    for _ in range(100):
        first = partitioner.partition("t", key, 4, [0, 1, 3])
        partitioner.appended("t", first, 100, False)
        assert partitioner.partition("t", key, 4, [0, 1, 3]) == first
        partitioner.appended("t", first, 100, True)
        seen.add(first)
    assert seen == {0, 1, 3}
    partitioner.partition("t", key, 4, [3])
    assert partitioner.partition("t", key, 2, [1]) == 1


def test_round_robin_takes_turns_over_available_partitions() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("t", b"k", 3, [0, 2]) for _ in range(4)] == [0, 2, 0, 2]


@given(st.integers(1, 40))
def test_backoff_grows_within_limits(failures: int) -> None:
    seconds = backoff_seconds(failures, 100, 1000, SeededRandom(failures))
    assert 0.08 <= seconds <= 1.2


# --- sequences ---


def batch_of(count: int) -> Batch:
    accumulator = Accumulator(100_000, 1 << 20, 0, None)
    for _ in range(count):
        added = accumulator.append(KEY, 1, None, b"v", b"", lambda: 0.0)
    assert added is not None
    return added[0]


def test_sequences_follow_on_and_only_the_oldest_is_sent_again() -> None:
    sequences = Sequences()
    first, second, third = batch_of(3), batch_of(2), batch_of(1)
    assert not sequences.may_send(first)
    sequences.adopt(ProducerIdentity(9, 0))
    early = batch_of(1)
    assert sequences.may_send(early)
    sequences.assign(early)
    assert not sequences.may_send(first)  # the broker has to know the producer before more than one is under way
    sequences.acknowledged(early, 99)
    for each in (first, second, third):
        assert sequences.may_send(each)
        sequences.assign(each)
    assert [each.base_sequence for each in (first, second, third)] == [1, 4, 6]
    assert sequences.may_send(first)
    assert not sequences.may_send(second)
    sequences.acknowledged(first, 100)
    assert sequences.may_send(second)
    # The third came too early because the second failed: it may be sent again without a new epoch.
    assert sequences.can_retry(third, 45, -1)
    assert not sequences.bump_wanted
    # The second is what the broker must expect: if that is out of order, only a new epoch helps.
    assert sequences.can_retry(second, 45, -1)
    assert sequences.bump_wanted
    sequences.bump_epoch()
    assert [(each.identity.epoch, each.base_sequence) for each in (second, third)] == [(1, 0), (1, 2)]


def test_batches_in_flight_to_two_leaders_stay_within_the_duplicate_window() -> None:
    """Found by the simulator (unclean-84023): what the old leader had was copied to the new one, which got more."""
    sequences = Sequences()
    sequences.adopt(ProducerIdentity(9, 0))
    sequences.resume(KEY, 1)
    sent = [batch_of(1) for _ in range(5)]
    for each in sent:
        assert sequences.may_send(each)
        sequences.assign(each)
    new = batch_of(1)
    assert not sequences.may_send(new)
    assert sequences.may_send(sent[0]), "what is sent again waits for nothing but those before it"
    sequences.acknowledged(sent[0], 1)
    assert sequences.may_send(new)


def test_what_may_be_in_the_log_is_not_renumbered() -> None:
    """Found by the simulator (txn-14): a restarted broker knew the later batch only, and got both again."""
    sequences = Sequences()
    sequences.adopt(ProducerIdentity(9, 0))
    first, second = batch_of(3), batch_of(2)
    for each in (first, second):
        sequences.assign(each)
        each.attempts = 2  # sent, never answered, sent again
    assert sequences.can_retry(first, 45, -1)
    assert not sequences.bump_wanted
    sequences.failed(first, outcome_known=False)  # it expires
    sequences.acknowledged(second, 100)  # a duplicate, as the broker says
    assert sequences.bump_wanted


def test_what_may_still_come_over_an_earlier_connection_is_not_renumbered() -> None:
    """Found by the simulator (all-320009): the batch before had expired, and came late, and so did the first copy."""
    sequences = Sequences()
    sequences.adopt(ProducerIdentity(9, 0))
    expired, repeated = batch_of(3), batch_of(2)
    for each in (expired, repeated):
        sequences.assign(each)
        each.attempts = 1
    sequences.failed(expired, outcome_known=False)
    repeated.attempts = 2
    assert sequences.can_retry(repeated, 45, -1)
    assert not sequences.bump_wanted
    sequences.failed(repeated, outcome_known=False)
    assert sequences.bump_wanted


def test_what_overtakes_a_batch_counts_while_that_has_no_outcome() -> None:
    """Found by the simulator (handover-600111): five that came to the next leader while the first was with the one
    before had that leader forget the first, which it had copied: repeated, it was out of order.
    """
    sequences = Sequences()
    sequences.adopt(ProducerIdentity(9, 0))
    sequences.resume(KEY, 1)
    batches = [batch_of(1) for _ in range(7)]
    for each in batches[:2]:
        sequences.assign(each)
    sequences.acknowledged(batches[0], 0)
    for at in range(2, 6):
        assert sequences.may_send(batches[at])
        sequences.assign(batches[at])
        sequences.acknowledged(batches[at], at)
    assert not sequences.may_send(batches[6])
    sequences.acknowledged(batches[1], 1)
    assert sequences.may_send(batches[6])


def test_numbers_are_patched_into_encoded_batches() -> None:
    sequences = Sequences()
    sequences.adopt(ProducerIdentity(9, 0))
    batch = batch_of(2)
    sequences.assign(batch)
    batch.encode()
    sequences.failed(batch_of(1), outcome_known=True)
    sequences._to_renumber.add(KEY)
    sequences.bump_epoch()
    header = parse_header(batch.encode())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 0)


def test_a_batch_of_unknown_fate_holds_new_ones_until_it_is_clear() -> None:
    sequences = Sequences()
    sequences.adopt(ProducerIdentity(9, 0))
    lost, flying = batch_of(2), batch_of(3)
    sequences.assign(lost)
    sequences.assign(flying)
    sequences.failed(lost, outcome_known=False)
    assert not sequences.may_send(batch_of(1))
    sequences.acknowledged(flying, 10)  # the broker took what came after, so it has taken the lost one too
    assert not sequences.bump_wanted or sequences.may_send(batch_of(1))


def test_sequences_that_have_wrapped_count_as_later() -> None:
    sequences = Sequences()
    sequences.adopt(ProducerIdentity(1, 0))
    sequences.resume(KEY, 0x7FFFFFFE)
    before, first, second = (batch_of(2), batch_of(2), batch_of(2))
    for number, each in enumerate((before, first, second)):
        sequences.assign(each)
        if number < 2:
            sequences.acknowledged(each, number)
    assert (first.base_sequence, second.base_sequence) == (0, 2)
    # It was refused as out of order although all before it is in the log: only another epoch helps.
    second.attempts = 1
    assert sequences.can_retry(second, 45, -1)
    assert sequences.bump_wanted


def test_the_last_epoch_asks_for_a_new_id() -> None:
    sequences = Sequences()
    sequences.adopt(ProducerIdentity(9, MAX_EPOCH))
    sequences.bump_epoch()
    assert sequences.needs_identity


# --- fetch sessions ---


def test_a_session_sends_changes_only() -> None:
    session = FetchSession()
    a, b, c = (TopicPartition("t", n) for n in range(3))

    def target(offset: int) -> FetchTarget:
        return FetchTarget(offset, 100, 0, b"\1" * 16)

    plan = session.plan({a: target(0), b: target(0)}, with_ids=True)
    assert (plan.session_id, plan.session_epoch, set(plan.targets)) == (0, 0, {a, b})
    session.answered(77)
    plan = session.plan({a: target(5), b: target(0), c: target(1)}, with_ids=True)
    assert (plan.session_id, plan.session_epoch, set(plan.targets), plan.forgotten) == (77, 1, {a, c}, [])
    session.answered(77)
    plan = session.plan({a: target(5)}, with_ids=True)
    assert (plan.session_epoch, dict(plan.targets)) == (2, {})
    assert {key for key, _ in plan.forgotten} == {b, c}
    session.failed(unknown_session=False)
    assert session.plan({a: target(5)}, with_ids=True)[:2] == (77, 0)
    session.failed(unknown_session=True)
    assert session.plan({a: target(5)}, with_ids=True)[:2] == (0, 0)
    session.answered(0)
    assert session.plan({a: target(5)}, with_ids=False)[:2] == (0, 0)


# --- buffered batches ---


def transactional(offset: int, producer_id: int, values: list[bytes], control: int | None = None) -> bytes:
    fields = BatchFields(offset, 0, producer_id, 0, 0, is_transactional=True, is_control=control is not None)
    if control is not None:
        key = (0).to_bytes(2, "big") + control.to_bytes(2, "big")
        return bytes(encode_batch([(1, key, b"\0\0\0\0\0\0", ())], fields))
    return bytes(encode_batch([(1, None, each, ()) for each in values], fields))


def test_read_committed_leaves_out_aborted_records_and_markers() -> None:
    data = b"".join(
        [
            transactional(0, 1, [b"a", b"b"]),
            transactional(2, 2, [b"x"]),
            transactional(3, 1, [], control=1),
            transactional(4, 2, [], control=0),
            transactional(5, 2, [b"c"]),
        ]
    )
    reader = RecordReader(check_crcs=True, key_deserializer=None, value_deserializer=None)

    def read(aborted: list[AbortedTransaction] | None) -> tuple[list[Any], int]:
        state = PartitionState(TopicPartition("t", 0))
        state.seek(1)
        state.chunks.append(Chunk(memoryview(data), aborted, 1))
        state.fetch_offset = state.chunks[0].next_offset
        values = []
        while records := state.take(10, reader):
            values += [each.value for each in records]
        return values, state.position

    assert read([AbortedTransaction(2, 2)]) == ([b"b", b"c"], 6)
    assert read(None) == ([b"b", b"x", b"c"], 6)


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    whole = transactional(0, 1, [b"a", b"b"])
    chunk = Chunk(memoryview(whole + whole[:40]), None, 0)
    assert chunk.next_offset == 2
    assert not Chunk(memoryview(whole[:40]), None, 7)


# --- metadata ---


def answer(epoch: int, leader: int, topic_id: bytes = b"\1" * 16, error: int = 0) -> MetadataResponse:
    partitions = [MetadataResponsePartition(0, 0, leader, epoch, [1, 2], [1], [])]
    brokers = [MetadataResponseBroker(n, "h", n) for n in (1, 2)]
    topics = [MetadataResponseTopic(error, "t", topic_id, False, partitions)]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=topics)


def test_old_leader_epochs_do_not_replace_new_ones() -> None:
    cache = MetadataCache()
    cache.update(answer(5, 1), 0.0, asked=["t"])
    cache.update(answer(4, 2), 1.0, asked=["t"])
    assert (cache.leader("t", 0), cache.leader_epoch("t", 0)) == (1, 5)
    assert cache.update_leader("t", 0, 2, 6)
    assert not cache.update_leader("t", 0, 1, 6)
    assert cache.leader("t", 0) == 2
    # A recreated topic starts afresh.
    cache.update(answer(0, 1, b"\2" * 16), 2.0, asked=["t"])
    assert (cache.leader("t", 0), cache.names_by_id) == (1, {b"\2" * 16: "t"})
    assert cache.update(answer(0, 1, error=3), 3.0, asked=["t"]) == {"t": 3}
    assert cache.leader("t", 0) == -1


# --- connections ---


WAIT_MS = 60_000
"""Longer than any machine sleeps: these requests are answered, or end with their connection."""


def connect(cluster: FakeCluster, body: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            connection = await open_connection(
                cluster, "fake", 1, client_id="c", setup_timeout_ms=WAIT_MS, request_timeout_ms=WAIT_MS
            )
            await body(connection)
            connection.close()

    asyncio.run(main())


def test_requests_are_pipelined_and_a_lost_connection_fails_them_all() -> None:
    cluster = FakeCluster()

    async def body(connection: Any) -> None:
        futures = [connection.request(MetadataRequest(topics=[]), MetadataResponse, 12, WAIT_MS) for _ in range(5)]
        assert connection.in_flight == 5
        assert len(await asyncio.gather(*futures)) == 5
        cluster.script(ApiKey.METADATA, drop)
        futures = [connection.request(MetadataRequest(topics=[]), MetadataResponse, 12, WAIT_MS) for _ in range(3)]
        for each in futures:
            with pytest.raises(Disconnected):
                await each
        with pytest.raises(Disconnected):
            await connection.request(MetadataRequest(topics=[]), MetadataResponse, 12, WAIT_MS)

    connect(cluster, body)


def test_a_request_without_answer_times_out() -> None:
    cluster = FakeCluster()
    cluster.script(ApiKey.METADATA, silent)

    async def body(connection: Any) -> None:
        with pytest.raises(RequestTimedOut):
            await connection.request(MetadataRequest(topics=[]), MetadataResponse, 12, 20)

    connect(cluster, body)


def test_versions_without_overlap_are_rejected() -> None:
    cluster = FakeCluster()
    cluster.max_versions = {ApiKey.METADATA: 3}

    async def body(connection: Any) -> None:
        assert connection.version_of(MetadataRequest) == 3
        del connection.versions[ApiKey.METADATA]
        with pytest.raises(UnsupportedByBroker):
            connection.version_of(MetadataRequest)

    connect(cluster, body)


def test_api_versions_falls_back_when_its_own_version_is_unknown() -> None:
    cluster = FakeCluster()

    async def body(connection: Any) -> None:
        assert [version for _, key, version, _ in cluster.requests if key == ApiKey.API_VERSIONS] == [4, 2]
        assert ApiKey.PRODUCE in connection.versions

    class Refusal:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def encode(self, out: bytearray, version: int) -> None:
            self.inner.encode(out, 0)

    def refuse_once(broker: Any, request: Any, version: int, proper: Any) -> Any:
        response = proper()
        response.error_code = 35
        response.api_keys = [each for each in response.api_keys if each.api_key == 18]
        response.api_keys[0].max_version = 2
        return Refusal(response)

    cluster.script(ApiKey.API_VERSIONS, refuse_once)
    connect(cluster, body)
