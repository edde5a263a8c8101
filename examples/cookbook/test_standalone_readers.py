"""Readers without a group: each has its share of the partitions by its number, and keeps its own place.

Nothing rebalances: a reader that stops leaves its partitions unread until it is back, and no other one is disturbed. It
suits a fixed number of processes with state of their own, such as the pods of a StatefulSet, whose ordinal is the
number. Offsets are in a file beside the state here; they could as well be committed to a group's name.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

from odradek.client import BlockingProducer, Consumer, TopicPartition
from odradek.testing import BlockingBroker


def load(file: Path) -> dict[int, int]:
    """Offsets by partition."""
    return {int(number): at for number, at in json.loads(file.read_text()).items()} if file.exists() else {}


def save(file: Path, offsets: dict[int, int]) -> None:
    """Replace the file at once: a crash leaves the former one."""
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(offsets))
    os.replace(draft, file)


async def read(servers: str, topic: str, share: tuple[int, int], file: Path, handle: Callable[[bytes], bool]) -> None:
    """Read the partitions of share (number, of how many) until `handle` returns False."""
    number, readers = share
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        found = await consumer.partitions_for(topic)
        mine = [TopicPartition(topic, each.partition) for each in found if each.partition % readers == number]
        consumer.assign(mine)
        offsets = load(file)
        for partition in mine:
            if partition.partition in offsets:
                consumer.seek(partition, offsets[partition.partition])
        while True:
            for record in await consumer.poll(timeout_ms=1_000):
                offsets[record.partition] = record.offset + 1
                if not handle(record.value):
                    save(file, offsets)
                    return
            save(file, offsets)


def written(broker: BlockingBroker, topic: str, first: int) -> None:
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(first, first + 12):
            producer.send(topic, b"%d" % number, partition=number % 4)
        producer.flush()


def test_readers_share_partitions_and_continue_at_their_places(kafka_broker: BlockingBroker, tmp_path: Path) -> None:
    topic = kafka_broker.topic(partitions=4)
    seen: dict[int, list[int]] = {0: [], 1: []}

    def take(reader: int) -> Callable[[bytes], bool]:
        def handle(value: bytes) -> bool:
            seen[reader].append(int(value))
            return len(seen[reader]) % 6 != 0

        return handle

    async def main() -> None:
        readers = (
            read(kafka_broker.bootstrap_servers, topic, (each, 2), tmp_path / f"{each}.json", take(each))
            for each in seen
        )
        await asyncio.gather(*readers)

    for first in (0, 12):
        written(kafka_broker, topic, first)
        asyncio.run(main())
    assert {reader: sorted(values) for reader, values in seen.items()} == {
        reader: [number for number in range(24) if number % 2 == reader] for reader in seen
    }
