"""Controllers and brokers of a cluster at an older metadata.version, and its upgrade."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from odradek.broker.quorum.controller_node import ControllerNode
from odradek.client import Consumer, Producer
from odradek.client.admin import Admin, FeatureUpdate, NewTopic
from odradek.kraft.metadata_log import MetadataEntry, read_entries
from odradek.kraft.metadata_records import parse_frame
from odradek.metadata.features import METADATA_VERSION
from odradek.metadata.image import ClusterImage
from odradek.wire.messages import cluster_metadata as md
from tests.unit.broker.quorum.controllers_in_process import Quorum, format_directory, quorum, until

AT_3_9 = ("metadata.version=21", "transaction.version=0", "group.version=0")
PARTITION, REGISTERED = md.PartitionRecord.RECORD_TYPE, md.RegisterBrokerRecord.RECORD_TYPE


def versions_of(node: ControllerNode, kind: int) -> list[int]:
    """The versions of the records of a type in the metadata log."""
    log = node.parts.storage.log
    data = log.read(log.start.offset, 1 << 24)
    frames = [parse_frame(each.value) for each in read_entries(data, whole=True) if isinstance(each, MetadataEntry)]
    return [frame.version for frame in frames if frame.type == kind]


def image_of(running: Quorum) -> ClusterImage:
    return running.active.parts.metadata.image


def test_records_follow_the_level_of_the_cluster(tmp_path: Path) -> None:
    """At 3.9 there are no eligible leader replicas; after the upgrade to 4.3, new records are the newest."""

    async def scenario() -> None:
        form = partial(format_directory, features=AT_3_9)
        async with asyncio.timeout(60), quorum(tmp_path, 1, (1, 2), {"min.insync.replicas": "2"}, form) as running:
            async with Admin(bootstrap_servers=running.bootstrap) as admin:
                await admin.create_topics([NewTopic("t", 1, 2)])
                assert set(versions_of(running.active, PARTITION)) == {1}
                assert set(versions_of(running.active, REGISTERED)) == {3}
                async with Producer(bootstrap_servers=running.bootstrap) as producer:
                    await producer.send_and_wait("t", value=b"before")
                await running.brokers.pop(2).stop()
                await until(lambda: image_of(running).topics["t"].partitions[0].isr == (1,))
                assert image_of(running).topics["t"].partitions[0].elr == ()
                await running.start_brokers(2)
                await until(lambda: set(image_of(running).topics["t"].partitions[0].isr) == {1, 2})

                assert await admin.features.update({METADATA_VERSION: FeatureUpdate(30)}) == {METADATA_VERSION: None}
                features = await admin.features.describe()
                assert features.finalized[METADATA_VERSION].max_version == 30
                assert features.supported[METADATA_VERSION].max_version == 30
                await admin.create_topics([NewTopic("u", 1, 2)])
                assert versions_of(running.active, PARTITION)[-1] == 2
                await running.brokers.pop(2).stop()
                await until(lambda: image_of(running).topics["u"].partitions[0].elr == (2,))
            async with Consumer("t", bootstrap_servers=running.bootstrap, auto_offset_reset="earliest") as consumer:
                async for record in consumer:
                    assert record.value == b"before"
                    break

    asyncio.run(scenario())
