"""Large messages by claim check: the payload goes to a store, the record carries its name, size and hash.

Brokers reject records above `message.max.bytes`, and are at their best with small ones. The payload is written before
the record, so that a record never names a payload that is not there. A folder stands for an object store: write, read
and delete are all it needs. Delete payloads later than the topic deletes its records (`retention.ms`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest

from odradek.client import Consumer, ConsumerRecord, KafkaError, Producer
from odradek.testing import BlockingBroker

Claim = ConsumerRecord[bytes | None, bytes]


class PayloadStore:
    """Payloads by the hash of their content: writing one twice is harmless."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, payload: bytes) -> str:
        """Store a payload durably and return its name."""
        name = hashlib.sha256(payload).hexdigest()
        path = self._folder / name
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}.part")
            with part.open("wb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)  # a reader sees all of it, or nothing
        return name

    def read(self, name: str) -> bytes:
        """The payload. Raises OSError if it is not there, ValueError if it is not what was written."""
        payload = (self._folder / name).read_bytes()
        if hashlib.sha256(payload).hexdigest() != name:
            raise ValueError(f"payload {name} is damaged")
        return payload


async def send_large(producer: Producer[bytes, bytes], store: PayloadStore, topic: str, payload: bytes) -> None:
    """Store the payload, then send its claim. Small payloads are better sent as they are."""
    name = await asyncio.to_thread(store.write, payload)
    await producer.send_and_wait(topic, json.dumps({"payload": name, "bytes": len(payload)}).encode())


async def redeem(store: PayloadStore, record: Claim) -> bytes:
    """The payload of a record. Raises as `PayloadStore.read`."""
    return await asyncio.to_thread(store.read, json.loads(record.value)["payload"])


LARGE = os.urandom(3_000_000)


async def send_and_receive(servers: str, topic: str, sent_to: PayloadStore, read_from: PayloadStore) -> bytes:
    async with Producer(bootstrap_servers=servers) as producer:
        await send_large(producer, sent_to, topic, LARGE)
    async with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        while not (records := await consumer.poll(timeout_ms=10_000)):
            pass
        return await redeem(read_from, records[0])


def test_payload_larger_than_a_record_arrives(kafka_broker: BlockingBroker, kafka_topic: str, tmp_path: Path) -> None:
    async def send_as_it_is() -> None:
        async with Producer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
            await producer.send_and_wait(kafka_topic, LARGE)

    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        asyncio.run(send_as_it_is())
    store = PayloadStore(tmp_path)
    servers = kafka_broker.bootstrap_servers
    assert asyncio.run(send_and_receive(servers, kafka_topic, store, store)) == LARGE


def test_damaged_payload_is_not_returned(kafka_broker: BlockingBroker, kafka_topic: str, tmp_path: Path) -> None:
    store = PayloadStore(tmp_path)

    class Damaged(PayloadStore):
        def read(self, name: str) -> bytes:
            (tmp_path / name).write_bytes(LARGE[:-1])
            return super().read(name)

    with pytest.raises(ValueError, match="is damaged"):
        asyncio.run(send_and_receive(kafka_broker.bootstrap_servers, kafka_topic, store, Damaged(tmp_path)))
