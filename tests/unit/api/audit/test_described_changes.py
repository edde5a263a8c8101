"""What the audit topic says of each administrative request: the resource before and after, or the error."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.audit import topic_changes as topics
from odradek.api.audit.access_changes import created_acls, created_token, deleted_acls, extended_token
from odradek.api.audit.answered import Answered
from odradek.api.audit.config_changes import altered_configs, altered_quotas, altered_users
from odradek.api.audit.group_changes import committed_offsets, deleted_groups, deleted_offsets
from odradek.api.audit.trail import Change
from odradek.groups.events import FetchedOffset
from odradek.metadata.image import NO_BROKER, Broker, ClientEntity, ClusterImage, PartitionState, Topic
from odradek.metadata.nodes import id_text
from odradek.security.delegation_tokens import DelegationToken
from odradek.wire.errors import ErrorCode as E

TOPIC_ID = b"orders-0orders-0"
STATES = (PartitionState(1, 0, (1, 2), (1, 2)), PartitionState(2, 0, (2, 1, 3), (2,)))
TOPIC = Topic("orders", TOPIC_ID, STATES, {"retention.ms": "5"})
NONE = ClusterImage("c")
ONE = NONE.with_topic(TOPIC)
SHOWN = {
    "topic_id": id_text(TOPIC_ID),
    "partitions": 2,
    "replication_factor": 2,  # of partition 0
    "configs": {"retention.ms": "5"},
}


def of(**fields: Any) -> Any:
    """A message, or a part of one."""
    return SimpleNamespace(**fields)


def described(changes: Iterator[Change]) -> list[tuple[Any, ...]]:
    """Resource, before, after and error of each change."""
    return [(each.resource_name, each.before, each.after, each.error_code) for each in changes]


def created(code: int, *, validate_only: bool = False) -> Answered:
    answer = of(topics=[of(name="orders", error_code=code)])
    return Answered(of(validate_only=validate_only), answer, NONE, NONE if code else ONE)


def deleted(code: int, name: str | None = "orders", topic_id: bytes = TOPIC_ID) -> Answered:
    return Answered(of(), of(responses=[of(name=name, topic_id=topic_id, error_code=code)]), ONE, ONE if code else NONE)


def grown(code: int, *, validate_only: bool = False) -> Answered:
    after = ONE if code else ONE.with_topic(TOPIC._replace(partitions=(*STATES, STATES[0])))
    return Answered(of(validate_only=validate_only), of(results=[of(name="orders", error_code=code)]), ONE, after)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (topics.created_topics(created(0)), [("orders", None, SHOWN, 0)]),
        (topics.created_topics(created(E.POLICY_VIOLATION)), [("orders", None, None, 44)]),
        (topics.created_topics(created(0, validate_only=True)), []),
        (topics.deleted_topics(deleted(0)), [("orders", SHOWN, None, 0)]),
        (topics.deleted_topics(deleted(0, None)), [("orders", SHOWN, None, 0)]),
        (topics.deleted_topics(deleted(100, None, b"x" * 16)), [(id_text(b"x" * 16), None, None, 100)]),
        (topics.deleted_topics(deleted(E.NOT_CONTROLLER)), [("orders", SHOWN, SHOWN, 41)]),
        (topics.grown_topics(grown(0)), [("orders", SHOWN, {**SHOWN, "partitions": 3}, 0)]),
        (topics.grown_topics(grown(E.INVALID_PARTITIONS)), [("orders", SHOWN, SHOWN, 37)]),
        (topics.grown_topics(grown(0, validate_only=True)), []),
    ],
    ids=[
        "created",
        "not created",
        "creation tried",
        "deleted by name",
        "deleted by id",
        "unknown id",
        "not deleted",
        "grown",
        "not grown",
        "growth tried",
    ],
)
def test_topic_change_has_the_topic_before_and_after(changes: Iterator[Change], expected: list[Any]) -> None:
    assert described(changes) == expected


MOVED = ONE.with_topic(
    TOPIC._replace(
        partitions=(
            STATES[0]._replace(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(2,), leader=2, isr=(2,)),
            STATES[1],
        )
    )
)


@pytest.mark.parametrize(
    ("whole", "single", "error"), [(0, 0, 0), (0, 38, 38), (41, 0, 41)], ids=["done", "one failed", "all failed"]
)
def test_reassignment_and_election_have_the_partition_before_and_after(whole: int, single: int, error: int) -> None:
    parts = [of(partition_index=0, partition_id=0, error_code=single)]
    moved = of(error_code=whole, responses=[of(name="orders", partitions=parts)])
    before = {"partition": 0, "replicas": [1, 2], "adding_replicas": [], "removing_replicas": []}
    after = {"partition": 0, "replicas": [1, 2, 3], "adding_replicas": [3], "removing_replicas": [2]}
    changes = topics.reassigned_partitions(Answered(of(), moved, ONE, MOVED))
    assert described(changes) == [("orders", before, before if error else after, error)]
    elected = of(error_code=whole, replica_election_results=[of(topic="orders", partition_result=parts)])
    before, after = {"partition": 0, "leader": 1, "isr": [1, 2]}, {"partition": 0, "leader": 2, "isr": [2]}
    changes = topics.elected_leaders(Answered(of(), elected, ONE, MOVED))
    assert described(changes) == [("orders", before, before if error else after, error)]


def test_election_that_was_not_needed_is_no_change() -> None:
    parts = [of(partition_id=index, error_code=code) for index, code in enumerate([E.ELECTION_NOT_NEEDED, 3])]
    answer = of(error_code=0, replica_election_results=[of(topic="missing", partition_result=parts)])
    assert described(topics.elected_leaders(Answered(of(), answer, ONE, ONE))) == [("missing", None, None, 3)]


def test_replica_of_another_directory_has_the_path_that_the_request_names() -> None:
    request = of(
        dirs=[
            of(path="/a", topics=[of(name="orders", partitions=[0])]),
            of(path="/b", topics=[of(name="orders", partitions=[1, 2])]),
        ]
    )
    codes = [
        of(partition_index=0, error_code=0),
        of(partition_index=1, error_code=0),
        of(partition_index=2, error_code=57),
    ]
    answer = of(results=[of(topic_name="orders", partitions=codes)])
    assert described(topics.moved_replicas(Answered(request, answer, ONE, ONE))) == [
        ("orders", None, {"partition": 0, "log_dir": "/a"}, 0),
        ("orders", None, {"partition": 1, "log_dir": "/b"}, 0),
        ("orders", None, None, 57),
    ]


def test_deleted_records_have_the_log_start_offsets() -> None:
    parts = [
        of(partition_index=0, low_watermark=7, error_code=0),
        of(partition_index=1, low_watermark=-1, error_code=1),
    ]
    served = Answered(of(), of(topics=[of(name="orders", partitions=parts)]), ONE, ONE, {("orders", 1): 3})
    start = {"partition": 1, "log_start_offset": 3}
    assert described(topics.deleted_records(served)) == [
        ("orders", None, {"partition": 0, "log_start_offset": 7}, 0),
        ("orders", start, start, 1),
    ]


@pytest.mark.parametrize(
    ("whole", "codes", "error"), [(0, [0, 0], 0), (0, [0, 42], 42), (31, [0, 0], 31)], ids=["done", "one", "all"]
)
def test_features_have_their_levels(whole: int, codes: list[int], error: int) -> None:
    before, after = ClusterImage("c"), ClusterImage("c")
    after.features = {"a": 2, "other": 5}
    request = of(validate_only=False, feature_updates=[of(feature="a"), of(feature="b")])
    answer = of(error_code=whole, results=[of(error_code=code) for code in codes])
    was, now = {"a": None, "b": None}, {"a": 2, "b": None}
    [change] = topics.updated_features(Answered(request, answer, before, after))
    assert (change.resource_type, change.before, change.after) == ("CLUSTER", was, was if error else now)
    assert change.error_code == error
    tried = of(validate_only=True, feature_updates=request.feature_updates)
    assert not list(topics.updated_features(Answered(tried, answer, before, after)))


def test_unregistered_broker_was_registered() -> None:
    before = ClusterImage("c").with_brokers({4: Broker(4, NO_BROKER, None, {})})
    served = Answered(of(broker_id=4), of(error_code=0), before, NONE)
    assert described(topics.unregistered_broker(served)) == [("4", {"registered": True}, {"registered": False}, 0)]


def resource(kind: int, name: str, **configs: str | None) -> Any:
    named = [of(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return of(resource_type=kind, resource_name=name, error_code=0, configs=named)


def test_configurations_have_the_settings_that_were_named_or_changed() -> None:
    before = ONE.with_broker_configs("", {"log.cleaner.threads": "1"})
    after = ClusterImage("c").with_topic(TOPIC._replace(configs={"retention.ms": "5", "segment.ms": "9"}))
    after.group_configs = {"g": {"consumer.session.timeout.ms": "50000"}}
    after.client_metrics = {"m": {"interval.ms": "100"}}
    resources = [
        resource(2, "orders", retention_ms="5"),
        resource(4, ""),
        resource(32, "g"),
        resource(16, "m"),
        resource(8, "1", odradek_log="DEBUG"),
    ]
    request, answer = of(validate_only=False, resources=resources), of(responses=resources)
    changes = list(altered_configs(Answered(request, answer, before, after)))
    assert [each.resource_type for each in changes] == ["TOPIC", "BROKER", "GROUP", "CLIENT_METRICS", "BROKER_LOGGER"]
    assert described(iter(changes)) == [
        ("orders", {"retention.ms": "5", "segment.ms": None}, {"retention.ms": "5", "segment.ms": "9"}, 0),
        ("", {"log.cleaner.threads": "1"}, {"log.cleaner.threads": None}, 0),
        ("g", {"consumer.session.timeout.ms": None}, {"consumer.session.timeout.ms": "50000"}, 0),
        ("m", {"interval.ms": None}, {"interval.ms": "100"}, 0),
        ("1", None, {"odradek.log": "DEBUG"}, 0),
    ]
    for each in resources:
        each.error_code = 40
    assert [
        (each.before == each.after, each.error_code)
        for each in altered_configs(Answered(request, answer, after, after))
    ] == [(True, 40)] * 5
    tried = of(validate_only=True, resources=resources)
    assert not list(altered_configs(Answered(tried, answer, before, after)))


def test_quotas_have_their_values() -> None:
    entity = ClientEntity("alice")
    after = ClusterImage("c")
    after.client_configs = {entity: {"producer_byte_rate": "5.0"}}
    alice = [of(entity_type="user", entity_name="alice")]
    unknown = [of(entity_type="planet", entity_name=None)]
    for code, expected in ((0, {"producer_byte_rate": 5.0}), (42, {})):
        answer = of(entries=[of(entity=alice, error_code=code), of(entity=unknown, error_code=42)])
        served = Answered(of(validate_only=False), answer, NONE, after)
        assert described(altered_quotas(served)) == [
            ("user=alice", {}, expected, code),
            ("planet=<default>", None, None, 42),
        ]
    assert not list(altered_quotas(served._replace(request=of(validate_only=True))))


def test_users_have_their_mechanisms_without_secrets() -> None:
    after = ClusterImage("c")
    after.client_configs = {
        ClientEntity("alice"): {
            "SCRAM-SHA-256": "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096",
            "SCRAM-SHA-512": "unreadable",
            "producer_byte_rate": "5",
        }
    }
    request = of(
        upsertions=[of(name="alice", mechanism=2), of(name="alice", mechanism=1)],
        deletions=[of(name="bob", mechanism=9)],
    )
    answer = of(results=[of(user="alice", error_code=0), of(user="bob", error_code=91)])
    (_, _, alice, _), bob = described(altered_users(Answered(request, answer, NONE, after)))
    assert alice == {
        "SCRAM-SHA-256": {"iterations": 4096},
        "SCRAM-SHA-512": {},
        "written": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
    }
    assert bob == ("bob", {}, {}, 91)


ACL = {"principal": "User:a", "permission": "ALLOW", "operation": "READ", "host": "*", "pattern_type": "LITERAL"}


def acl(code: int = 0) -> Any:
    return of(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
        error_code=code,
    )


def test_acls_have_their_entry() -> None:
    request = of(creations=[acl(), acl()])
    made = Answered(request, of(results=[of(error_code=0), of(error_code=8)]), NONE, NONE)
    assert described(created_acls(made)) == [("orders", None, ACL, 0), ("orders", None, None, 8)]
    filters = [of(error_code=0, matching_acls=[acl(), acl(8)]), of(error_code=31, matching_acls=[])]
    gone = Answered(of(), of(filter_results=filters), NONE, NONE)
    assert described(deleted_acls(gone)) == [
        ("orders", ACL, None, 0),
        ("orders", ACL, ACL, 8),
        ("kafka-cluster", None, None, 31),
    ]


def test_tokens_have_owner_and_expiry() -> None:
    answer = of(
        error_code=0,
        token_id="t",
        principal_type="User",
        principal_name="alice",
        expiry_timestamp_ms=5,
        max_timestamp_ms=9,
    )
    request = of(renewers=[of(principal_type="User", principal_name="bob")], hmac=b"mac")
    after = {"owner": "User:alice", "renewers": ["User:bob"], "expiry_ms": 5, "max_ms": 9}
    assert described(created_token(Answered(request, answer, NONE, NONE))) == [("t", None, after, 0)]
    token = DelegationToken("t", "User:alice", "User:alice", (), 1, 9, 3)
    known = [(token._replace(token_id="other"), b"another"), (token, b"mac")]
    was = {"owner": "User:alice", "expiry_ms": 3}
    extended = Answered(request, answer, NONE, NONE, known)
    assert described(extended_token(extended)) == [("t", was, {**was, "expiry_ms": 5}, 0)]
    answer.error_code = 62
    assert described(extended_token(extended)) == [("t", was, was, 62)]
    assert described(extended_token(extended._replace(known=()))) == [("", None, None, 62)]
    assert described(created_token(extended)) == [("t", None, None, 62)]


def fetched(*offsets: int) -> list[FetchedOffset]:
    return [FetchedOffset(index, offset, -1, "", E.NONE) for index, offset in enumerate(offsets)]


def test_groups_have_their_offsets() -> None:
    known = {"g": [("t", fetched(5, -1))]}
    answer = of(results=[of(group_id="g", error_code=0), of(group_id="h", error_code=69)])
    was = {"offsets": {"t": {"0": 5, "1": None}}}
    assert described(deleted_groups(Answered(of(), answer, NONE, NONE, known))) == [
        ("g", was, None, 0),
        ("h", {"offsets": {}}, {"offsets": {}}, 69),
    ]
    parts = [of(partition_index=0, error_code=0), of(partition_index=1, error_code=86)]
    request = of(group_id="g", topics=[of(name="t")])
    answer = of(error_code=0, topics=[of(name="t", partitions=parts)])
    served = Answered(request, answer, NONE, NONE, known)
    (name, before, after, code) = described(deleted_offsets(served))[0]
    assert (name, code) == ("g", 0)
    assert (before, after) == ({"offsets": {"0": 5, "1": None}}, {"offsets": {"0": None, "1": None}})
    answer.error_code = 16
    assert described(deleted_offsets(served)) == [("g", None, None, 16)]
    answer.error_code, answer.topics = 0, [of(name="t", partitions=parts[1:])]
    assert [each[3] for each in described(deleted_offsets(served))] == [86]


def test_commit_from_outside_has_the_offsets_that_were_taken() -> None:
    wanted, codes = {"t": {"0": 9, "1": 8}}, {"t": {"0": 0, "1": 12}}
    [change] = committed_offsets("g", [("t", fetched(5, 6))], wanted, codes)
    assert (change.topic, change.before) == ("t", {"offsets": {"0": 5, "1": 6}})
    assert (change.after, change.error_code) == ({"offsets": {"0": 9, "1": 6}}, 0)
    [failed] = committed_offsets("g", None, wanted, {"t": {"0": 25, "1": 25}})
    assert (failed.before, failed.after) == ({"offsets": {"0": None, "1": None}},) * 2
    assert failed.error_code == 25
