"""`replay(difference(a, b), a)` is b, for images of every kind and through the bytes of the records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.kraft.errors import CorruptMetadata
from odradek.metadata.directories import UNASSIGNED
from odradek.metadata.image import (
    ANY,
    Broker,
    ClientEntity,
    ClusterImage,
    ControllerRegistration,
    Endpoint,
    PartitionState,
    Topic,
)
from odradek.metadata.kraft.difference import difference
from odradek.metadata.kraft.replay import replay
from odradek.security.delegation_tokens import DelegationToken
from odradek.security.scram import ScramCredential
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.wire.messages import cluster_metadata as md
from tests.unit.metadata.kraft.contents import content, through_bytes

FEATURES = ("group.version", "transaction.version")

names = st.sampled_from(["a", "b", "é"])
uuids = st.sampled_from([bytes([n]) * 16 for n in range(4)])
nodes = st.integers(0, 3)
replicas = st.lists(nodes, unique=True, max_size=3).map(tuple)
small = st.integers(0, 3)
configs = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2", ""]), max_size=2)
some_configs = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]), min_size=1, max_size=2)


@st.composite
def states(draw: st.DrawFn) -> PartitionState:
    """The state of a partition, with or without the directories of its replicas."""
    assigned = draw(replicas)
    count = len(assigned) if draw(st.booleans()) else 0
    return PartitionState(
        draw(st.integers(-1, 3)),
        draw(small),
        assigned,
        draw(replicas),
        draw(small),
        draw(replicas),
        draw(replicas),
        elr=draw(replicas),
        directories=tuple(draw(st.lists(uuids, min_size=count, max_size=count))),
        last_known_elr=draw(replicas),
        recovery=draw(st.integers(0, 1)),
    )


endpoints = st.dictionaries(
    names,
    st.builds(
        Endpoint,
        names,
        st.integers(0, 65535),
        st.sampled_from(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
    ),
    max_size=2,
)
ranges = st.dictionaries(st.sampled_from(FEATURES), st.tuples(small, small), max_size=2)
directories = st.lists(uuids, max_size=2, unique=True).map(tuple)
brokers = st.builds(
    Broker,
    nodes,
    small,
    st.none() | names,
    endpoints,
    st.booleans(),
    incarnation_id=uuids,
    features=ranges,
    log_dirs=directories,
    cordoned_log_dirs=directories,
    in_controlled_shutdown=st.booleans(),
)
controllers = st.builds(ControllerRegistration, nodes, uuids, endpoints, ranges)
entities = st.sampled_from(
    [
        ClientEntity("u"),
        ClientEntity("u", "c"),
        ClientEntity(ANY),
        ClientEntity(None, ANY),
        ClientEntity(ip="127.0.0.1"),
    ]
)
quotas = st.fixed_dictionaries(
    {},
    optional={
        "producer_byte_rate": st.sampled_from(["1", "1000", "9223372036854775807"]),
        "request_percentage": st.sampled_from(["1.0", "12.5"]),
    },
)
credentials = st.builds(ScramCredential, uuids, uuids, uuids, st.integers(4096, 8192)).map(ScramCredential.text)
users = st.dictionaries(st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]), credentials, max_size=2)
acls = st.builds(
    AclBinding,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    names,
    names,
    st.sampled_from([AclOperation.READ, AclOperation.ALL]),
    st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY]),
    st.just("*"),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
tokens = st.builds(DelegationToken, names, names, names, st.lists(names, max_size=2).map(tuple), small, small, small)


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    """An image with all that records carry; features and controllers are those that every image has."""
    ids = draw(st.permutations([bytes([n]) * 16 for n in range(4)]))
    partitions = st.lists(states(), max_size=3).map(tuple)
    image = ClusterImage().with_topics(
        Topic(name, ids[i], draw(partitions), draw(configs)) for i, name in enumerate(draw(st.sets(names, max_size=3)))
    )
    for name, some in draw(st.dictionaries(st.sampled_from(["", "1"]), some_configs, max_size=2)).items():
        image = image.with_broker_configs(name, some)
    for name, some in draw(st.dictionaries(names, some_configs, max_size=2)).items():
        image = image.with_group_configs(name, some).with_client_metrics(name + "-metrics", some)
    clients: dict[ClientEntity, dict[str, str]] = draw(st.dictionaries(entities, quotas, max_size=3))
    if ClientEntity("u") in clients:
        clients[ClientEntity("u")] |= draw(users)
    image = image.with_client_configs(clients)
    image = image.with_brokers({each.id: each for each in draw(st.lists(brokers, max_size=3))})
    image = image.with_controllers({n: draw(controllers)._replace(id=n) for n in (0, 1)})
    image = image.with_acls(draw(st.dictionaries(uuids, acls, max_size=3)))
    image = image.with_tokens({each.token_id: each for each in draw(st.lists(tokens, max_size=2))})
    image = image.with_features({name: draw(small) for name in FEATURES}, 0)
    return image.with_next_producer_id(draw(small))


@settings(max_examples=60, deadline=None)
@given(images(), images())
def test_replayed_difference_is_the_image_after(before: ClusterImage, after: ClusterImage) -> None:
    known = content(before)
    found = replay(through_bytes(difference(before, after)), before)
    assert content(found) == content(after)
    assert content(before) == known, "an image never changes"
    assert difference(found, after) == []


@settings(max_examples=30, deadline=None)
@given(images())
def test_image_is_rebuilt_from_an_empty_one(image: ClusterImage) -> None:
    assert content(replay(through_bytes(difference(ClusterImage(), image)), ClusterImage())) == content(image)


STATE = PartitionState(1, 4, (1, 2), (1, 2), 7)
IMAGE = ClusterImage().with_topic(Topic("orders", b"t" * 16, (STATE, STATE)))


def with_state(state: PartitionState) -> ClusterImage:
    return IMAGE.with_topic(IMAGE.topics["orders"]._replace(partitions=(STATE, state)))


def test_election_is_a_change_of_leader_and_isr() -> None:
    after = STATE._replace(leader=2, leader_epoch=5, isr=(2,), partition_epoch=8)
    assert difference(IMAGE, with_state(after)) == [md.PartitionChangeRecord(1, b"t" * 16, isr=[2], leader=2)]


def test_empty_isr_with_elr_is_carried() -> None:
    after = STATE._replace(leader=-1, leader_epoch=5, isr=(), elr=(1,), last_known_elr=(2,), partition_epoch=8)
    (record,) = difference(IMAGE, with_state(after))
    assert isinstance(record, md.PartitionChangeRecord)
    assert replay([record], IMAGE).partition("orders", 1) == after


HOME, AWAY = b"h" * 16, b"a" * 16
PLACED = STATE._replace(directories=(HOME, AWAY))


@pytest.mark.parametrize(
    ("replicas", "directories"),
    [((2,), (AWAY,)), ((2, 1), (AWAY, HOME)), ((1, 3), (HOME, AWAY)), ((1, 2, 3), (HOME, AWAY, UNASSIGNED))],
    ids=["fewer", "reordered", "replaced", "more"],
)
def test_changed_replicas_are_named_with_their_directories(
    replicas: tuple[int, ...], directories: tuple[bytes, ...]
) -> None:
    """Apache Kafka keeps directories by position: its nodes ended at a record that named the replicas alone."""
    after = PLACED._replace(replicas=replicas, directories=directories, partition_epoch=8)
    (record,) = difference(with_state(PLACED), with_state(after))
    assert record == md.PartitionChangeRecord(1, b"t" * 16, replicas=list(replicas), directories=list(directories))
    assert replay([record], with_state(PLACED)).partition("orders", 1) == after


def test_directories_are_not_named_where_replicas_stay() -> None:
    after = with_state(PLACED._replace(isr=(1,), partition_epoch=8))
    assert difference(with_state(PLACED), after) == [md.PartitionChangeRecord(1, b"t" * 16, isr=[1])]


def test_changed_replicas_without_directories_are_rejected() -> None:
    with pytest.raises(CorruptMetadata, match="3 replicas and 2 directories"):
        replay([md.PartitionChangeRecord(1, b"t" * 16, replicas=[1, 2, 3])], with_state(PLACED))


def test_epoch_that_jumps_takes_the_complete_record() -> None:
    (record,) = difference(IMAGE, with_state(STATE._replace(partition_epoch=20)))
    assert isinstance(record, md.PartitionRecord)


def test_what_no_record_carries_makes_none_and_stays() -> None:
    after = with_state(STATE._replace(controller_epoch=3, leader_broker_epoch=9, offline_replicas=(2,)))
    assert difference(IMAGE, after.with_cluster_id("c").with_controller(1, 2)) == []
    found = replay([md.PartitionChangeRecord(1, b"t" * 16, isr=[1])], after).partition("orders", 1)
    assert found is not None
    assert (found.controller_epoch, found.leader_broker_epoch, found.offline_replicas) == (3, 9, (2,))


def test_unchanged_topic_is_shared() -> None:
    both = IMAGE.with_topic(Topic("other", b"o" * 16, (STATE,)))
    after = replay([md.PartitionChangeRecord(0, b"o" * 16, isr=[1])], both)
    assert after.topics["orders"] is both.topics["orders"]
    assert after.topics["orders"].partitions[1] is STATE
    assert replay([], both).topics is both.topics


def test_cleared_elr_is_one_change_of_the_partition() -> None:
    image = with_state(STATE._replace(elr=(2,), last_known_elr=(1,)))
    for record in (md.ClearElrRecord("orders"), md.ClearElrRecord("")):
        found = replay([record], image).topics["orders"].partitions
        assert found == (STATE, STATE._replace(partition_epoch=8))


def test_fence_records_of_old_logs_are_replayed() -> None:
    image = ClusterImage().with_broker(Broker(1, 5, None, {}))
    fenced = replay([md.FenceBrokerRecord(1, 5)], image)
    assert fenced.brokers[1].fenced
    assert not replay([md.UnfenceBrokerRecord(1, 5)], fenced).brokers[1].fenced


@pytest.mark.parametrize(
    "record",
    [
        md.PartitionRecord(0, b"x" * 16),
        md.PartitionChangeRecord(9, b"t" * 16),
        md.RemoveTopicRecord(b"x" * 16),
        md.ClearElrRecord("missing"),
        md.UnregisterBrokerRecord(1, 4),
        md.BrokerRegistrationChangeRecord(2, 5),
        md.UserScramCredentialRecord("u", 9),
        md.BeginTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_record_that_does_not_fit_the_image_is_rejected(record: Any) -> None:
    with pytest.raises(CorruptMetadata):
        replay([record], IMAGE.with_broker(Broker(1, 5, None, {})))


def test_topic_with_a_gap_in_its_partitions_is_rejected() -> None:
    with pytest.raises(CorruptMetadata, match="topic orders has no partition 2, but a partition 3"):
        replay([md.PartitionRecord(3, b"t" * 16)], IMAGE)


def test_removed_feature_or_controller_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"group\.version"):
        difference(IMAGE.with_features({"group.version": 1}, 0), IMAGE)
    controller = ControllerRegistration(7, b"i" * 16, {})
    with pytest.raises(ValueError, match="7"):
        difference(IMAGE.with_controllers({7: controller}), IMAGE)
