"""The blocking face: coroutines run for threads, clients closed in order, errors and timeouts handed over."""

import asyncio
import threading

import pytest

from odradek.client.blocking import Blocking, shared
from odradek.client.consumer import Consumer
from odradek.client.errors import ClientClosed
from odradek.client.model import ConsumerRecord, TopicPartition
from odradek.client.producer import Producer
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster


def test_threads_share_one_producer_and_iterate_a_consumer() -> None:
    cluster = FakeCluster()
    with Blocking() as blocking:
        producer = blocking.open(Producer(network=cluster, **OPTIONS))

        def work(number: int) -> None:
            for _ in range(20):
                blocking.run(producer.send("t", b"%d" % number))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        blocking.run(producer.flush())
        assert sorted(cluster.values()) == sorted(b"%d" % number for number in range(4) for _ in range(20))
        consumer = blocking.open(
            Consumer(network=cluster, auto_offset_reset="earliest", fetch_max_wait_ms=5, **OPTIONS)
        )
        blocking.call(consumer.assign, [TopicPartition("t", 0)])
        found: list[ConsumerRecord] = []
        while len(found) < 80:
            # On a busy machine none may have come yet when the time is over.
            found += blocking.iterate(consumer, idle_timeout_s=0.1)
        assert len(found) == 80


def test_one_client_may_be_closed_before_the_others() -> None:
    with Blocking() as blocking:
        first, second = (blocking.open(Producer(network=FakeCluster(), **OPTIONS)) for _ in range(2))
        blocking.close_client(first)
        with pytest.raises(ClientClosed):
            blocking.run(first.send("t", b"1"))
        blocking.run(second.send("t", b"1"))


def test_errors_and_timeouts_reach_the_caller() -> None:
    async def fails() -> None:
        raise LookupError("here")

    with Blocking() as blocking:
        with pytest.raises(LookupError):
            blocking.run(fails())
        with pytest.raises(TimeoutError):
            blocking.run(asyncio.Event().wait(), timeout_s=0.01)


def test_the_shared_one_is_one() -> None:
    assert shared() is shared()
