import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.internal_topics import creatable
from odradek.controller.names import colliding, name_problem
from odradek.controller.outcome import STEP_PARTITIONS
from odradek.controller.topics import (
    DeletedTopic,
    MorePartitions,
    NewTopic,
    TopicReference,
    create_partitions,
    create_partitions_in_steps,
    create_topics,
    create_topics_in_steps,
    delete_topics,
)
from odradek.metadata.image import Broker, ClusterImage, PartitionState
from odradek.metadata.nodes import PartitionNode
from odradek.ports.randomness import SeededRandom
from odradek.ports.store import Create, Delete, Put
from odradek.wire.errors import ErrorCode

SETTINGS = BrokerConfig({"num.partitions": "4"})
ONE = ClusterImage().with_controller(1, 7).with_broker(Broker(1, 0, None, {}))
THREE = ONE.with_broker(Broker(2, 0, None, {})).with_broker(Broker(3, 0, None, {}))
ILLEGAL_CHARACTERS = (
    "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
)


def random() -> SeededRandom:
    return SeededRandom("topics")


def with_topics(image: ClusterImage, *topics: NewTopic) -> ClusterImage:
    decision = create_topics(image, topics, SETTINGS, random())
    assert all(reply.failure is None for reply in decision.replies), decision.replies
    return decision.image


def test_a_topic_with_the_defaults() -> None:
    decision = create_topics(ONE, [NewTopic("t", configs=[("retention.ms", "5")])], SETTINGS, random())
    (reply,) = decision.replies
    topic = decision.image.topics["t"]
    assert reply.topic is topic
    assert reply.failure is None
    state = PartitionState(1, 0, (1,), (1,), controller_epoch=7, leader_broker_epoch=ONE.brokers[1].epoch)
    assert topic.partitions == (state,) * 4
    assert topic.configs == {"retention.ms": "5"}
    assert decision.image.topic_names[topic.id] == "t"
    paths = [operation.path for operation in decision.operations]
    assert paths == ["/config/topics/t", "/brokers/topics/t"] + [
        f"/brokers/topics/t/partitions/{i}/state" for i in range(4)
    ]
    assert all(isinstance(operation, Create) for operation in decision.operations)


def test_validate_only_answers_the_same_and_changes_nothing() -> None:
    wanted = [NewTopic("t", 2, 1), NewTopic("bad name", 1, 1)]
    done = create_topics(ONE, wanted, SETTINGS, random())
    tried = create_topics(ONE, wanted, SETTINGS, random(), validate_only=True)
    assert tried.replies == done.replies
    assert tried.image is ONE
    assert not tried.operations


def test_a_failed_topic_leaves_the_others() -> None:
    decision = create_topics(ONE, [NewTopic("a b", 1, 1), NewTopic("ok", 1, 1)], SETTINGS, random())
    assert [reply.failure is None for reply in decision.replies] == [False, True]
    assert set(decision.image.topics) == {"ok"}


# Each code and message was taken from a broker of Apache Kafka 4.3.0.
@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (NewTopic("t", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists."),
        (NewTopic("a_b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b"),
        (
            NewTopic("", 1, 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (NewTopic(".", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
        (NewTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
        (
            NewTopic("a b", 1, 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ILLEGAL_CHARACTERS,
        ),
        (
            NewTopic("x" * 250, 1, 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
        (
            NewTopic("__cluster_metadata", 1, 1),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            NewTopic("p", 0, 1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("p", -2, 1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("p", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("p", 1, 2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            (
                "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached "
                "because only 1 broker(s) are registered or some brokers have all their log directories cordoned."
            ),
        ),
        (NewTopic("p", 10_001, 1), ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."),
        (
            NewTopic("p", 1, 1, (), [("retention.ms", "abc")]),
            ErrorCode.INVALID_CONFIG,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            NewTopic("p", 1, 1, (), [("retention.ms", None)]),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            NewTopic("p", -1, -1, [(0, [1]), (1, [2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            NewTopic("p", -1, -1, [(0, [1, 1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("p", -1, -1, [(0, [])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic("p", 2, -1, [(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("p", -1, 1, [(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("p", -1, -1, [(0, [1]), (2, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("p", -1, -1, [(0, [1]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
    ],
)
def test_topics_are_rejected_as_kafka_does(topic: NewTopic, code: ErrorCode, message: str) -> None:
    image = with_topics(ONE, NewTopic("t", 1, 1), NewTopic("a.b", 1, 1))
    decision = create_topics(image, [topic], SETTINGS, random())
    (reply,) = decision.replies
    assert reply.topic is None
    assert reply.failure == (code, message)
    assert decision.image is image
    assert not decision.operations


def test_manual_assignments() -> None:
    image = with_topics(THREE, NewTopic("t", assignments=[(1, [3, 1]), (0, [2, 3])]))
    assert [(p.leader, p.replicas, p.isr) for p in image.topics["t"].partitions] == [
        (2, (2, 3), (2, 3)),
        (3, (3, 1), (3, 1)),
    ]
    uneven = create_topics(THREE, [NewTopic("u", assignments=[(0, [1]), (1, [1, 2])])], SETTINGS, random())
    failure = uneven.replies[0].failure
    assert failure is not None
    assert failure.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "which have 1 replica(s)" in (failure.message or "")


def test_a_fenced_replica_is_out_of_sync() -> None:
    image = THREE.with_broker(Broker(2, 0, None, {}, fenced=True))
    made = with_topics(image, NewTopic("t", assignments=[(0, [2, 3])])).topics["t"].partitions[0]
    assert (made.leader, made.isr) == (3, (3,))
    decision = create_topics(image, [NewTopic("t", assignments=[(0, [2])])], SETTINGS, random())
    failure = decision.replies[0].failure
    assert failure is not None
    assert failure.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_name_twice_fails_once() -> None:
    decision = create_topics(ONE, [NewTopic("d", 1, 1), NewTopic("d", 1, 1), NewTopic("o", 1, 1)], SETTINGS, random())
    assert [(reply.name, reply.failure) for reply in decision.replies] == [
        ("d", (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")),
        ("o", None),
    ]


def test_names() -> None:
    assert name_problem("x" * 249) is None
    assert name_problem("a.b_c-D9") is None
    assert name_problem("tëst") is not None
    assert colliding("a_b", ["a.b"]) == "a.b"
    assert colliding("a.b", ["a_b"]) == "a_b"
    assert colliding("a_b", ["a_b", "axb"]) is None
    assert colliding("ab", ["ab"]) is None


def test_delete_by_name_and_by_id() -> None:
    image = with_topics(ONE, NewTopic("a", 2, 1), NewTopic("b", 1, 1), NewTopic("c", 1, 1))
    a, b = image.topics["a"], image.topics["b"]
    decision = delete_topics(image, [TopicReference("a"), TopicReference(None, b.id)], SETTINGS)
    assert decision.replies == [DeletedTopic("a", a.id, None), DeletedTopic("b", b.id, None)]
    assert set(decision.image.topics) == {"c"}
    assert set(decision.image.topic_names.values()) == {"c"}
    assert all(isinstance(operation, Delete) for operation in decision.operations)
    assert not any("/c" in operation.path.removeprefix("/config") for operation in decision.operations)


def test_deletions_are_rejected_as_kafka_does() -> None:
    image = with_topics(ONE, NewTopic("a", 1, 1))
    a = image.topics["a"]
    references = [
        TopicReference("nope"),
        TopicReference(None, b"x" * 16),
        TopicReference("a", a.id),
        TopicReference(None),
        TopicReference("twice"),
        TopicReference(None, b"y" * 16),
        TopicReference("twice"),
        TopicReference(None, b"y" * 16),
    ]
    decision = delete_topics(image, references, SETTINGS)
    assert [reply.failure for reply in decision.replies] == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (ErrorCode.UNKNOWN_TOPIC_ID, None),
        (ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."),
        (ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."),
        (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        (ErrorCode.INVALID_REQUEST, "Duplicate topic id."),
    ]
    assert not decision.operations
    both = delete_topics(image, [TopicReference("a"), TopicReference(None, a.id)], SETTINGS)
    assert [reply.failure is None for reply in both.replies] == [True, False]


def test_deletion_can_be_switched_off() -> None:
    image = with_topics(ONE, NewTopic("a", 1, 1))
    decision = delete_topics(image, [TopicReference("a")], BrokerConfig({"delete.topic.enable": "false"}))
    assert decision.replies[0].failure == (ErrorCode.TOPIC_DELETION_DISABLED, None)
    assert decision.image is image


def test_topics_grow() -> None:
    image = with_topics(THREE, NewTopic("t", 2, 2))
    decision = create_partitions(image, [MorePartitions("t", 5)], random())
    grown = decision.image.topics["t"]
    assert decision.replies[0].failure is None
    assert grown.id == image.topics["t"].id
    assert grown.partitions[:2] == image.topics["t"].partitions
    assert [len(partition.replicas) for partition in grown.partitions] == [2] * 5
    first, *rest = decision.operations
    assert isinstance(first, Put)
    assert [operation.path.split("/")[5] for operation in rest] == ["2", "3", "4"]
    tried = create_partitions(image, [MorePartitions("t", 5)], random(), validate_only=True)
    assert tried.image is image
    assert not tried.operations


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (MorePartitions("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (MorePartitions("t", 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            MorePartitions("t", 1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            MorePartitions("t", 4, [[1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            MorePartitions("t", 3, [[2]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            MorePartitions("t", 3, [[1, 1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            MorePartitions("t", 20_000),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
    ],
)
def test_growth_is_rejected_as_kafka_does(topic: MorePartitions, code: ErrorCode, message: str | None) -> None:
    image = with_topics(ONE, NewTopic("t", 2, 1))
    decision = create_partitions(image, [topic], random())
    assert decision.replies[0].failure == (code, message)
    assert decision.image is image


def test_internal_topics_are_made_as_configured() -> None:
    offsets = creatable("__consumer_offsets", BrokerConfig({}), 1)
    assert (offsets.num_partitions, offsets.replication_factor) == (50, 1)
    assert dict(offsets.configs) == {
        "cleanup.policy": "compact",
        "segment.bytes": "104857600",
        "compression.type": "producer",
    }
    assert creatable("__consumer_offsets", BrokerConfig({}), 5).replication_factor == 3
    assert (
        creatable("__consumer_offsets", BrokerConfig({"offsets.topic.replication.factor": "2"}), 1).replication_factor
        == 2
    )
    three = BrokerConfig({"offsets.topic.replication.factor": "3"})
    assert creatable("__consumer_offsets", three, 1).replication_factor == 3, "it is what was asked for"
    transactions = creatable("__transaction_state", BrokerConfig({}), 3)
    assert transactions.replication_factor == 3
    assert dict(transactions.configs)["min.insync.replicas"] == "2"
    assert creatable("plain", BrokerConfig({}), 1) == NewTopic("plain")
    with_topics(
        ONE, creatable("__consumer_offsets", BrokerConfig({}), 1), creatable("__transaction_state", SETTINGS, 1)
    )


def test_growth_of_several_topics_may_be_split_between_any_partitions() -> None:
    """A large growth does not fit into one transaction of the store; the first write must not stand alone."""
    image = with_topics(THREE, NewTopic("a", 1, 1), NewTopic("b", 1, 1))
    decision = create_partitions(image, [MorePartitions("a", 3), MorePartitions("b", 2)], random())
    assert len(decision.operations) == 5
    assert list(decision.cuts) == [1, 2, 3, 4]


def test_audit_topic_is_made_as_configured() -> None:
    topic = creatable("__odradek_audit", BrokerConfig({"odradek.audit.topic.retention.ms": "60000"}), 1)
    assert (topic.num_partitions, topic.replication_factor) == (1, 1)
    assert dict(topic.configs) == {
        "cleanup.policy": "delete",
        "segment.bytes": "104857600",
        "retention.ms": "60000",
        "min.insync.replicas": "1",
    }


def test_addition_of_many_partitions_takes_many_steps() -> None:
    """No step has more than a few dozen partitions, and all of them together add each partition once."""
    image = create_topics(THREE, [NewTopic("t", 2, 2)], SETTINGS, random()).image
    wanted = [MorePartitions("t", 2 + 20 * STEP_PARTITIONS)]
    steps = create_partitions_in_steps(image, wanted, random())
    assert sum(1 for _ in steps) == 2 * (20 - 1)
    decided = create_partitions(image, wanted, random())
    assert len(decided.image.topics["t"].partitions) == 2 + 20 * STEP_PARTITIONS
    states = [each.path for each in decided.operations if each.path.endswith("/state")]
    assert states == [PartitionNode.path("t", index) for index in range(2, 2 + 20 * STEP_PARTITIONS)]


def test_creation_of_many_partitions_takes_many_steps() -> None:
    """The event loop may serve others between two of them: while replicas are placed, and while states are encoded."""
    steps = create_topics_in_steps(THREE, [NewTopic("t", 20 * STEP_PARTITIONS, 2)], SETTINGS, random())
    assert sum(1 for _ in steps) == 2 * (20 - 1)
