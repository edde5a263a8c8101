"""The life of a log in a running broker: deleted records, several log directories, compaction, recovery, damage."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from bench.peers.broker import BrokerProcess
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsRequestTopic
from tests.integration.waiting import until

Connect = Callable[[str], Any]
MakeBroker = Callable[..., BrokerProcess]


def create(broker: BrokerProcess, name: str, partitions: int = 1, **config: object) -> None:
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)


def produce(
    broker: BrokerProcess, topic: str, rows: list[tuple[bytes | None, bytes]], partition: int = 0, **options: object
) -> list[str]:
    """Errors of the rows that were refused."""
    failed: list[str] = []
    config = {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "message.timeout.ms": 30000, **options}
    producer = Producer(config)
    for key, value in rows:
        producer.produce(
            topic, value, key, partition, on_delivery=lambda error, _: failed.append(error.name()) if error else None
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    return failed


def read_all(broker: BrokerProcess, topic: str, partition: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "reader",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            error = message.error()
            if error and error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return found
            assert not error, error
            found.append((message.offset() or 0, message.key(), message.value()))  # type: ignore[arg-type]
    raise AssertionError("the partition was not read to its end")


def delete_records(client: Any, topic: str, offset: int, partition: int = 0) -> tuple[int, int]:
    """(error, low watermark)"""
    request = DeleteRecordsRequest(
        [DeleteRecordsRequestTopic(topic, [DeleteRecordsRequestPartition(partition, offset)])], 1000
    )
    found = client.call(request, 2).topics[0].partitions[0]
    return found.error_code, found.low_watermark


def test_deleted_records_stay_deleted(make_broker: MakeBroker, connect: Connect) -> None:
    broker = make_broker().start()
    create(broker, "t")
    create(broker, "c", cleanup_policy="compact")
    create(broker, "both", cleanup_policy="compact,delete")
    rows: list[tuple[bytes | None, bytes]] = [(b"k%d" % i, b"v") for i in range(10)]
    for topic in ("t", "c", "both"):
        assert not produce(broker, topic, rows)
    client = connect(broker.bootstrap)
    assert delete_records(client, "t", 4) == (ErrorCode.NONE, 4)
    assert delete_records(client, "t", 2) == (ErrorCode.NONE, 4), "what is gone is gone"
    assert delete_records(client, "t", 11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(client, "t", -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(client, "t", 1, 7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(client, "c", 1) == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete_records(client, "both", -1) == (ErrorCode.NONE, 10)
    assert delete_records(client, "__consumer_offsets", 1)[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    broker.kill()
    broker.start()
    assert [offset for offset, _, _ in read_all(broker, "t")] == list(range(4, 10))
    assert read_all(broker, "both") == []
    client = connect(broker.bootstrap)
    assert delete_records(client, "t", -1) == (ErrorCode.NONE, 10)
    assert not produce(broker, "t", rows[:1])
    assert [offset for offset, _, _ in read_all(broker, "t")] == [10]


def describe(client: Any, topic: str | None = None, partitions: int = 1) -> dict[str, Any]:
    wanted = None if topic is None else [DescribeLogDirsRequestTopic(topic, list(range(partitions)))]
    return {Path(found.log_dir).name: found for found in client.call(DescribeLogDirsRequest(wanted), 5).results}


def replicas(found: Any, topic: str) -> dict[int, Any]:
    return {p.partition_index: p for t in found.topics if t.name == topic for p in t.partitions}


def move(client: Any, directory: Path | str, topic: str, partition: int = 0) -> int:
    request = AlterReplicaLogDirsRequest(
        [AlterReplicaLogDirsRequestDir(str(directory), [AlterReplicaLogDirsRequestTopic(topic, [partition])])]
    )
    return int(client.call(request, 2).results[0].partitions[0].error_code)


def two_directories(tmp_path: Path, **settings: object) -> dict[str, object]:
    return {"log.dirs": f"{tmp_path}/a,{tmp_path}/b", **settings}


def test_several_log_directories(make_broker: MakeBroker, connect: Connect, tmp_path: Path) -> None:
    broker = make_broker(two_directories(tmp_path, **{"cordoned.log.dirs": ""})).start()
    client = connect(broker.bootstrap)
    assert move(client, tmp_path / "b", "later") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(broker, "later")
    found = describe(client, "later")
    assert list(replicas(found["b"], "later")) == [0], "it was created where it was asked for"
    create(broker, "t", 6)
    for partition in range(6):
        assert not produce(broker, "t", [(None, b"x" * 1000)] * 5, partition)
    found = describe(client, "t", 6)
    held = {name: replicas(directory, "t") for name, directory in found.items()}
    assert sorted(map(len, held.values())) in ([2, 4], [3, 3])
    assert all(p.partition_size > 5000 and not p.is_future_key for ps in held.values() for p in ps.values())
    for directory in found.values():
        assert os.path.isabs(directory.log_dir)
        assert 0 < directory.usable_bytes <= directory.total_bytes
        assert not directory.is_cordoned
        assert not directory.error_code
    assert not replicas(describe(client, "later")["b"], "t")
    assert replicas(describe(client)["b"], "later"), "null asks for all"
    assert move(client, "/nowhere", "t") == ErrorCode.LOG_DIR_NOT_FOUND


def test_a_replica_moves_while_it_is_written(make_broker: MakeBroker, connect: Connect, tmp_path: Path) -> None:
    broker = make_broker(two_directories(tmp_path, **{"log.segment.bytes": 1048576})).start()
    create(broker, "t")
    rows: list[tuple[bytes | None, bytes]] = [(b"%d" % i, os.urandom(1000)) for i in range(6000)]
    assert not produce(broker, "t", rows[:5000])
    client = connect(broker.bootstrap)
    (home,) = [name for name, found in describe(client, "t").items() if replicas(found, "t")]
    away = "b" if home == "a" else "a"
    assert move(client, tmp_path / away, "t") == ErrorCode.NONE
    assert not produce(broker, "t", rows[5000:])
    until((tmp_path / away / "t-0").is_dir, "the replica has moved")
    assert [(key, value) for _, key, value in read_all(broker, "t")] == rows
    found = describe(client, "t")
    assert not replicas(found[home], "t")
    assert replicas(found[away], "t")[0].partition_size > 6_000_000
    assert not (tmp_path / home / "t-0").exists()
    assert move(client, tmp_path / home, "t") == ErrorCode.NONE
    broker.kill()
    broker.start()
    until((tmp_path / home / "t-0").is_dir, "the move went on after the crash")
    assert [(key, value) for _, key, value in read_all(broker, "t")] == rows
    assert not list(tmp_path.glob("*/*-future"))


def test_a_directory_that_fails_leaves_the_other_serving(
    make_broker: MakeBroker, connect: Connect, tmp_path: Path
) -> None:
    settings = {"odradek.idle.check.interval.ms": 50, "offsets.topic.num.partitions": 1}
    broker = make_broker(two_directories(tmp_path, **settings)).start()
    create(broker, "t", 4)
    for partition in range(4):
        assert not produce(broker, "t", [(None, b"x")], partition)
    client = connect(broker.bootstrap)
    lost = sorted(replicas(describe(client, "t", 4)["b"], "t"))
    assert 1 <= len(lost) <= 3
    until(lambda: not [fd for fd in open_files(broker) if "/b/t-" in fd], "idle logs are released")
    (tmp_path / "b").rename(tmp_path / "unplugged")

    def are_rejected() -> bool:
        """Write to all lost partitions at once: each write waits until its time is over."""
        with ThreadPoolExecutor(len(lost)) as pool:
            rows: list[tuple[bytes | None, bytes]] = [(None, b"y")]
            write = partial(produce, broker, "t", rows, **{"message.timeout.ms": 1500})
            return all(pool.map(write, lost))

    def fails() -> bool:
        """Nothing is ever written there; that it has failed the broker knows when it was asked in time."""
        assert are_rejected()
        return bool(describe(client)["b"].error_code)

    until(fails, "the directory has failed")
    for partition in set(range(4)) - set(lost):
        assert not produce(broker, "t", [(None, b"y")], partition)
    found = describe(client)
    assert found["b"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not found["b"].topics
    assert not found["a"].error_code
    create(broker, "new", 2)
    assert len(replicas(describe(client)["a"], "new")) == 2
    for partition in set(range(4)) - set(lost):
        assert len(read_all(broker, "t", partition)) == 2
    broker.stop()
    # Nor does a start without it recreate the partitions, empty, in the remaining directory.
    (tmp_path / "b").write_bytes(b"not a directory")
    broker.start()
    assert are_rejected()
    assert not list((tmp_path / "a").glob(f"t-[{''.join(map(str, lost))}]"))
    create(broker, "newer", 2)
    assert len(replicas(describe(connect(broker.bootstrap))["a"], "newer")) == 2
    broker.stop()
    (tmp_path / "b").unlink()
    (tmp_path / "unplugged").rename(tmp_path / "b")
    broker.start()
    for partition in lost:
        assert read_all(broker, "t", partition) == [(0, None, b"x")]


def open_files(broker: BrokerProcess) -> list[str]:
    found = []
    for entry in Path(f"/proc/{broker.pid}/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except OSError:
            continue
    return found


def test_partitions_that_are_written_to_keep_their_files_open(tmp_path: Path) -> None:
    """The service manager's limit of 400 files can be raised to 6,000: 1,200 logs fit into half of them."""
    limited = ["bash", "-c", 'ulimit -Sn 400; ulimit -Hn 6000; exec "$@"', "limited"]
    broker = BrokerProcess(tmp_path / "data", prefix=limited)
    broker.start()
    try:
        create(broker, "wide", 1200)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition in range(1200):
            producer.produce("wide", b"x", partition=partition)
        assert producer.flush(60) == 0
        logs = [path for path in open_files(broker) if "/wide-" in path and path.endswith(".log")]
        assert len(logs) == 1200
    finally:
        broker.kill()


def test_compaction_in_a_running_broker(make_broker: MakeBroker) -> None:
    settings = {"log.cleaner.backoff.ms": 50, "offsets.topic.num.partitions": 1}
    broker = make_broker(settings).start()
    create(
        broker,
        "c",
        cleanup_policy="compact",
        segment_bytes=1048576,
        min_cleanable_dirty_ratio=0.01,
        file_delete_delay_ms=100,
    )
    assert produce(broker, "c", [(None, b"no key")]) == ["INVALID_RECORD"]
    rows: list[tuple[bytes | None, bytes]] = [(b"%d" % (i % 100), b"%d:" % i + os.urandom(500)) for i in range(12000)]
    assert not produce(broker, "c", rows)
    directory = broker.data_dir / "c-0"

    until(lambda: _log_bytes(directory) < 2_500_000, "the log is compacted")
    checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
    until(lambda: checkpoint.exists() and "c 0 " in checkpoint.read_text(), "the cleaner's progress is written down")
    found = read_all(broker, "c")
    last = {key: (offset, value) for offset, (key, value) in enumerate(rows)}
    assert {key: (offset, value) for offset, key, value in found} == last, "offsets and values stay"
    assert [offset for offset, _, _ in found] == sorted(offset for offset, _, _ in found)
    assert len(found) < 6000
    broker.kill()
    broker.start()
    assert {key: (offset, value) for offset, key, value in read_all(broker, "c")} == last


def test_recovery_does_not_hold_up_the_start(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    create(broker, "t", 2)
    rows: list[tuple[bytes | None, bytes]] = [(b"%d" % i, os.urandom(1000)) for i in range(8000)]
    for partition in range(2):
        assert not produce(broker, "t", rows, partition)
    broker.kill()
    torn = broker.data_dir / "t-1" / "00000000000000000000.log"
    with torn.open("ab") as file:
        file.write(torn.read_bytes()[:5000])
    broker.start()
    for partition in range(2):
        assert not produce(broker, "t", [(b"new", b"new")], partition)
        found = read_all(broker, "t", partition)
        assert [(key, value) for _, key, value in found[:-1]] == rows
        assert found[-1] == (8000, b"new", b"new")
    assert "cut off" in broker.log()
    assert broker.stop() == 0
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()


def _log_bytes(directory: Path) -> int:
    """Of the segments that are there; the broker may remove one after it was listed."""
    sizes = []
    for path in directory.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sum(sizes)


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
def test_retention_reaches_logs_that_are_not_open(make_broker: MakeBroker, cleanup: str) -> None:
    broker = make_broker({"log.segment.delete.delay.ms": 0, "log.cleaner.enable": "false"}).start()
    create(broker, "t", segment_bytes=1048576, cleanup_policy="delete", retention_ms=-1)
    rows: list[tuple[bytes | None, bytes]] = [(b"%d" % (i % 10), os.urandom(1000)) for i in range(4000)]
    assert not produce(broker, "t", rows)
    directory = broker.data_dir / "t-0"
    assert len(list(directory.glob("*.log"))) > 3
    name, value = ("retention.bytes", "1500000") if cleanup == "delete" else ("cleanup.policy", "compact")
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (done,) = admin.incremental_alter_configs([resource]).values()
    broker.settings["log.cleaner.enable"] = "true"
    done.result(30)
    broker.stop()
    broker.settings["log.retention.check.interval.ms"] = 100
    broker.settings["log.cleaner.backoff.ms"] = 50
    broker.start()
    until(lambda: _log_bytes(directory) < 2_700_000, "segments went without a request")
