"""A folder in Apache Kafka's formats is imported and served: records, groups and transactions continue where they were.

The folder is one of a broker that ran: without its metadata file and its signs, and with a metadata log of KRaft, it is
what Apache Kafka leaves behind.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.broker import BrokerProcess
from odradek.log.directories.checkpoint_formats import parse_partition_metadata
from odradek.wire.messages.cluster_metadata import ProducerIdsRecord
from tests.unit.broker.migration.kraft_folder import topic_records, write_metadata
from tests.unit.log.test_log_ownership import contents

MakeBroker = Callable[..., BrokerProcess]
COUNTS = {"__consumer_offsets": 7, "__transaction_state": 5}


def odradek(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def fill(bootstrap: str) -> None:
    """400 records, of which group `g` has read 200, and a transaction that is left open."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1, config={"segment.bytes": "1048576"})])["orders"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 10})
    for number in range(400):
        producer.produce("orders", b"value %d" % number * 1000, b"key", 0)
    assert producer.flush(30) == 0
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    reader.commit(offsets=[TopicPartition("orders", 0, 200)], asynchronous=False)
    reader.close()
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx", "transaction.timeout.ms": 600_000})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce("orders", b"open", b"key", 0)
    writer.flush(30)


def make_apache_folder(data: Path, folder: Path) -> None:
    """What a broker of Apache Kafka would have left with the same logs."""
    shutil.copytree(data, folder, ignore=shutil.ignore_patterns("odradek-*", ".odradek*", ".lock"))
    meta = folder / "meta.properties"
    meta.write_text("".join(line for line in meta.read_text().splitlines(True) if "odradek" not in line))
    counts = {"orders": 1, **COUNTS}
    ids = {
        topic: parse_partition_metadata(next(folder.glob(f"{topic}-*/partition.metadata")).read_bytes())
        for topic in counts
    }
    records = [
        record
        for topic, count in counts.items()
        for record in topic_records(topic, ids[topic], [[1]] * count, {"segment.bytes": "1048576"})
    ]
    write_metadata(folder, [*records, ProducerIdsRecord(1, 1, 5000)])


def read(bootstrap: str, group: str, count: int, **settings: Any) -> list[tuple[int | None, bytes | None]]:
    """So many records of the topic, from where the group is; fewer when no more come."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe(["orders"])
    found: list[tuple[int | None, bytes | None]] = []
    while len(found) < count:
        more = consumer.consume(count - len(found), 20.0)
        assert more, f"{len(found)} of {count} records came"
        found += [(message.offset(), message.value()) for message in more if not message.error()]
    consumer.close()
    return found


def test_group_and_transaction_continue_after_an_import(make_broker: MakeBroker, tmp_path: Path) -> None:
    partitions = {
        "offsets.topic.num.partitions": COUNTS["__consumer_offsets"],
        "transaction.state.log.num.partitions": COUNTS["__transaction_state"],
        "group.initial.rebalance.delay.ms": 0,
    }
    first = make_broker(partitions, name="first").start()
    fill(first.bootstrap)
    assert first.stop() == 0
    folder = tmp_path / "apache"
    make_apache_folder(first.data_dir, folder)
    before = contents(folder)
    done = odradek("import", folder, "--data-dir", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    # The number of partitions in its configuration is another one: that of the imported topic decides.
    broker = make_broker({"group.initial.rebalance.delay.ms": 0}, name="new").start()
    assert read(broker.bootstrap, "g", 200) == [(n, b"value %d" % n * 1000) for n in range(200, 400)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert {name: len(admin.list_topics(name).topics[name].partitions) for name in COUNTS} == COUNTS
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "tx"})
    writer.init_transactions(30)  # ends the one that is open
    writer.begin_transaction()
    writer.produce("orders", b"committed", b"key", 0)
    writer.commit_transaction(30)
    assert read(broker.bootstrap, "new", 401, **{"isolation.level": "read_committed"})[400][1] == b"committed"
    assert broker.stop() == 0
    assert contents(folder) == before
    assert "no problems found" in odradek("verify", tmp_path / "new").stdout
