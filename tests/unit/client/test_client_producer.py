"""The producer against a scripted cluster: retries, order, duplicates, leader moves, limits."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from odradek.client.errors import (
    BufferExhausted,
    ClientClosed,
    DeliveryTimedOut,
    Disconnected,
    IllegalState,
    UnsupportedByBroker,
)
from odradek.client.model import RecordMetadata
from odradek.client.producer.accumulator import Delivery
from odradek.client.producer.partitioners import partition_for_key
from odradek.client.producer.producer import Producer
from odradek.client.producer.sender import Sender
from odradek.records.builder import encode_batch
from odradek.records.headers import LazyHeaders
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.client.fake_cluster import (
    OPTIONS,
    FakeCluster,
    drop,
    fail_produce,
    lose_answer,
    pass_on,
    silent,
)

pytestmark = pytest.mark.usefixtures("each_loop")

Body = Callable[[Producer], Coroutine[Any, Any, None]]


def run(cluster: FakeCluster, body: Body, **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            given = {**OPTIONS, "linger_ms": 0, **options}
            async with Producer(network=cluster, **given) as producer:  # type: ignore[arg-type]
                await body(producer)

    asyncio.run(main())


async def send_all(producer: Producer, count: int, *, turns: bool = True) -> list[bytes]:
    """Send numbered records, in many batches when the loop turns in between."""
    sent = []
    for number in range(count):
        value = b"%d" % number
        await producer.send("t", value)
        sent.append(value)
        if turns and number % 3 == 0:
            await asyncio.sleep(0)
    return sent


def test_delivery_reports_where_the_record_lies() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        first = await producer.send("t", b"a", key=b"k", headers=[("h", b"1")], timestamp_ms=7)
        second = await producer.send("t", b"b", timestamp_ms=8)
        assert await first == RecordMetadata("t", 0, 0, 7)
        assert (await second).offset == 1
        assert await first == first.result()
        record = cluster.logs["t", 0][0]
        assert (record.key, record.value, list(record.headers), record.timestamp) == (b"k", b"a", [("h", b"1")], 7)

    run(cluster, body)


@pytest.mark.parametrize("failure", [drop, lose_answer, fail_produce(7), fail_produce(6), fail_produce(3)])
def test_failures_neither_lose_nor_repeat_nor_reorder(failure: Any) -> None:
    cluster = FakeCluster()
    cluster.script(ApiKey.PRODUCE, pass_on, failure, pass_on, failure, failure)

    async def body(producer: Producer) -> None:
        sent = await send_all(producer, 60)
        await producer.flush()
        assert cluster.values() == sent

    run(cluster, body, batch_size=80)
    assert cluster.count(ApiKey.PRODUCE) > 5


def test_a_first_batch_that_is_rejected_stays_the_first() -> None:
    """The broker would take a later batch as the first one of a producer that it does not know."""
    cluster = FakeCluster()
    cluster.script(ApiKey.PRODUCE, fail_produce(3), fail_produce(6))

    async def body(producer: Producer) -> None:
        sent = await send_all(producer, 60)
        await producer.flush()
        assert cluster.values() == sent

    run(cluster, body, batch_size=80)


def test_leader_moves_and_the_old_one_dies() -> None:
    cluster = FakeCluster(brokers=2, topics={"t": 1})

    async def body(producer: Producer) -> None:
        sent = await send_all(producer, 30)
        cluster.move_leader("t", 0, 2)
        sent += await send_all(producer, 30)
        cluster.move_leader("t", 0, 1)
        cluster.stop(2)
        sent += await send_all(producer, 30)
        await producer.flush()
        assert cluster.values() == sent

    run(cluster, body)


def test_metadata_in_a_produce_answer_is_used_at_once() -> None:
    """KIP-951: NOT_LEADER_OR_FOLLOWER names the new leader, so no Metadata request is needed to continue."""
    cluster = FakeCluster(brokers=2, topics={"t": 1})

    def moved(broker: Any, request: Any, version: int, proper: Any) -> Any:
        cluster.move_leader("t", 0, 2)
        response = proper()
        answer = response.responses[0].partition_responses[0]
        answer.current_leader.leader_id, answer.current_leader.leader_epoch = 2, 1
        return response

    async def body(producer: Producer) -> None:
        await (await producer.send("t", b"a"))
        asked = cluster.count(ApiKey.METADATA)
        cluster.script(ApiKey.PRODUCE, moved)
        assert (await (await producer.send("t", b"b"))).offset == 1
        assert cluster.count(ApiKey.METADATA) == asked

    run(cluster, body)


def test_unknown_producer_bumps_the_epoch_and_continues() -> None:
    """KIP-360: retention took the producer's state; the batch is sent again under the next epoch, from sequence 0."""
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await (await producer.send("t", b"a"))
        cluster.log_start["t", 0] = 1
        cluster.script(ApiKey.PRODUCE, fail_produce(59, log_start_offset=1))
        await (await producer.send("t", b"b"))
        assert producer.sender.sequences is not None
        assert producer.sender.sequences.identity.epoch == 1
        assert cluster.values() == [b"a", b"b"]

    run(cluster, body)


def test_batch_rejected_without_retries_does_not_block_the_next() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await (await producer.send("t", b"a"))
        cluster.script(ApiKey.PRODUCE, fail_produce(87))
        bad = await producer.send("t", b"bad")
        with pytest.raises(KafkaError) as caught:
            await bad
        assert caught.value.code == ErrorCode.INVALID_RECORD
        await (await producer.send("t", b"b"))
        assert cluster.values() == [b"a", b"b"]

    run(cluster, body)


def written_but(code: int) -> Any:
    """The batch is in the log, and the answer is this error."""

    def handler(broker: Any, request: Any, version: int, proper: Callable[[], Any]) -> Any:
        proper()
        return fail_produce(code)(broker, request, version, proper)

    return handler


def unanswered(broker: Any, request: Any, version: int, proper: Callable[[], Any]) -> None:
    proper()


def lose_answer_while_the_loop_stalls(broker: Any, request: Any, version: int, proper: Callable[[], Any]) -> Any:
    """The loop stands still for longer than a backoff before the client learns of the end of the connection."""
    asyncio.get_running_loop().call_soon(time.sleep, 0.005)
    return lose_answer(broker, request, version, proper)


@pytest.mark.parametrize("lose", [lose_answer, lose_answer_while_the_loop_stalls])
@pytest.mark.parametrize(
    "attempts",
    [
        (unanswered, fail_produce(19)),
        (unanswered, fail_produce(87)),
        *((written_but(code), fail_produce(19)) for code in (3, 6, 7, 20, 56)),
        (written_but(-1),),
    ],
)
def test_a_batch_is_not_renumbered_after_one_that_may_be_written(attempts: tuple[Any, ...], lose: Any) -> None:
    """The first batch is refused in the end; the second was written behind it, only its answer was lost."""
    cluster = FakeCluster()
    cluster.script(ApiKey.PRODUCE, pass_on, attempts[0], lose, *attempts[1:])

    async def body(producer: Producer) -> None:
        await (await producer.send("t", b"a" * 60))
        first = await producer.send("t", b"b" * 60)
        second = await producer.send("t", b"c" * 60)
        with pytest.raises(KafkaError):
            await first
        await second
        await (await producer.send("t", b"d" * 60))
        assert cluster.values() == [letter * 60 for letter in (b"a", b"b", b"c", b"d")]

    run(cluster, body, batch_size=80, retries=1)


def test_two_batches_rejected_without_retries_do_not_block_the_third() -> None:
    """The second and the third are early at first, which says as well that they were not written."""
    cluster = FakeCluster()
    cluster.script(ApiKey.PRODUCE, pass_on, fail_produce(87), pass_on, pass_on, fail_produce(87))

    async def body(producer: Producer) -> None:
        await (await producer.send("t", b"a" * 60))
        deliveries = [await producer.send("t", letter * 60) for letter in (b"b", b"c", b"d")]
        for bad in deliveries[:2]:
            with pytest.raises(KafkaError):
                await bad
        await deliveries[2]
        assert cluster.values() == [b"a" * 60, b"d" * 60]

    run(cluster, body, batch_size=80)


def test_a_batch_that_the_broker_has_no_version_for_holds_no_other_up() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await (await producer.send("t", b"a"))
        cluster.max_versions[ApiKey.PRODUCE] = 1
        cluster.script(ApiKey.PRODUCE, drop)
        bad = await producer.send("t", b"bad")
        with pytest.raises(UnsupportedByBroker):
            await bad
        sequences = producer.sender.sequences
        assert sequences is not None
        assert sequences.in_flight("t", 0) == 0

    run(cluster, body)


def test_flush_raises_errors_that_were_not_awaited() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        cluster.script(ApiKey.PRODUCE, fail_produce(87))
        await producer.send("t", b"bad")
        with pytest.raises(KafkaError):
            await producer.flush()
        await producer.flush()

    run(cluster, body)


def test_headers_of_a_consumed_record_can_be_sent_again() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        headers = LazyHeaders(bytes([4, 2]) + b"a" + bytes([2]) + b"x" + bytes([2]) + b"b" + bytes([1]))
        assert list(headers) == [("a", b"x"), ("b", None)]
        await producer.send_and_wait("t", b"value", headers=headers)
        with pytest.raises(TypeError, match="expected a list"):
            await producer.send("t", b"value", headers="ab")  # type: ignore[arg-type]

    run(cluster, body)


def test_flush_reports_how_many_records_wait() -> None:
    """A batch that is divided: the number falls to 0, and no record is counted twice."""
    cluster = FakeCluster()
    cluster.max_batch_bytes = 700

    async def body(producer: Producer) -> None:
        for number in range(40):
            await producer.send("t", b"%03d" % number + bytes(97))
        seen: list[int] = []
        await producer.flush(on_progress=seen.append)
        assert seen[0] == 40
        assert seen[-1] == 0
        assert len(seen) > 2
        assert seen == sorted(set(seen), reverse=True)
        seen.clear()
        await producer.flush(on_progress=seen.append)
        assert seen == [0]

    run(cluster, body, linger_ms=20, batch_size=100_000)


def test_too_large_batches_are_split_and_deliveries_follow() -> None:
    cluster = FakeCluster()
    cluster.max_batch_bytes = 700

    async def body(producer: Producer) -> None:
        sent = [b"%03d" % n + bytes(97) for n in range(40)]
        deliveries = [await producer.send("t", each) for each in sent]
        assert [(await each).offset for each in deliveries] == list(range(40))
        assert cluster.values() == sent
        lonely = await producer.send("t", bytes(900))
        with pytest.raises(KafkaError) as caught:
            await lonely
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await (await producer.send("t", b"after"))).offset == 40

    run(cluster, body, linger_ms=20, batch_size=100_000)


def test_records_beyond_max_request_size_are_rejected_at_once() -> None:
    async def body(producer: Producer) -> None:
        with pytest.raises(KafkaError) as caught:
            await producer.send("t", bytes(2000))
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE

    run(FakeCluster(), body, max_request_size=1500)


def test_delivery_timeout() -> None:
    cluster = FakeCluster()
    cluster.stop(1)

    async def body(producer: Producer) -> None:
        delivery = await producer.send("t", b"late")
        cluster.stop(1)
        with pytest.raises(DeliveryTimedOut):
            await delivery

    cluster.brokers[1].up = True
    cluster.script(ApiKey.PRODUCE, *[silent] * 3)
    run(cluster, body, delivery_timeout_ms=60, request_timeout_ms=40)


def test_only_record_times_out_when_the_broker_does_not_answer() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"first")
        cluster.script(ApiKey.PRODUCE, *[silent] * 3)
        with pytest.raises(DeliveryTimedOut):
            await producer.send_and_wait("t", b"late")
        cluster.scripts[ApiKey.PRODUCE].clear()
        assert (await producer.send_and_wait("t", b"again")).partition == 0

    run(cluster, body, delivery_timeout_ms=60, request_timeout_ms=40)


def test_only_record_finds_the_leader_again_that_its_broker_no_longer_is() -> None:
    cluster = FakeCluster(brokers=2)

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"first", partition=0)
        leader = cluster.leaders["t", 0]
        cluster.move_leader("t", 0, 3 - leader)
        await producer.send_and_wait("t", b"second", partition=0)
        assert cluster.values() == [b"first", b"second"]

    run(cluster, body)


def test_memory_is_bounded_and_comes_back() -> None:
    cluster = FakeCluster()
    cluster.script(ApiKey.PRODUCE, silent)

    async def body(producer: Producer) -> None:
        first = await producer.send("t", bytes(500))
        # Only these calls are to have too little time, and nothing is answered before the connection ends.
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(producer.config, "max_block_ms", 30)
            with pytest.raises(BufferExhausted):
                await asyncio.gather(*(producer.send("t", bytes(500)) for _ in range(10)))
        while cluster.scripts[ApiKey.PRODUCE]:
            await asyncio.sleep(0)
        for stream in list(cluster.brokers[1].streams):
            stream.end()
        await asyncio.wait({asyncio.ensure_future(_outcome(first))})
        await (await producer.send("t", b"again"))

    run(cluster, body, buffer_memory=2000, batch_size=600)


async def _outcome(delivery: Any) -> Any:
    return await delivery


def test_acks_0_and_old_brokers() -> None:
    cluster = FakeCluster()
    cluster.max_versions = {ApiKey.PRODUCE: 7, ApiKey.METADATA: 4, ApiKey.API_VERSIONS: 0}

    async def body(producer: Producer) -> None:
        delivery = await producer.send("t", b"a")
        assert (await delivery).offset == -1
        await producer.cluster.refresh_metadata()  # a later request on the same connection
        assert cluster.values() == [b"a"]
        assert {version for _, key, version, _ in cluster.requests if key == ApiKey.PRODUCE} == {7}

    run(cluster, body, acks=0)


def test_linger_joins_records_of_many_tasks() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        deliveries = [await producer.send("t", b"x") for _ in range(50)]
        for each in deliveries:
            await each
            await asyncio.sleep(0)
        assert len(cluster.batches["t", 0]) == 1

    run(cluster, body, linger_ms=30)


def test_unknown_topic_and_partition() -> None:
    async def body(producer: Producer) -> None:
        with pytest.raises(KafkaError) as caught:
            await producer.send("t", b"x", partition=3)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(producer.config, "max_block_ms", 50)
            with pytest.raises(TimeoutError):
                await producer.send("nowhere", b"x")

    run(FakeCluster(), body)


def test_interceptors_and_serializers() -> None:
    cluster = FakeCluster()
    heard: list[Any] = []

    class Upper:
        def on_send(self, topic: str, key: Any, value: Any, headers: Any) -> Any:
            return key, value.upper(), headers

    class Ear:
        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            heard.append((metadata.offset if metadata else None, error))

    async def main() -> None:
        producer = Producer(
            network=cluster,
            value_serializer=lambda _, each: str(each).encode(),
            interceptors=[Upper(), Ear()],  # type: ignore[list-item]
            **OPTIONS,
        )
        async with producer:
            await producer.send("t", "abc")
            await producer.send("t", "def")
        assert cluster.values() == [b"ABC", b"DEF"]
        assert heard == [(0, None), (1, None)]

    asyncio.run(main())


def test_ready_made_batches_get_their_sequence() -> None:
    from odradek.records.builder import encode_batch

    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.send("t", b"a", partition=0)
        made = [encode_batch([(5, None, b"b%d" % n, ())]) for n in range(3)]
        deliveries = await producer.send_batch("t", 0, made)
        await producer.send("t", b"c", partition=0)
        assert [(await each).offset for each in deliveries] == [1, 2, 3]
        await producer.flush()
        assert cluster.values() == [b"a", b"b0", b"b1", b"b2", b"c"]

    run(cluster, body)


def test_closed_and_not_started() -> None:
    async def main() -> None:
        producer = Producer(network=FakeCluster(), **OPTIONS)
        with pytest.raises(IllegalState):
            await producer.send("t", b"x")
        await producer.start()
        await producer.close()
        with pytest.raises(ClientClosed):
            await producer.send("t", b"x")

    asyncio.run(main())


def test_an_answer_counts_although_the_topic_was_forgotten_meanwhile() -> None:
    """A broker that did not know the topic yet made the client forget it."""
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.partitions_for("t")

        def forgotten(broker: Any, request: Any, version: int, proper: Any) -> Any:
            producer.cluster.metadata._forget("t")
            return proper()

        cluster.script(ApiKey.PRODUCE, forgotten)
        delivery = await producer.send("t", b"once")
        assert (await delivery).offset == 0

    run(cluster, body, enable_idempotence=False)
    assert cluster.values() == [b"once"]


def test_an_interceptor_that_fails_costs_no_record_its_outcome() -> None:
    cluster = FakeCluster(topics={"t": 3})
    complaints: list[Any] = []

    class Failing:
        def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
            raise ZeroDivisionError

    async def body() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["exception"]))
        given: dict[str, Any] = {**OPTIONS, "linger_ms": 0, "delivery_timeout_ms": 60_000}
        async with asyncio.timeout(60), Producer(network=cluster, interceptors=[Failing()], **given) as producer:
            await producer.partitions_for("t")
            deliveries = [await producer.send("t", b"%d" % n, partition=n) for n in range(3)]
            for each in deliveries:
                assert (await each).offset == 0
            assert producer.sender.requests_in_flight == 0

    asyncio.run(body())
    assert [type(each) for each in complaints] == [ZeroDivisionError] * 3


def test_idle_producer_refreshes_metadata() -> None:
    """Else the first record after a pause goes to the partition that its key had before the topic grew."""
    cluster = FakeCluster()

    async def body() -> None:
        async with asyncio.timeout(30), Producer(network=cluster, metadata_max_age_ms=20, **OPTIONS) as producer:
            await producer.send_and_wait("t", b"one", key=b"k")
            before = cluster.count(ApiKey.METADATA)
            while cluster.count(ApiKey.METADATA) < before + 2:
                await asyncio.sleep(0.01)

    asyncio.run(body())


def test_records_with_and_without_keys_keep_their_order() -> None:
    """Records without a key take a shorter way into their batch than others, explicit timestamps and headers."""
    cluster = FakeCluster(topics={"t": 1})

    async def body(producer: Producer) -> None:
        sent = []
        for number in range(200):
            value = b"%d" % number
            key = b"k" if number % 3 == 0 else None
            headers = [("h", b"x")] if number % 5 == 0 else []
            stamp = 1_000 + number if number % 7 == 0 else None
            await producer.send("t", value, key, headers, None if number % 11 else 0, stamp)
            sent.append((key, value, len(headers)))
        await producer.flush()
        log = cluster.logs["t", 0]
        assert [(each.key, each.value, len(each.headers)) for each in log] == sent
        assert [each.timestamp for each in log][::7] == [1_000 + number for number in range(0, 200, 7)]

    run(cluster, body, batch_size=500, linger_ms=50)


def test_records_without_a_key_avoid_a_partition_that_lost_its_leader() -> None:
    cluster = FakeCluster(topics={"t": 2})

    async def body(producer: Producer) -> None:
        await producer.partitions_for("t")
        first = [await producer.send("t", b"first") for _ in range(3)]
        assert producer._accumulator is not None
        (lost,) = [key[1] for key, queue in producer._accumulator.queues.items() if queue.batches]
        cluster.move_leader("t", lost, -1)
        await producer.cluster.refresh_metadata()
        later = [await producer.send("t", b"%d" % number) for number in range(20)]
        assert {(await each).partition for each in later} == {1 - lost}
        cluster.move_leader("t", lost, 1)
        assert {(await each).partition for each in first} == {lost}

    run(cluster, body, linger_ms=1_000)


def test_sending_to_the_open_batch_ends_with_close() -> None:
    cluster = FakeCluster(topics={"t": 1})

    async def body(producer: Producer) -> None:
        for _ in range(3):
            await producer.send("t", b"x")
        await producer.close()
        with pytest.raises(ClientClosed):
            await producer.send("t", b"late")
        assert len(cluster.logs["t", 0]) == 3

    run(cluster, body, linger_ms=10_000)


def test_records_without_a_key_fill_batches_completely() -> None:
    cluster = FakeCluster(topics={"t": 4})

    async def body(producer: Producer) -> None:
        for _ in range(400):
            await producer.send("t", b"x" * 1_000)
        await producer.flush()
        assert producer.sender.measures.of_topic("t").batches == 400 / 16
        assert sum(map(len, cluster.logs.values())) == 400

    run(cluster, body, linger_ms=60_000, batch_size=16_384)


def test_full_batch_is_sent_without_young_ones() -> None:
    """A request for a batch that is due leaves a batch of a few records to its linger."""
    cluster = FakeCluster(topics={"t": 2})

    async def body(producer: Producer) -> None:
        young = await producer.send("t", b"young", partition=1)
        full = [await producer.send("t", b"x" * 1_000, partition=0) for _ in range(17)]
        await full[0]
        assert not young.done()
        assert not full[-1].done()
        await producer.flush()
        assert (await young).offset == 0
        assert (await full[-1]).offset == 16

    run(cluster, body, linger_ms=60_000, batch_size=16_384)


def test_records_with_keys_go_to_the_partitions_of_their_keys() -> None:
    """Most of them join the open batch of their partition by a shorter way, with headers and timestamps, too."""
    cluster = FakeCluster(topics={"t": 3})
    keys = [b"key-%d" % (number % 17) for number in range(300)]

    async def body(producer: Producer) -> None:
        for number, key in enumerate(keys):
            await producer.send("t", b"%d" % number, key, {"h": b"%d" % number}, timestamp_ms=1_000 + number)
        await producer.flush()

    run(cluster, body, linger_ms=60_000, batch_size=4_000)
    for partition in range(3):
        expected = [number for number, key in enumerate(keys) if partition_for_key(key, 3) == partition]
        log = cluster.logs["t", partition]
        assert [int(bytes(each.value or b"")) for each in log] == expected
        assert [each.timestamp - 1_000 for each in log] == expected
        assert [each.headers[0] for each in log] == [("h", b"%d" % number) for number in expected]


def test_cancelled_wait_for_a_record_leaves_others_waiting() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        delivery = await producer.send("t", b"x")
        first, second = (asyncio.ensure_future(_result(delivery)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).offset == 0
        with pytest.raises(asyncio.CancelledError):
            await first

    run(cluster, body)


def test_unknown_broker_is_asked_for_again_after_the_metadata() -> None:
    """A client that begins again with the bootstrap servers would look its address up 20 times a second."""
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"first")
        leader, connections = producer.cluster.metadata.leader("t", 0), producer.cluster.connections
        connections.rebootstrap(Disconnected("the brokers are forgotten"))
        assert leader not in connections.brokers
        await producer.cluster.pause_after_failed_connection(leader)
        assert leader in connections.brokers

    run(cluster, body)


async def _result(delivery: Delivery) -> RecordMetadata:
    return await delivery


def test_waiting_sends_of_many_tasks_share_batches() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"first")
        before = producer.sender.measures.sends.requests
        places = await asyncio.gather(*(producer.send_and_wait("t", b"%d" % number) for number in range(100)))
        assert sorted(each.offset for each in places) == list(range(1, 101))
        assert producer.sender.measures.sends.requests - before <= 3

    run(cluster, body)


class CoarseLoop(asyncio.SelectorEventLoop):
    """Its time has whole milliseconds, as that of uvloop; `short_timers` counts those for less than 10 ms."""

    short_timers = 0

    def time(self) -> float:
        return int(super().time() * 1000) / 1000

    def call_at(self, when: float, *args: Any, **named: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        self.short_timers += when - self.time() < 0.01
        return super().call_at(when, *args, **named)


def test_lone_record_is_sent_at_once_by_a_loop_with_coarse_time() -> None:
    """By another clock than the loop's, a new batch would have a negative age, and wait for a timer."""
    cluster = FakeCluster()
    loops: list[CoarseLoop] = []

    def new_loop() -> CoarseLoop:
        loops.append(CoarseLoop())
        return loops[0]

    async def main() -> None:
        async with Producer(network=cluster, **{**OPTIONS, "linger_ms": 0}) as producer:  # type: ignore[arg-type]
            await producer.send_and_wait("t", b"first")
            before = loops[0].short_timers
            for _ in range(20):
                await producer.send_and_wait("t", b"value", partition=0)
            assert loops[0].short_timers == before

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("timeout_ms", [0, 60_000])
def test_sender_waits_for_a_leader_that_has_all_requests_it_may(
    monkeypatch: pytest.MonkeyPatch, timeout_ms: int
) -> None:
    """It looks for work with the answer only, unless it is to notice leaders that accept nothing (KIP-794)."""
    cluster = FakeCluster(topics={"t": 1})
    cluster.script(ApiKey.PRODUCE, pass_on, silent)
    runs = 0
    right = Sender._run

    def counted(sender: Sender) -> None:
        nonlocal runs
        runs += 1
        right(sender)

    monkeypatch.setattr(Sender, "_run", counted)

    async def body(producer: Producer) -> None:
        nonlocal runs
        await producer.send_and_wait("t", b"first")
        await producer.send("t", bytes(400))
        while not producer.sender.requests_in_flight:
            await asyncio.sleep(0)
        runs = 0
        for _ in range(50):
            await producer.send("t", bytes(400))
            await asyncio.sleep(0)
        assert runs > 40 if timeout_ms else runs < 5
        assert producer.sender.requests_in_flight == 1
        (node_id,) = cluster.brokers
        for stream in list(cluster.brokers[node_id].streams):
            stream.end()
        await producer.flush()

    run(
        cluster,
        body,
        linger_ms=0,
        batch_size=500,
        max_in_flight_requests_per_connection=1,
        partitioner_availability_timeout_ms=timeout_ms,
    )
    assert len(cluster.values("t", 0)) == 52


class Invents:
    """A partitioner."""

    def partition(self, topic: str, key: bytes | None, partitions: int, available: Sequence[int]) -> int:
        return 7


def test_partition_that_a_partitioner_invents_is_an_error() -> None:
    async def body(producer: Producer) -> None:
        with pytest.raises(ValueError, match="partition 7 of topic t, which has 1"):
            await producer.send("t", b"x", key=b"k")

    run(FakeCluster(), body, partitioner=Invents())


def test_encoded_batch_for_an_absent_partition_is_rejected() -> None:
    async def body(producer: Producer) -> None:
        with pytest.raises(KafkaError, match="t has 1 partitions, not 3"):
            await producer.send_batch("t", 3, [encode_batch([(0, None, b"x", ())])])

    run(FakeCluster(), body)
