"""The small text files, as Apache Kafka writes and reads them."""

from __future__ import annotations

import pytest

from odradek.log.directories import checkpoint_formats as checkpoints
from odradek.log.directories.checkpoint_formats import CorruptCheckpoint, MetaProperties

UUID = bytes(range(16))


def test_offset_checkpoints() -> None:
    data = b"0\n2\n__consumer_offsets 7 12\na.b-c_d 0 9223372036854775807\n"
    offsets = {("__consumer_offsets", 7): 12, ("a.b-c_d", 0): (1 << 63) - 1}
    assert checkpoints.parse_offsets(data) == offsets
    assert checkpoints.format_offsets(offsets) == data
    assert checkpoints.format_offsets({}) == b"0\n0\n"
    assert checkpoints.parse_offsets(b"0\n0\n") == {}


@pytest.mark.parametrize(
    "data",
    [b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", b"0\n1\na 0 1 2\n", b"\xff\xfe\n\n"],
)
def test_broken_offset_checkpoints(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        checkpoints.parse_offsets(data)


def test_leader_epochs() -> None:
    data = b"0\n2\n0 0\n5 123\n"
    assert checkpoints.parse_leader_epochs(data) == [(0, 0), (5, 123)]
    assert checkpoints.format_leader_epochs([(0, 0), (5, 123)]) == data
    with pytest.raises(CorruptCheckpoint):
        checkpoints.parse_leader_epochs(b"0\n1\n-1 5\n")


def test_meta_properties_of_both_versions() -> None:
    ours = MetaProperties("cluster-1", 3, UUID, format=1)
    assert checkpoints.parse_meta_properties(checkpoints.format_meta_properties(ours)) == ours
    kraft = (
        b"#\n#Sat Nov 21 08:00:00 UTC 2026\ncluster.id=abc\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\nnode.id=1\nversion=1\n"
    )
    assert checkpoints.parse_meta_properties(kraft) == MetaProperties("abc", 1, UUID)
    spaced = MetaProperties("a b:c=d\\e #!ü", 3, UUID)
    assert checkpoints.parse_meta_properties(checkpoints.format_meta_properties(spaced)) == spaced
    escaped = b"! by hand\n\n  cluster.id : a\\:b\nnode.id=1\nversion=1\n"
    assert checkpoints.parse_meta_properties(escaped) == MetaProperties("a:b", 1, None)
    zookeeper = b"#\nversion=0\nbroker.id=2\ncluster.id=abc\n"
    assert checkpoints.parse_meta_properties(zookeeper) == MetaProperties("abc", 2, None, version=0)
    for broken in (b"version=7\n", b"version=1\nnode.id=x\n", b"version=1\ndirectory.id=short\n"):
        with pytest.raises(CorruptCheckpoint):
            checkpoints.parse_meta_properties(broken)


def test_partition_metadata() -> None:
    data = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.format_partition_metadata(UUID) == data
    assert checkpoints.parse_partition_metadata(data) == UUID
    for broken in (b"", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\n", b"version: 0\ntopic_id: x"):
        with pytest.raises(CorruptCheckpoint):
            checkpoints.parse_partition_metadata(broken)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "partition.metadata has no version"),
        (b"version: 0\n", "partition.metadata has no topic_id"),
        (b"version: 7\ntopic_id: x", "partition.metadata: unknown version 7"),
        (b"version: 0\ntopic_id: xx", "partition.metadata: 'xx' is not a UUID"),
    ],
)
def test_damage_of_partition_metadata_is_said_in_words(data: bytes, text: str) -> None:
    with pytest.raises(checkpoints.CorruptCheckpoint) as raised:
        checkpoints.parse_partition_metadata(data)
    assert str(raised.value) == text


def test_clean_shutdown_marker() -> None:
    assert checkpoints.format_clean_shutdown(42) == b'{"version":0,"brokerEpoch":42}'
