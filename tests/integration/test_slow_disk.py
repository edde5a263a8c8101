"""A broker whose disk stalls continues to serve, and acknowledges and returns written records only."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.ports import Ports
from odradek.client.network.connection import Connection, open_connection
from odradek.ports.disk import Bytes, SystemDisk, SystemFile
from odradek.ports.network import TcpNetwork
from odradek.records.builder import encode_batch
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import list_offsets, metadata, produce

TOPIC = "stalls"


class StallingDisk(SystemDisk):
    """Queued writes to the topic's log wait for the gate, and fail with the error if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.failure = 0

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        return StallingFile(self, path, create)


class StallingFile(SystemFile):
    def __init__(self, disk: StallingDisk, path: str, create: bool) -> None:
        plain = SystemDisk.open(disk, path, create=create)
        self._fd, plain._fd = plain._fd, -1
        self._size = plain._size
        self.path = path
        self.disk = disk

    def write_at(self, position: int, data: Bytes) -> None:
        if f"/{TOPIC}-" in self.path and self.path.endswith(".log"):
            assert self.disk.gate.wait(30)
            if self.disk.failure:
                raise OSError(self.disk.failure, "failed", self.path)
        super().write_at(position, data)


@asynccontextmanager
async def serving(directory: Path, disk: StallingDisk, **settings: str) -> AsyncIterator[Broker]:
    broker = Broker(
        BrokerConfig(
            {
                "log.dirs": f"{directory}/a,{directory}/b",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "node.id": "1",
                "odradek.write.inline.max.bytes": "0",
            }
            | settings
        ),
        Ports(disk=disk),
    )
    await broker.start()
    try:
        yield broker
    finally:
        disk.gate.set()
        await broker.stop()


class Client:
    """A connection of its own, so that requests do not wait for each other."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @classmethod
    async def to(cls, broker: Broker) -> Client:
        host, _, port = broker.bootstrap.rpartition(":")
        return cls(
            await open_connection(
                TcpNetwork(), host, int(port), client_id="test", setup_timeout_ms=10_000, request_timeout_ms=30_000
            )
        )

    async def topic(self) -> None:
        """Make sure that it is there and led."""
        request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)])
        while True:
            answer = await self.connection.request(request, metadata.MetadataResponse, 4, 30_000)
            if not answer.topics[0].error_code:
                return

    def produce(self, value: bytes, acks: int) -> asyncio.Future[produce.ProduceResponse]:
        batch = encode_batch([(-1, None, value, ())])
        parts = [produce.ProduceRequestPartition(0, memoryview(batch))]
        request = produce.ProduceRequest(None, acks, 30_000, [produce.ProduceRequestTopic(TOPIC, partition_data=parts)])
        return self.connection.request(request, produce.ProduceResponse, 9, 30_000)

    async def end_offset(self) -> int:
        part = list_offsets.ListOffsetsRequestPartition(0, timestamp=-1)
        request = list_offsets.ListOffsetsRequest(-1, topics=[list_offsets.ListOffsetsRequestTopic(TOPIC, [part])])
        while True:
            answer = await self.connection.request(request, list_offsets.ListOffsetsResponse, 5, 30_000)
            found = answer.topics[0].partitions[0]
            if found.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:  # after a start it is recovered first
                assert found.error_code == 0
                return found.offset


def outcome(answer: produce.ProduceResponse) -> tuple[int, int]:
    """(error, base offset)."""
    found = answer.responses[0].partition_responses[0]
    return found.error_code, found.base_offset


def test_a_stalled_disk_holds_up_only_who_waits_for_it(tmp_path: Path) -> None:
    disk = StallingDisk()

    async def scenario() -> None:
        async with serving(tmp_path, disk) as broker:
            first, second, other = [await Client.to(broker) for _ in range(3)]
            await other.topic()
            assert outcome(await first.produce(b"a", 1)) == (0, 0)
            disk.gate.clear()
            one, every = first.produce(b"b", 1), second.produce(b"c", -1)
            assert await other.end_offset() == 1, "the loop serves, and what is not written is not there"
            assert await other.end_offset() == 1
            assert not one.done()
            assert not every.done()
            disk.gate.set()
            assert {outcome(await one), outcome(await every)} == {(0, 1), (0, 2)}
            assert await other.end_offset() == 3
            for client in (first, second, other):
                client.connection.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("flush", ["9223372036854775807", "1"])
def test_queued_batch_is_answered_as_appended_when_disk_fails(tmp_path: Path, flush: str) -> None:
    """A part of it may be in the file, so a client must not take it for unwritten."""
    disk = StallingDisk()

    async def scenario() -> None:
        async with serving(tmp_path, disk, **{"log.flush.interval.messages": flush}) as broker:
            first, second = [await Client.to(broker) for _ in range(2)]
            await first.topic()
            assert outcome(await first.produce(b"a", -1)) == (0, 0)
            disk.gate.clear()
            disk.failure = errno.ENOSPC
            one, every = first.produce(b"b", 1), second.produce(b"c", -1)
            await asyncio.sleep(0)
            disk.gate.set()
            assert outcome(await one)[0] == outcome(await every)[0] == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            assert outcome(await first.produce(b"d", 1))[0] == ErrorCode.KAFKA_STORAGE_ERROR
            first.connection.close()
            second.connection.close()
        disk.failure = 0
        async with serving(tmp_path, disk) as broker:
            client = await Client.to(broker)
            assert await client.end_offset() == 1, "what was acknowledged is there, and nothing else"
            client.connection.close()

    asyncio.run(scenario())
