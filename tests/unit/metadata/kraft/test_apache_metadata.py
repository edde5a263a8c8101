"""The metadata log of three brokers of Apache Kafka 4.3.0: its records make the image that its snapshots hold.

`golden/apache` has one broker's log and two snapshots that this broker wrote on the way. The cluster had a topic
created, extended and deleted, a replica moved, settings, quotas, credentials and ACLs changed. Then broker 3 was
killed, and later broker 2 shut down.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.controller.partition_changes import Rules, next_state
from odradek.kraft.checkpoints import parse_file_name
from odradek.kraft.metadata_log import MetadataEntry, read_entries
from odradek.kraft.metadata_records import decode_metadata_record
from odradek.metadata.image import ANY, ClientEntity, ClusterImage
from odradek.metadata.kraft.difference import difference
from odradek.metadata.kraft.replay import replay
from odradek.metadata.kraft.stored_metadata import read_stored_metadata
from odradek.wire.acls import AclOperation
from tests.unit.kraft.golden_files import GOLDEN
from tests.unit.metadata.kraft.contents import content, through_bytes

APACHE = GOLDEN / "apache"
LOG = (APACHE / f"{0:020d}.log").read_bytes()
SNAPSHOTS = sorted(APACHE.glob("*.checkpoint"))


@pytest.fixture(scope="module")
def image() -> ClusterImage:
    return read_stored_metadata(None, 0, [LOG]).image


def log_until(end_offset: int) -> bytes:
    """The batches below the offset."""
    ends = [each.offset for each in read_entries(LOG, whole=True)]
    assert end_offset - 1 in ends
    position = 0
    while int.from_bytes(LOG[position : position + 8], "big") < end_offset:
        position += 12 + int.from_bytes(LOG[position + 8 : position + 12], "big")
    return LOG[:position]


@pytest.mark.parametrize("path", SNAPSHOTS, ids=["54", "106"])
def test_log_makes_the_image_of_apaches_snapshot(path: Path) -> None:
    found = parse_file_name(path.name)
    assert found is not None
    theirs = read_stored_metadata(path.read_bytes(), found.end_offset, ())
    ours = read_stored_metadata(None, 0, [log_until(found.end_offset)])
    assert ours.end_offset == theirs.end_offset == found.end_offset
    assert content(ours.image) == content(theirs.image)
    assert (ours.unknown, theirs.unknown) == ({}, {})


@pytest.mark.parametrize("path", SNAPSHOTS, ids=["54", "106"])
def test_snapshot_and_the_rest_of_the_log_make_the_same_image(path: Path, image: ClusterImage) -> None:
    found = parse_file_name(path.name)
    assert found is not None
    assert content(read_stored_metadata(path.read_bytes(), found.end_offset, [LOG]).image) == content(image)


def test_difference_to_apaches_image_makes_it(image: ClusterImage) -> None:
    records = difference(ClusterImage(), image)
    assert content(replay(through_bytes(records), ClusterImage())) == content(image)


def test_difference_of_apaches_steps_is_what_its_controller_wrote(image: ClusterImage) -> None:
    """The records after the second snapshot, but those without effect: one by one the same as Apache's controller's."""
    before = read_stored_metadata(None, 0, [log_until(106)]).image
    for entry in read_entries(LOG, whole=True):
        if isinstance(entry, MetadataEntry) and entry.offset >= 106:
            record = decode_metadata_record(entry.value).record
            after = replay([record], before)
            assert difference(before, after) == ([] if "NoOp" in type(record).__name__ else [record])
            before = after
    assert content(before) == content(image)


def test_fenced_brokers_and_controlled_shutdown_are_read(image: ClusterImage) -> None:
    states = {each.id: (each.epoch, each.fenced, each.in_controlled_shutdown) for each in image.brokers.values()}
    assert states == {1: (10, False, False), 2: (12, True, True), 3: (13, True, False)}
    assert [image.brokers[each].rack for each in (1, 2, 3)] == ["rack-1", "rack-2", "rack-3"]
    assert image.brokers[1].features["metadata.version"] == (7, 30)
    assert len({broker.incarnation_id for broker in image.brokers.values()}) == 3
    assert sorted(image.controllers) == [1, 2, 3]


def test_moved_partition_has_the_directories_of_its_brokers(image: ClusterImage) -> None:
    (state,) = image.topics["single"].partitions
    assert state.replicas == (3, 2)
    assert state.directories == tuple(image.brokers[each].log_dirs[0] for each in (3, 2))


def test_partition_without_a_live_replica_has_an_empty_isr_and_its_elr(image: ClusterImage) -> None:
    (state,) = image.topics["single"].partitions
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (-1, 3, 5)
    assert (state.isr, state.elr, state.last_known_elr) == ((), (2, 3), (2,))


def test_empty_isr_is_led_again_by_a_member_of_the_elr(image: ClusterImage) -> None:
    (state,) = image.topics["single"].partitions
    brokers = {**image.brokers, 3: image.brokers[3]._replace(fenced=False)}
    found = next_state(state, state, Rules(brokers, 1, min_in_sync=2))
    assert (found.leader, found.isr, found.leader_epoch) == (3, (3,), 4)


def test_settings_and_clients_are_what_apaches_brokers_reported(image: ClusterImage) -> None:
    assert sorted(image.topics) == ["orders", "payments", "single"]
    assert image.topics["orders"].configs == {"cleanup.policy": "compact", "retention.ms": "100000"}
    assert image.broker_configs["1"] == {"log.cleaner.threads": "2"}
    assert image.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
    assert image.client_metrics == {"m": {"interval.ms": "1000"}}
    assert image.client_configs[ClientEntity("alice", "c")] == {
        "producer_byte_rate": "1024",
        "request_percentage": "50.0",
    }
    assert image.client_configs[ClientEntity(ip=ANY)] == {"connection_creation_rate": "10"}
    assert list(image.client_configs[ClientEntity("alice")]) == ["SCRAM-SHA-256"]
    assert {(each.resource_name, each.principal, each.operation) for each in image.acls.values()} == {
        ("orders", "User:alice", AclOperation.READ),
        ("g", "User:bob", AclOperation.ALL),
    }
    assert image.features == {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
