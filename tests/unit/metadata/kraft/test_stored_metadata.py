"""A cluster's image out of KRaft's metadata log and its snapshots."""

from __future__ import annotations

import pytest

from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_records import VersionedRecord
from odradek.metadata.image import ANY, ClientEntity
from odradek.metadata.kraft.stored_metadata import StoredMetadata, read_stored_metadata
from odradek.wire.acls import AclOperation
from odradek.wire.messages import cluster_metadata as md
from tests.unit.broker.migration.kraft_folder import ABORT, BEGIN, END, Raw, metadata_log, topic_records

A, B = b"a" * 16, b"b" * 16


def read(*records: object) -> StoredMetadata:
    return read_stored_metadata(None, 0, [metadata_log(records)])


def test_topic_has_its_partitions_and_settings() -> None:
    found = read(None, *topic_records("orders", A, [[1, 2], [2, 1]], {"retention.ms": "5"}))
    topic = found.image.topics["orders"]
    assert (topic.id, topic.configs) == (A, {"retention.ms": "5"})
    assert [(p.leader, p.leader_epoch, p.replicas, p.isr) for p in topic.partitions] == [
        (1, 3, (1, 2), (1, 2)),
        (2, 3, (2, 1), (2, 1)),
    ]
    assert found.end_offset == 5


def test_partition_change_merges_and_counts_epochs() -> None:
    changes = [
        (md.PartitionChangeRecord(0, A, isr=[2], leader=2), 0),
        (md.PartitionChangeRecord(0, A, isr=[], leader=-1, eligible_leader_replicas=[2]), 2),
        (md.PartitionChangeRecord(0, A, replicas=[2, 3], adding_replicas=[3]), 1),
    ]
    (state,) = read(*topic_records("orders", A, [[1, 2]]), *changes).image.topics["orders"].partitions
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (-1, 5, 7)
    assert (state.replicas, state.adding_replicas, state.isr, state.elr) == ((2, 3), (3,), (), (2,))


def test_removed_topic_leaves_nothing_to_the_next_of_its_name() -> None:
    found = read(
        *topic_records("orders", A, [[1], [1]], {"retention.ms": "5"}),
        md.RemoveTopicRecord(A),
        *topic_records("orders", B, [[1]]),
    )
    topic = found.image.topics["orders"]
    assert (topic.id, len(topic.partitions), topic.configs) == (B, 1, {})


def test_settings_quotas_and_credentials_are_read() -> None:
    user = md.ClientQuotaRecordEntityData("user", None)
    client = md.ClientQuotaRecordEntityData("client-id", "c")
    found = read(
        md.ConfigRecord(4, "", "message.max.bytes", "7"),
        md.ConfigRecord(4, "1", "log.cleaner.threads", "2"),
        md.ConfigRecord(4, "1", "log.cleaner.threads", None),
        md.ConfigRecord(32, "g", "consumer.session.timeout.ms", "50000"),
        md.ConfigRecord(16, "m", "interval.ms", "1000"),
        md.FeatureLevelRecord("transaction.version", 1),
        md.ClientQuotaRecord([user, client], "producer_byte_rate", 1000.0),
        md.ClientQuotaRecord([client], "request_percentage", 12.5),
        md.ClientQuotaRecord([client], "consumer_byte_rate", 1.0),
        md.ClientQuotaRecord([client], "consumer_byte_rate", 0.0, remove=True),
        md.UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),
        md.UserScramCredentialRecord("bob", 2, b"salt", b"stored", b"server", 4096),
        md.RemoveUserScramCredentialRecord("bob", 2),
        md.ProducerIdsRecord(1, 12, 3000),
    )
    image = found.image
    assert image.broker_configs == {"": {"message.max.bytes": "7"}}
    assert image.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
    assert image.client_metrics == {"m": {"interval.ms": "1000"}}
    assert image.features == {"transaction.version": 1}
    assert image.client_configs == {
        ClientEntity(ANY, "c"): {"producer_byte_rate": "1000"},
        ClientEntity(None, "c"): {"request_percentage": "12.5"},
        ClientEntity("alice"): {
            "SCRAM-SHA-256": "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
        },
    }
    assert image.next_producer_id == 3000


def test_aborted_metadata_transaction_has_no_effect() -> None:
    found = read(
        Raw(BEGIN), *topic_records("gone", A, [[1]]), Raw(ABORT), Raw(BEGIN), *topic_records("kept", B, [[1]]), Raw(END)
    )
    assert list(found.image.topics) == ["kept"]


def test_unfinished_metadata_transaction_has_no_effect() -> None:
    assert not read(Raw(BEGIN), *topic_records("gone", A, [[1]])).image.topics


def test_log_is_replayed_from_the_end_of_the_snapshot() -> None:
    records = [VersionedRecord(record, 0) for record in topic_records("old", A, [[1]])]
    snapshot = encode_checkpoint(CheckpointId(100, 1), records, timestamp_ms=0, last_timestamp_ms=0)
    log = metadata_log([*topic_records("dropped", b"c" * 16, [[1]]), *topic_records("new", B, [[1]])], 98)
    found = read_stored_metadata(snapshot, 100, [log])
    assert sorted(found.image.topics) == ["new", "old"]
    assert found.end_offset == 102


@pytest.mark.parametrize("left", [0, -5])
def test_log_without_some_of_its_records_is_corrupt(left: int) -> None:
    """A segment is missing, or cut off before its end: what follows must not be replayed without them."""
    first, second = metadata_log(topic_records("a", A, [[1]])), metadata_log(topic_records("b", B, [[1]]), 2)
    third = metadata_log([md.RemoveTopicRecord(A)], 4)
    assert list(read_stored_metadata(None, 0, [first, second, third]).image.topics) == ["b"]
    with pytest.raises(CorruptMetadata, match=r"no records from offset [23] to 3"):
        read_stored_metadata(None, 0, [first, second[:left], third])


def test_what_this_version_does_not_know_is_counted() -> None:
    user = [md.ClientQuotaRecordEntityData("planet", "mars")]
    found = read(
        Raw(99),
        Raw(99),
        md.ClientQuotaRecord(user, "producer_byte_rate", 1.0),
        md.UserScramCredentialRecord("alice", 9, b"salt", b"stored", b"server", 4096),
        md.ConfigRecord(99, "x", "y", "z"),
        md.NoOpRecord(),
    )
    assert found.unknown == {
        "metadata record of the unknown type 99": 2,
        "quota of an entity of the unknown type planet": 1,
        "credential of the unknown SCRAM mechanism 9": 1,
        "setting of a resource of the unknown type 99": 1,
    }
    assert found.end_offset == 6


def test_acl_with_unknown_codes_is_not_among_the_known_ones() -> None:
    acls = [md.AccessControlEntryRecord(bytes([i]) * 16, 2, "orders", 3, "User:a", "*", 3 + i, 3) for i in range(3)]
    acls.append(md.AccessControlEntryRecord(bytes([9]) * 16, 2, "orders", 3, "User:a", "*", 99, 2))
    found = read(*acls, md.RemoveAccessControlEntryRecord(b"\x01" * 16))
    assert [(each.principal, each.operation) for each in sorted(found.known_acls)] == [
        ("User:a", AclOperation.READ),
        ("User:a", AclOperation.CREATE),
    ]
    assert len(found.image.acls) == 3


def test_unknown_record_in_an_aborted_transaction_is_not_counted() -> None:
    assert read(Raw(BEGIN), Raw(99), Raw(ABORT)).unknown == {}


def test_torn_last_batch_is_ignored() -> None:
    data = metadata_log([*topic_records("orders", A, [[1]]), md.TopicRecord("torn", B)])
    assert list(read_stored_metadata(None, 0, [data[:-5]]).image.topics) == ["orders"]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "CRC"),
        (
            lambda _: metadata_log([(md.TopicRecord("t", A), 0), md.RemoveTopicRecord(B)]),
            "RemoveTopicRecord at offset 1",
        ),
        (
            lambda _: metadata_log([md.TopicRecord("t", A), md.PartitionRecord(1, A)]),
            r"topic t has no partition 0, but a partition 1",
        ),
    ],
)
def test_damaged_log_is_reported_with_its_offset(damage, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CorruptMetadata, match=text):
        read_stored_metadata(None, 0, [damage(metadata_log(topic_records("t", A, [[1]])))])
