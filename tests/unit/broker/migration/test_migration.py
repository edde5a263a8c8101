"""`odradek import` on small folders of Apache Kafka that the test makes: what is planned, written, refused."""

from __future__ import annotations

import asyncio
import fcntl
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.authorization.stored_acls import StoredAcls
from odradek.broker.migration import importing, writing
from odradek.broker.migration.importing import Import
from odradek.broker.migration.plan import ImportPlan, Options
from odradek.broker.migration.source import ImportFailure, SourceFolder, hold_folders
from odradek.broker.migration.zookeeper import Ensemble, ensemble, read_cluster
from odradek.cli.main import main
from odradek.log.directories.checkpoint_formats import encode_uuid, parse_meta_properties, parse_offsets
from odradek.log.directories.ownership import IMPORT_MARKER, METADATA_FILE, Owner, inspect
from odradek.log.segments.indexes import OFFSET_ENTRY
from odradek.metadata.acl_nodes import AclNode
from odradek.metadata.changes import load_image, topic_creation
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.metadata.nodes import (
    CLUSTER_ID,
    PRODUCER_ID_BLOCK,
    ClusterIdNode,
    ProducerIdBlock,
    ProducerIdBlockNode,
)
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.metadata.stores.sqlite_store import SqliteStore
from odradek.metadata.token_nodes import token_path
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.ports.store import Create
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType, pattern_of
from odradek.wire.messages import cluster_metadata as md
from tests.unit.broker.migration.kraft_folder import (
    CLUSTER,
    topic_records,
    write_checkpoints,
    write_identity,
    write_metadata,
    write_partition,
)
from tests.unit.log.test_log_ownership import contents

A, B = b"a" * 16, b"b" * 16
KEPT = Options()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A KRaft folder: `orders` with a closed segment and an active one, `table` empty, what a deletion left."""
    folder = tmp_path / "kafka"
    records = [
        *topic_records("orders", A, [[1]], {"retention.ms": "5"}),
        *topic_records("table", B, [[1]]),
        md.ProducerIdsRecord(1, 12, 3000),
    ]
    write_metadata(folder, records)
    write_identity(folder)
    write_partition(folder, "orders-0", A, {0: 3, 3: 2})
    write_partition(folder, "table-0", B, {0: 0})
    write_partition(folder, "gone-0", b"g" * 16, {0: 1})
    write_partition(folder, "table-0.0123456789abcdef-delete", b"g" * 16, {0: 1})
    write_checkpoints(folder, {("orders", 0): 5, ("table", 0): 0, ("gone", 0): 1})
    return folder


def import_folders(
    *sources: Path, to: Path | list[Path], options: Options = KEPT, zookeeper: Ensemble | None = None
) -> ImportPlan:
    async def run() -> ImportPlan:
        targets = to if isinstance(to, list) else [to]
        done = Import(SystemDisk(), SeededRandom("import"), list(map(str, sources)), list(map(str, targets)))
        try:
            plan = await done.plan(options, zookeeper)
            assert not plan.obstacles, plan.obstacles
            await done.write(plan)
            return plan
        finally:
            done.close()

    return asyncio.run(run())


def stored(target: Path) -> tuple[ClusterImage, int]:
    """The image in the metadata file, and the first producer id that is free."""

    async def read() -> tuple[ClusterImage, int]:
        store = await SqliteStore.open(str(target / METADATA_FILE), SystemDisk())
        try:
            block = await store.get(PRODUCER_ID_BLOCK)
            return await load_image(store), 0 if block is None else ProducerIdBlockNode.decode(block.data).last + 1
        finally:
            await store.close()

    return asyncio.run(read())


def refusal(*sources: Path, to: Path | list[Path], zookeeper: Ensemble | None = None) -> str:
    with pytest.raises(ImportFailure) as caught:
        import_folders(*sources, to=to, zookeeper=zookeeper)
    return str(caught.value)


def command(*words: object) -> int:
    return main(["import", *map(str, words)])


# --- what is carried over ---


def test_topics_keep_ids_settings_and_grow_epochs(source: Path, tmp_path: Path) -> None:
    import_folders(source, to=tmp_path / "new")
    image, next_id = stored(tmp_path / "new")
    orders = image.topics["orders"]
    assert (image.cluster_id, sorted(image.topics), next_id) == (CLUSTER, ["orders", "table"], 3000)
    assert (orders.id, orders.configs) == (A, {"retention.ms": "5"})
    (state,) = orders.partitions
    assert (state.leader, state.leader_epoch, state.replicas, state.isr) == (1, 4, (1,), (1,))


def test_source_is_not_changed(source: Path, tmp_path: Path) -> None:
    before = contents(source)
    times = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
    import_folders(source, to=tmp_path / "new")
    assert contents(source) == before
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == times


def test_only_closed_segments_are_linked(source: Path, tmp_path: Path) -> None:
    import_folders(source, to=tmp_path / "new")
    links = {path.name for path in (tmp_path / "new" / "orders-0").iterdir() if path.stat().st_nlink > 1}
    assert links == {f"{0:020d}.log"}
    assert contents(tmp_path / "new" / "orders-0") == contents(source / "orders-0")


@pytest.mark.parametrize(("recovery_point", "watermark"), [(2, 5), (5, 2)])
def test_segments_that_may_still_be_cut_are_copied(
    source: Path, tmp_path: Path, recovery_point: int, watermark: int
) -> None:
    write_checkpoints(source, {("orders", 0): recovery_point})
    (source / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {watermark}\n")
    import_folders(source, to=tmp_path / "new")
    assert all(path.stat().st_nlink == 1 for path in (tmp_path / "new").glob("*/*"))


def test_nothing_is_linked_when_copies_are_asked_for(source: Path, tmp_path: Path) -> None:
    import_folders(source, to=tmp_path / "new", options=Options(may_link=False))
    assert all(path.stat().st_nlink == 1 for path in (tmp_path / "new").glob("*/*"))


def test_target_is_a_clean_folder_of_odradek(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    import_folders(source, to=target)
    assert inspect(SystemDisk(), str(target)).owner is Owner.ODRADEK
    assert not (target / IMPORT_MARKER).exists()
    assert (target / ".kafka_cleanshutdown").exists()
    meta = parse_meta_properties((target / "meta.properties").read_bytes())
    assert (meta.cluster_id, meta.node_id, meta.format) == (CLUSTER, 1, 1)
    assert meta.directory_id != parse_meta_properties((source / "meta.properties").read_bytes()).directory_id
    points = parse_offsets((target / "recovery-point-offset-checkpoint").read_bytes())
    assert points == {("orders", 0): 5, ("table", 0): 0}


def test_unclean_folder_is_imported_for_recovery(source: Path, tmp_path: Path) -> None:
    (source / ".kafka_cleanshutdown").unlink()
    plan = import_folders(source, to=tmp_path / "new")
    assert not (tmp_path / "new" / ".kafka_cleanshutdown").exists()
    assert any("not stopped cleanly" in note for note in plan.notes)


def test_indexes_filled_with_zeros_take_no_room(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka makes both indexes of an active segment 10 MB long; a crash leaves them so, with holes."""
    (source / ".kafka_cleanshutdown").unlink()
    entry = OFFSET_ENTRY.pack(4, 0)
    for suffix in ("index", "timeindex"):
        with (source / "orders-0" / f"{3:020d}.{suffix}").open("wb") as index:
            index.write(entry)
            index.truncate(10 << 20)
    monkeypatch.setattr(SystemDisk, "free_bytes", lambda *_: (importing._SPARE_BYTES + (1 << 20), 1 << 40))
    plan = import_folders(source, to=tmp_path / "new")
    assert plan.size_bytes(linked=False) < 1 << 20
    for suffix in ("index", "timeindex"):
        made = tmp_path / "new" / "orders-0" / f"{3:020d}.{suffix}"
        assert made.read_bytes() == entry + bytes((10 << 20) - len(entry))
        assert made.stat().st_blocks * 512 < 2 << 20


def test_directories_that_the_metadata_does_not_know_stay_behind(source: Path, tmp_path: Path) -> None:
    plan = import_folders(source, to=tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").glob("*-0*")) == ["orders-0", "table-0"]
    assert any("gone-0" in note for note in plan.notes)


@pytest.mark.parametrize("is_voter", [True, False])
def test_metadata_of_a_broker_that_crashed_may_be_behind_its_logs(tmp_path: Path, capsys: Any, is_voter: bool) -> None:
    """Only voters of Apache Kafka sync their metadata log: a power loss takes topics, epochs and producer ids of it."""
    folder = tmp_path / "kafka"
    state = md.PartitionRecord(0, A, [1], [1], leader=1, leader_epoch=1, partition_epoch=1)
    records = [md.TopicRecord("orders", A), state, md.ProducerIdsRecord(1, 12, 3000)]
    write_metadata(folder, [*records, md.RegisterControllerRecord(1)] if is_voter else records)
    write_identity(folder, clean=False)
    write_partition(folder, "orders-0", A, {0: 3}, producer_id=5000)
    (folder / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    write_partition(folder, "new-0", B, {0: 3})
    write_checkpoints(folder, {("orders", 0): 0, ("new", 0): 0})
    if is_voter:
        assert command(folder, "--data-dir", tmp_path / "new") == 0
        assert "note: not in the metadata, as a deletion leaves it, and left out: new-0\n" in capsys.readouterr().out
        return
    assert command(folder, "--data-dir", tmp_path / "new") == 2
    assert "new-0 would be left out: the metadata does not have it" in capsys.readouterr().err
    assert command(folder, "--data-dir", tmp_path / "new", "--partial") == 0
    image, next_id = stored(tmp_path / "new")
    assert image.topics["orders"].partitions[0].leader_epoch == 4
    assert next_id > 5000


@pytest.mark.parametrize(
    ("isr", "clean", "is_gap"), [([1, 2], False, True), ([1, 2], True, False), ([1], False, False)]
)
def test_replicas_in_sync_with_a_broker_that_crashed_may_have_more(
    tmp_path: Path, capsys: Any, isr: list[int], clean: bool, is_gap: bool
) -> None:
    """Its metadata ends with the crash, and does not show what the others have acknowledged since."""
    folder = tmp_path / "kafka"
    state = md.PartitionRecord(0, A, [1, 2], isr, leader=1, leader_epoch=3, partition_epoch=4)
    write_metadata(folder, [md.TopicRecord("orders", A), state, md.RegisterControllerRecord(1)])
    write_identity(folder, clean=clean)
    write_partition(folder, "orders-0", A, {0: 3})
    write_checkpoints(folder, {("orders", 0): 3})
    assert command(folder, "--data-dir", tmp_path / "new") == (2 if is_gap else 0)
    assert ("other replicas of orders-0 may have later records" in capsys.readouterr().err) == is_gap


def test_metadata_of_several_controllers_is_noted(source: Path, tmp_path: Path) -> None:
    records = [*topic_records("orders", A, [[1]]), *(md.RegisterControllerRecord(node) for node in (1, 2))]
    write_metadata(source, records)
    plan = import_folders(source, to=tmp_path / "new")
    assert any("controllers 1, 2" in note for note in plan.notes)


@pytest.mark.parametrize(("replicas", "number"), [([[1], [1]], 0), ([[1, 2], [1]], 1), ([[1, 2], [2, 1]], 2)])
def test_partitions_with_fewer_replicas_than_before_are_noted(
    tmp_path: Path, replicas: list[list[int]], number: int
) -> None:
    first, second = two_folders(tmp_path)
    write_metadata(first, topic_records("orders", A, replicas))
    plan = import_folders(first, second, to=tmp_path / "new")
    noted = [note for note in plan.notes if "more than one replica" in note]
    assert noted == ([f"{number} partitions had more than one replica and have one now"] if number else [])


def test_another_node_id_leads_everything(source: Path, tmp_path: Path) -> None:
    import_folders(source, to=tmp_path / "new", options=Options(node_id=7))
    image, _ = stored(tmp_path / "new")
    assert {state.leader for topic in image.topics.values() for state in topic.partitions} == {7}
    assert parse_meta_properties((tmp_path / "new" / "meta.properties").read_bytes()).node_id == 7


def two_folders(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "disk1", tmp_path / "disk2"
    write_metadata(first, topic_records("orders", A, [[1], [1]]))
    for folder, name in ((first, "orders-0"), (second, "orders-1")):
        write_identity(folder)
        write_partition(folder, name, A, {0: 3})
        write_checkpoints(folder, {("orders", int(name[-1])): 3})
    return first, second


def test_several_folders_go_into_one(tmp_path: Path) -> None:
    import_folders(*two_folders(tmp_path), to=tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").glob("orders-*")) == ["orders-0", "orders-1"]


def test_each_folder_goes_into_its_own(tmp_path: Path) -> None:
    import_folders(*two_folders(tmp_path), to=[tmp_path / "a", tmp_path / "b"])
    assert [path.name for path in (tmp_path / "a").glob("orders-*")] == ["orders-0"]
    assert [path.name for path in (tmp_path / "b").glob("orders-*")] == ["orders-1"]
    assert not (tmp_path / "b" / METADATA_FILE).exists()
    assert inspect(SystemDisk(), str(tmp_path / "b")).owner is Owner.ODRADEK


def test_checkpoints_come_from_the_folder_of_the_partition(tmp_path: Path) -> None:
    """Apache Kafka leaves the offsets of a replica behind that was the last one to leave a folder."""
    first, second = two_folders(tmp_path)
    (second / "replication-offset-checkpoint").write_text("0\n2\norders 1 3\norders 0 1\n")
    (first / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 3\norders 1 9\n")
    import_folders(second, first, to=tmp_path / "new")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert parse_offsets((tmp_path / "new" / name).read_bytes()) == {("orders", 0): 3, ("orders", 1): 3}
    import_folders(first, second, to=tmp_path / "again")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert parse_offsets((tmp_path / "again" / name).read_bytes()) == {("orders", 0): 3, ("orders", 1): 3}


def test_folder_of_the_metadata_log_alone_has_no_mark_of_a_clean_stop(tmp_path: Path) -> None:
    """Apache Kafka marks log.dirs only; metadata.log.dir may be another folder."""
    folder, metadata = tmp_path / "kafka", tmp_path / "metadata"
    write_metadata(metadata, topic_records("orders", A, [[1]]))
    write_identity(metadata, clean=False)
    write_identity(folder)
    write_partition(folder, "orders-0", A, {0: 3})
    write_checkpoints(folder, {("orders", 0): 3})
    plan = import_folders(folder, metadata, to=tmp_path / "new")
    assert plan.is_clean
    assert (tmp_path / "new" / ".kafka_cleanshutdown").exists()
    assert not [note for note in plan.notes if "cleanly" in note]


@pytest.mark.parametrize("is_first", [True, False])
def test_newest_metadata_log_counts_where_there_are_two(tmp_path: Path, is_first: bool) -> None:
    """As `metadata.log.dir` leaves it when it is changed."""
    first, second = two_folders(tmp_path)
    write_metadata(second, [*topic_records("orders", A, [[1]]), *topic_records("orders", A, [[1], [1]])])
    plan = import_folders(*((second, first) if is_first else (first, second)), to=tmp_path / "new")
    assert f"metadata log {second}/__cluster_metadata-0 up to offset 5" == plan.metadata
    assert any(f"{first}/__cluster_metadata-0" in note for note in plan.notes)


# --- with ZooKeeper ---


@pytest.fixture
def zookeeper_era(tmp_path: Path) -> Path:
    folder = tmp_path / "kafka3"
    write_identity(folder, kraft=False)
    write_partition(folder, "orders-0", A, {0: 3}, producer_id=4217)
    write_partition(folder, "old-0", None, {0: 1})
    write_partition(folder, "old-1", None, {0: 1})
    write_checkpoints(folder, {("orders", 0): 3, ("old", 0): 1, ("old", 1): 1})
    return folder


def test_directories_stand_for_the_metadata_of_zookeeper(zookeeper_era: Path, tmp_path: Path) -> None:
    plan = import_folders(zookeeper_era, to=tmp_path / "new")
    image, next_id = stored(tmp_path / "new")
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {"orders": 1, "old": 2}
    assert image.topics["orders"].id == A
    old = image.topics["old"].id
    text = (tmp_path / "new" / "old-1" / "partition.metadata").read_text()
    assert encode_uuid(old) in text, "the id that the import chose is in the directories too"
    assert next_id > 4217 + 1000
    assert any("settings of topics" in note for note in plan.notes)


@pytest.mark.parametrize("checkpoint", ["", "0\n1\n3 0", "0\n1\n2 0\n", None])
def test_epochs_are_above_those_of_the_log_after_a_crash(
    zookeeper_era: Path, tmp_path: Path, checkpoint: str | None
) -> None:
    """Apache Kafka does not sync the file of leader epochs: a power loss may leave an older or an incomplete one."""
    path = zookeeper_era / "orders-0" / "leader-epoch-checkpoint"
    path.unlink()
    if checkpoint is not None:
        path.write_text(checkpoint)
    (zookeeper_era / ".kafka_cleanshutdown").unlink()
    (zookeeper_era / "orders-0" / f"{3:020d}.log").write_bytes(b"")
    import_folders(zookeeper_era, to=tmp_path / "new")
    (state,) = stored(tmp_path / "new")[0].topics["orders"].partitions
    assert state.leader_epoch == 4


def test_missing_middle_partition_is_a_gap(zookeeper_era: Path, tmp_path: Path, capsys: Any) -> None:
    write_partition(zookeeper_era, "orders-2", A, {0: 1})
    assert command(zookeeper_era, "--data-dir", tmp_path / "new") == 2
    assert "this broker does not have orders-1" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


READERS = AclBinding(ResourceType.TOPIC, "or", "User:*", AclOperation.READ, pattern_type=PatternType.PREFIXED)


def folder_of(path: Path) -> SourceFolder:
    meta = parse_meta_properties((path / "meta.properties").read_bytes())
    return SourceFolder(str(path), meta, True, {}, [])


def test_settings_come_from_zookeeper_when_it_is_named(zookeeper_era: Path) -> None:
    async def read() -> Any:
        store = MemoryStore()
        topic = Topic("orders", A, (PartitionState(1, 2, (1,), (1,)),), {"retention.ms": "5"})
        block = ProducerIdBlockNode.encode(ProducerIdBlock(1, 4000, 4999))
        cluster = Create(CLUSTER_ID, ClusterIdNode.encode(CLUSTER))
        await store.apply([cluster, *topic_creation(topic), Create(PRODUCER_ID_BLOCK, block)])
        await store.apply([Create(AclNode.path(pattern_of(READERS)), AclNode.encode(pattern_of(READERS), [READERS]))])
        return await read_cluster(store, "zk", [folder_of(zookeeper_era)])

    found = asyncio.run(read())
    assert found.image.topics["orders"].configs == {"retention.ms": "5"}
    assert found.next_producer_id == 5000
    assert found.acls == {READERS}


def test_delegation_tokens_of_zookeeper_are_counted(zookeeper_era: Path) -> None:
    async def read() -> Any:
        store = MemoryStore()
        await store.apply([Create(CLUSTER_ID, ClusterIdNode.encode(CLUSTER)), Create(token_path("t-1"), b"{}")])
        return await read_cluster(store, "zk", [folder_of(zookeeper_era)])

    assert asyncio.run(read()).left_out == {"delegation token": 1}


def test_zookeeper_with_unreadable_acls_is_refused(zookeeper_era: Path) -> None:
    """What cannot be read may be a denial."""

    async def read() -> None:
        store = MemoryStore()
        await store.apply([Create(CLUSTER_ID, ClusterIdNode.encode(CLUSTER)), Create("/kafka-acl/Topic/orders", b"{")])
        await read_cluster(store, "zk", [folder_of(zookeeper_era)])

    with pytest.raises(ImportFailure, match="zk: cannot read ACLs"):
        asyncio.run(read())


def test_zookeeper_of_another_cluster_is_rejected(zookeeper_era: Path) -> None:
    async def read() -> None:
        store = MemoryStore()
        await store.apply([Create(CLUSTER_ID, ClusterIdNode.encode("other"))])
        await read_cluster(store, "zk", [folder_of(zookeeper_era)])

    with pytest.raises(ImportFailure, match="zk has cluster other"):
        asyncio.run(read())


def test_ensemble_is_reached_as_the_broker_reached_it(tmp_path: Path) -> None:
    """Settings for other things than ZooKeeper may be unknown here, and nothing is written there."""
    settings = {
        "zookeeper.connect": " zk:2181/kafka ",
        "zookeeper.set.acl": "true",
        "odradek.zookeeper.digest": "broker:secret",
        "listener.security.protocol.map": "nonsense",
        "some.plugin": "1",
    }
    found = ensemble(None, settings)
    assert (found.connect, found.access.digest, found.access.sets_acl) == ("zk:2181/kafka", "broker:secret", False)
    assert ensemble("other:1", settings).connect == "other:1"
    assert ensemble("other:1", {}) == Ensemble("other:1")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"broker.id": "1"}, "has no zookeeper.connect"),
        ({"zookeeper.connect": "zk", "java.security.auth.login.config": "/missing"}, "/missing: No such file"),
        (
            {
                "zookeeper.connect": "zk",
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": "/missing",
            },
            "zookeeper.ssl.truststore.location: /missing: No such file",
        ),
        ({"zookeeper.connect": "zk", "zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable"),
    ],
)
def test_unusable_settings_of_the_ensemble_are_rejected(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ImportFailure, match=text) as raised:
        ensemble(None, settings)
    assert "\n" not in str(raised.value)


def test_zookeeper_is_rejected_for_kraft(source: Path, tmp_path: Path) -> None:
    assert "the folders are of KRaft" in refusal(source, to=tmp_path / "new", zookeeper=Ensemble("127.0.0.1:1"))


# --- what is refused ---


def test_running_broker_is_rejected(source: Path, tmp_path: Path) -> None:
    with (source / ".lock").open("w") as lock:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        assert "a broker uses this folder" in refusal(source, to=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_rejected_import_releases_the_folders_that_it_held(source: Path, tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    busy.mkdir()
    (source / ".lock").touch()
    free_for_all = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
    with (busy / ".lock").open("w") as other:
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, free_for_all)
        with pytest.raises(ImportFailure, match="busy"):
            hold_folders([str(source), str(busy)])
    with (source / ".lock").open("w") as broker:
        fcntl.fcntl(broker, fcntl.F_OFD_SETLK, free_for_all)


def test_held_folders_can_not_be_used_until_they_are_released(source: Path) -> None:
    (source / ".lock").touch()
    held = hold_folders([str(source)])
    with (source / ".lock").open("w") as broker:
        with pytest.raises(BlockingIOError):
            fcntl.fcntl(broker, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        for each in held:
            each.release()
        fcntl.fcntl(broker, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))


def test_target_with_content_is_rejected_and_kept(source: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "notes.txt").write_text("mine")
    assert "is not empty (it has notes.txt)" in refusal(source, to=tmp_path / "new")
    assert contents(tmp_path / "new") == {"notes.txt": b"mine"}


@pytest.mark.parametrize("place", ["kafka", "kafka/new", "."])
def test_target_and_source_in_each_other_are_rejected(source: Path, tmp_path: Path, place: str) -> None:
    before = contents(source)
    assert "lie in each other" in refusal(source, to=tmp_path / place)
    assert contents(source) == before


def test_target_in_a_source_with_another_name_is_rejected(source: Path, tmp_path: Path) -> None:
    """Apache Kafka does not start on a folder that holds a directory of another name than its partitions have."""
    other_name = tmp_path / "link"
    other_name.symlink_to(source)
    before = contents(source)
    assert "lie in each other" in refusal(other_name, to=source / "new")
    assert "lie in each other" in refusal(source, to=other_name / "new")
    assert "named twice" in refusal(source, other_name, to=tmp_path / "new")
    assert contents(source) == before


def test_partition_with_two_directories_is_rejected(source: Path, tmp_path: Path) -> None:
    write_partition(source, "orders-00", A, {0: 1})
    assert f"{source}/orders-0 and {source}/orders-00" in refusal(source, to=tmp_path / "new")


@pytest.mark.parametrize(("is_one_disk", "needed"), [(True, 193), (False, 299)])
def test_space_for_the_copies_is_checked_before_the_first(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_one_disk: bool, needed: int
) -> None:
    """Without links the closed segment, too, has to fit: 106 bytes."""
    free = importing._SPARE_BYTES + needed
    monkeypatch.setattr(importing, "are_on_one_disk", lambda *_: is_one_disk)
    monkeypatch.setattr(SystemDisk, "free_bytes", lambda *_: (free - 1, 1 << 40))
    assert f"{free} bytes are to be copied, and {free - 1} are free" in refusal(source, to=tmp_path / "new")
    assert not list((tmp_path / "new").glob("orders*"))
    monkeypatch.setattr(SystemDisk, "free_bytes", lambda *_: (free, 1 << 40))
    import_folders(source, to=tmp_path / "new")


def test_folder_of_odradek_is_rejected(source: Path, tmp_path: Path) -> None:
    import_folders(source, to=tmp_path / "new")
    assert "is a folder of Odradek" in refusal(tmp_path / "new", to=tmp_path / "again")


def test_folder_without_a_broker_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    assert "is no data folder of Apache Kafka" in refusal(tmp_path / "etc", to=tmp_path / "new")


def test_damaged_checkpoint_is_named_with_a_way_out(source: Path, tmp_path: Path) -> None:
    path = source / "recovery-point-offset-checkpoint"
    path.write_bytes(bytes(20))
    text = refusal(source, to=tmp_path / "new")
    assert text.startswith(f"{path}: expected version 0 in the first line")
    assert text.endswith("start Apache Kafka and stop it again, which rewrites the file")


def test_folder_named_twice_is_rejected(source: Path, tmp_path: Path) -> None:
    assert "named twice" in refusal(source, source, to=tmp_path / "new")


def test_folders_of_two_brokers_are_rejected(tmp_path: Path) -> None:
    first, second = two_folders(tmp_path)
    write_identity(second, node=2)
    assert "name the folders of one broker" in refusal(first, second, to=tmp_path / "new")


def test_missing_partitions_are_named_and_need_partial(tmp_path: Path, capsys: Any) -> None:
    first, _ = two_folders(tmp_path)
    assert command(first, "--data-dir", tmp_path / "new") == 2
    error = capsys.readouterr().err
    assert "this broker does not have orders-1" in error
    assert error.count("\n") == 1
    assert command(first, "--data-dir", tmp_path / "new", "--partial") == 0
    assert len(stored(tmp_path / "new")[0].topics["orders"].partitions) == 2


def test_replica_outside_the_isr_is_a_gap(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "kafka"
    write_metadata(folder, [*topic_records("orders", A, [[2, 1]]), (md.PartitionChangeRecord(0, A, isr=[2]), 0)])
    write_identity(folder)
    write_partition(folder, "orders-0", A, {0: 3})
    write_checkpoints(folder, {("orders", 0): 3})
    assert command(folder, "--data-dir", tmp_path / "new") == 2
    assert "not in the ISR of orders-0" in capsys.readouterr().err


def test_tiered_topic_is_a_gap_and_features_are_named(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "kafka"
    records = [
        *topic_records("orders", A, [[1]], {"remote.storage.enable": "true"}),
        md.FeatureLevelRecord("share.version", 1),
        md.AccessControlEntryRecord(A, 2, "orders", 3, "User:a", "*", 3, 3),
    ]
    write_metadata(folder, records)
    write_identity(folder)
    write_partition(folder, "orders-0", A, {0: 3})
    write_checkpoints(folder, {("orders", 0): 3})
    assert command(folder, "--data-dir", tmp_path / "new", "--dry-run", "-o", "json") == 2
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert "orders use tiered storage" in report["gaps"][0]
    assert any("share groups" in note for note in report["notes"])
    assert any("1 ACL come along" in note for note in report["notes"])


def test_import_keeps_acls_and_names_networks(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "kafka"
    records = [
        *topic_records("orders", A, [[1]]),
        md.AccessControlEntryRecord(A, 2, "orders", 3, "User:a", "*", 3, 3),
        md.AccessControlEntryRecord(B, 2, "orders", 3, "User:b", "*", 2, 2),
        md.AccessControlEntryRecord(b"c" * 16, 3, "bil/", 4, "User:*", "10.0.0.0/8", 3, 3),
    ]
    write_metadata(folder, records)
    write_identity(folder)
    write_partition(folder, "orders-0", A, {0: 3})
    write_checkpoints(folder, {("orders", 0): 3})
    assert command(folder, "--data-dir", tmp_path / "new", "-o", "json") == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any("3 ACLs come along" in note for note in notes)
    assert any("1 of them have a network" in note for note in notes)
    assert stored_acls(tmp_path / "new") == {
        AclBinding(ResourceType.TOPIC, "orders", "User:a", AclOperation.READ),
        AclBinding(ResourceType.TOPIC, "orders", "User:b", AclOperation.ALL, AclPermissionType.DENY),
        AclBinding(
            ResourceType.GROUP,
            "bil/",
            "User:*",
            AclOperation.READ,
            host="10.0.0.0/8",
            pattern_type=PatternType.PREFIXED,
        ),
    }


def stored_acls(target: Path) -> set[AclBinding]:
    """The ACLs as a broker of this folder reads them."""

    async def read() -> set[AclBinding]:
        store = await SqliteStore.open(str(target / METADATA_FILE), SystemDisk())
        try:
            acls = StoredAcls(store, lambda _: None)
            await acls.load()
            return set(acls.all())
        finally:
            await store.close()

    return asyncio.run(read())


def test_old_message_format_is_an_obstacle(source: Path, tmp_path: Path, capsys: Any) -> None:
    log = source / "orders-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[16] = 1
    log.write_bytes(data)
    assert command(source, "--data-dir", tmp_path / "new", "--partial") == 2
    assert "message format 0 or 1" in capsys.readouterr().err


def test_unknown_setting_is_left_out_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    configs = {"retention.ms": "5", "no.such.setting": "x", "segment.bytes": "-3"}
    write_metadata(folder, topic_records("orders", A, [[1]], configs))
    write_identity(folder)
    write_partition(folder, "orders-0", A, {0: 3})
    write_checkpoints(folder, {("orders", 0): 3})
    plan = import_folders(folder, to=tmp_path / "new")
    assert stored(tmp_path / "new")[0].topics["orders"].configs == {"retention.ms": "5"}
    assert sum("no.such.setting" in note or "segment.bytes" in note for note in plan.notes) == 2


# --- reports and interruptions ---


def test_dry_run_writes_nothing(source: Path, tmp_path: Path, capsys: Any) -> None:
    before = contents(tmp_path)
    assert command(source, "--data-dir", tmp_path / "new", "--dry-run", "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert contents(tmp_path) == before
    assert [(topic["name"], topic["partitions"]) for topic in report["topics"]] == [("orders", 1), ("table", 1)]
    assert report["linked_bytes"] == (source / "orders-0" / f"{0:020d}.log").stat().st_size
    assert (report["dry_run"], report["clean"], report["cluster_id"]) == (True, True, CLUSTER)


def test_report_names_the_next_command(source: Path, tmp_path: Path, capsys: Any) -> None:
    assert command(source, "--data-dir", tmp_path / "new") == 0
    assert f"next: odradek serve --data-dir {tmp_path / 'new'}\n" in capsys.readouterr().out


def test_report_counts_what_could_not_be_linked_as_copied(
    source: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "link", lambda *_: False)
    assert command(source, "--data-dir", tmp_path / "new", "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["linked_bytes"], report["copied_bytes"]) == (0, 299)


class Interrupted(Exception):
    """Stands for a process that is killed."""


def interrupt(monkeypatch: pytest.MonkeyPatch, function: str, after: int) -> None:
    real = getattr(writing, function)
    calls = 0

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Interrupted
        return real(*arguments, **named)

    monkeypatch.setattr(importing, function, call)


@pytest.mark.parametrize(
    ("function", "after"),
    [("write_partition", 1), ("write_store", 0), ("write_small_files", 0), ("write_small_files", 1), ("finish", 1)],
)
def test_interrupted_import_is_rejected_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, after: int
) -> None:
    sources = two_folders(tmp_path)
    targets = [tmp_path / "a", tmp_path / "b"]
    with monkeypatch.context() as patch:
        interrupt(patch, function, after)
        with pytest.raises(Interrupted):
            import_folders(*sources, to=targets)
    assert inspect(SystemDisk(), str(targets[0])).owner is Owner.UNFINISHED_IMPORT
    (targets[0] / "odradek-metadata.sqlite-wal").touch()
    import_folders(*sources, to=targets)
    assert sorted(stored(targets[0])[0].topics) == ["orders"]
    assert contents(targets[1] / "orders-1") == contents(sources[1] / "orders-1")


@pytest.mark.parametrize("is_running", [True, False])
def test_import_fails_when_a_broker_uses_the_source_meanwhile(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_running: bool
) -> None:
    """A clean stop of Apache Kafka removes `.lock`, by which the import would keep it from starting."""

    def write(*arguments: Any) -> int:
        (source / ".kafka_cleanshutdown").unlink(missing_ok=True)
        if is_running:
            (source / ".lock").touch()
        else:
            (source / ".kafka_cleanshutdown").write_text("{}")
        return writing.write_partition(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(importing, "write_partition", write)
        assert f"{source}: a broker has used this folder since the import began" in refusal(source, to=tmp_path / "new")
    assert inspect(SystemDisk(), str(tmp_path / "new")).owner is Owner.UNFINISHED_IMPORT


def test_cleaning_up_keeps_what_the_import_did_not_write(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, "write_store", 0)
        with pytest.raises(Interrupted):
            import_folders(source, to=tmp_path / "new")
    (tmp_path / "new" / "notes.txt").write_text("mine")
    assert "is not empty (it has notes.txt)" in refusal(source, to=tmp_path / "new")
    assert (tmp_path / "new" / "notes.txt").read_text() == "mine"
    assert (source / "orders-0" / f"{0:020d}.log").exists()
