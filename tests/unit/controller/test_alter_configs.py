import asyncio

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.configs import ConfigChange, OperationType, ResourceChanges, ResourceType, alter_configs
from odradek.metadata.changes import load_image
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.nodes import ConfigNode
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.ports.store import Create, Delete, Put
from odradek.wire.errors import ErrorCode

SET, DELETE, APPEND, SUBTRACT = OperationType
TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP
METRICS = ResourceType.CLIENT_METRICS
SETTINGS = BrokerConfig({})
IMAGE = (
    ClusterImage()
    .with_broker(Broker(1, 0, None, {}))
    .with_topic(Topic("t", b"i" * 16, (PartitionState(1, 0, (1,), (1,)),), {"retention.ms": "5"}))
)
ILLEGAL_CHARACTERS = (
    "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
)


def change(kind: int, name: str, *changes: tuple[str, str | None, int], replace: bool = False) -> ResourceChanges:
    return ResourceChanges(kind, name, [ConfigChange(n, o, v) for n, v, o in changes], replace)


def test_topics() -> None:
    decision = alter_configs(
        IMAGE, [change(TOPIC, "t", ("segment.ms", "7", SET), ("retention.ms", None, DELETE))], SETTINGS
    )
    assert decision.replies[0].failure is None
    assert decision.image.topic_configs("t") == {"segment.ms": "7"}
    (operation,) = decision.operations
    assert isinstance(operation, Put)
    assert operation.path == "/config/topics/t"


def test_lists_change_by_their_members() -> None:
    appended = alter_configs(IMAGE, [change(TOPIC, "t", ("cleanup.policy", "compact", APPEND))], SETTINGS).image
    assert appended.topic_configs("t")["cleanup.policy"] == "delete,compact"
    again = alter_configs(appended, [change(TOPIC, "t", ("cleanup.policy", "compact", APPEND))], SETTINGS)
    assert not again.operations
    less = alter_configs(appended, [change(TOPIC, "t", ("cleanup.policy", "delete", SUBTRACT))], SETTINGS).image
    assert less.topic_configs("t")["cleanup.policy"] == "compact"


def test_the_older_call_replaces_everything() -> None:
    decision = alter_configs(IMAGE, [change(TOPIC, "t", ("segment.ms", "7", SET), replace=True)], SETTINGS)
    assert decision.image.topic_configs("t") == {"segment.ms": "7"}


def test_validate_only_changes_nothing() -> None:
    decision = alter_configs(IMAGE, [change(TOPIC, "t", ("segment.ms", "7", SET))], SETTINGS, validate_only=True)
    assert decision.image is IMAGE
    assert not decision.operations
    assert decision.replies[0].failure is None


def test_brokers_and_groups_have_a_node_while_something_is_set() -> None:
    decision = alter_configs(
        IMAGE,
        [
            change(BROKER, "1", ("num.io.threads", "3", SET)),
            change(BROKER, "", ("log.retention.ms", "9", SET)),
            change(GROUP, "g", ("consumer.session.timeout.ms", "50000", SET)),
        ],
        SETTINGS,
    )
    assert [reply.failure for reply in decision.replies] == [None] * 3
    assert decision.image.broker_configs == {"1": {"num.io.threads": "3"}, "": {"log.retention.ms": "9"}}
    assert decision.image.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
    assert [type(operation) for operation in decision.operations] == [Create] * 3
    assert [operation.path for operation in decision.operations] == [
        "/config/brokers/1",
        "/config/brokers/<default>",
        "/config/groups/g",
    ]
    emptied = alter_configs(decision.image, [change(BROKER, "1", ("num.io.threads", None, DELETE))], SETTINGS)
    assert emptied.operations == [Delete("/config/brokers/1")]
    assert emptied.image.broker_configs == {"": {"log.retention.ms": "9"}}
    put = alter_configs(decision.image, [change(BROKER, "1", ("num.io.threads", "4", SET))], SETTINGS)
    assert isinstance(put.operations[0], Put)


# Codes and messages were taken from a broker of Apache Kafka 4.3.0.
@pytest.mark.parametrize(
    ("resource", "code", "message"),
    [
        (
            change(TOPIC, "nope", ("retention.ms", "1", SET)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            change(TOPIC, "t", ("retention.ms", "x", SET)),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (change(TOPIC, "t", ("nope", "x", SET)), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (
            change(TOPIC, "t", ("retention.ms", "1", APPEND)),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            change(TOPIC, "a b", ("retention.ms", "1", SET)),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ILLEGAL_CHARACTERS,
        ),
        (
            change(TOPIC, "t", ("retention.ms", "1", SET), ("retention.ms", "2", SET)),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            change(TOPIC, "t", ("retention.ms", None, SET)),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            change(BROKER, "1", ("log.dirs", "/x", SET)),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [log.dirs]",
        ),
        (
            change(BROKER, "1", ("authorizer.class.name", "x.Y", SET)),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [authorizer.class.name]",
        ),
        (
            change(BROKER, "1", ("ssl.keystore.password", "secret", SET)),
            ErrorCode.INVALID_CONFIG,
            "ssl.keystore.password is refused: set it for one listener, as listener.name.NAME.ssl.keystore.password",
        ),
        (
            change(BROKER, "1", ("listener.name.a.ssl.client.auth", "none", SET)),
            ErrorCode.INVALID_CONFIG,
            (
                "listener.name.a.ssl.client.auth=none is refused: it is read from the broker's file, "
                "when the broker starts"
            ),
        ),
        (
            change(BROKER, "", ("listener.name.a.ssl.keystore.location", "/k", SET)),
            ErrorCode.INVALID_REQUEST,
            (
                "Cannot update these configs at default cluster level, broker id must be specified: "
                "[listener.name.a.ssl.keystore.location]"
            ),
        ),
        (
            change(BROKER, "", ("config.providers", "file", APPEND)),
            ErrorCode.INVALID_CONFIG,
            "config.providers=file is refused: references to secrets are resolved in the broker's file only",
        ),
        (
            change(BROKER, "1", ("num.io.threads", "x", SET)),
            ErrorCode.INVALID_REQUEST,
            "Invalid value x for configuration num.io.threads: Not a number of type INT",
        ),
        (
            change(BROKER, "x", ("num.io.threads", "1", SET)),
            ErrorCode.INVALID_REQUEST,
            "Unable to parse broker name as a base 10 number.",
        ),
        (change(GROUP, "g", ("nope", "1", SET)), ErrorCode.INVALID_CONFIG, "Unknown group config name: nope"),
        (change(3, "g", ("nope", "1", SET)), ErrorCode.INVALID_REQUEST, "Unsupported resource type 3"),
        (
            change(ResourceType.BROKER_LOGGER, "1", ("a", "INFO", SET)),
            ErrorCode.INVALID_REQUEST,
            "Unsupported resource type BROKER_LOGGER",
        ),
        (change(TOPIC, "t", ("retention.ms", "1", 9)), ErrorCode.INVALID_REQUEST, "Unknown operation type 9"),
    ],
)
def test_changes_are_rejected(resource: ResourceChanges, code: ErrorCode, message: str) -> None:
    decision = alter_configs(IMAGE, [resource], SETTINGS)
    assert decision.replies[0].failure == (code, message)
    assert decision.image is IMAGE
    assert not decision.operations


def test_other_refusals() -> None:
    (reply,) = alter_configs(IMAGE, [change(BROKER, "9", ("num.io.threads", "1", SET))], SETTINGS).replies
    assert reply.failure is not None
    assert reply.failure.code is ErrorCode.BROKER_NOT_AVAILABLE
    (reply,) = alter_configs(IMAGE, [change(BROKER, "1", ("listeners", "PLAINTEXT://:1", SET))], SETTINGS).replies
    assert reply.failure is not None
    assert reply.failure.code is ErrorCode.INVALID_REQUEST
    twice = [change(TOPIC, "t", ("segment.ms", "1", SET)), change(TOPIC, "t", ("segment.ms", "2", SET))]
    (reply,) = alter_configs(IMAGE, twice, SETTINGS).replies
    assert reply.failure == (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


@pytest.mark.parametrize(
    ("resource", "code", "message"),
    [
        (change(GROUP, "", ("x", "1", SET)), ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
        (change(METRICS, "", ("metrics", "a", SET)), ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"),
        (
            change(METRICS, "s", ("nope", "1", SET)),
            ErrorCode.INVALID_CONFIG,
            "Unknown client metrics configuration: nope",
        ),
        (
            change(METRICS, "s", ("match", "nope=x", SET)),
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: nope=x",
        ),
        (
            change(METRICS, "s", ("interval.ms", "99", SET)),
            ErrorCode.INVALID_CONFIG,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            change(METRICS, "s", ("interval.ms", "1000", APPEND)),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key interval.ms because its type is not LIST.",
        ),
    ],
)
def test_changes_of_groups_and_subscriptions_are_rejected(
    resource: ResourceChanges, code: ErrorCode, message: str
) -> None:
    decision = alter_configs(IMAGE, [resource], SETTINGS)
    assert decision.replies[0].failure == (code, message)
    assert not decision.operations


def test_subscription_changes_and_goes() -> None:
    created = alter_configs(
        IMAGE, [change(METRICS, "s", ("metrics", "a,b", SET), ("interval.ms", "100", SET))], SETTINGS
    )
    assert created.replies[0].failure is None
    assert created.image.client_metrics == {"s": {"metrics": "a,b", "interval.ms": "100"}}
    less = alter_configs(
        created.image, [change(METRICS, "s", ("metrics", "a", SUBTRACT), ("interval.ms", None, DELETE))], SETTINGS
    ).image
    assert less.client_metrics == {"s": {"metrics": "b"}}
    gone = alter_configs(less, [change(METRICS, "s", ("metrics", None, DELETE))], SETTINGS)
    assert gone.image.client_metrics == {}
    assert [type(operation) for operation in gone.operations] == [Delete]


def test_list_of_a_broker_is_appended_to_its_default() -> None:
    decision = alter_configs(IMAGE, [change(BROKER, "1", ("log.cleanup.policy", "compact", APPEND))], SETTINGS)
    assert decision.image.broker_configs == {"1": {"log.cleanup.policy": "delete,compact"}}


def test_rejected_resource_does_not_hide_the_next_one() -> None:
    """Each kind of rejection, before a change that is made."""
    good = change(TOPIC, "t", ("segment.ms", "7", SET))
    bad = (
        change(TOPIC, "missing", ("segment.ms", "7", SET)),
        change(TOPIC, "t2", ("segment.ms", "soon", SET)),
        change(BROKER, "1", ("listeners", "PLAINTEXT://:1", SET)),
        change(BROKER, "1", ("log.cleaner.threads", "many", SET)),
        change(BROKER, "1", ("ssl.client.auth", "maybe", SET)),
    )
    for each in bad:
        decision = alter_configs(IMAGE, [each, good], SETTINGS)
        first, second = decision.replies
        assert first.failure is not None
        assert second.failure is None
        assert decision.image.topic_configs("t")["segment.ms"] == "7"


def test_list_of_a_group_or_subscription_is_appended_to_nothing() -> None:
    decision = alter_configs(IMAGE, [change(METRICS, "s", ("metrics", "a,b", APPEND))], SETTINGS)
    assert decision.image.client_metrics["s"] == {"metrics": "a,b"}


def test_broker_setting_is_written_into_a_node_that_kafka_left_empty() -> None:
    """A tool of Apache Kafka leaves the node of a broker without settings in ZooKeeper: it could not be created."""

    async def scenario() -> dict[str, str]:
        store = MemoryStore()
        path = ConfigNode.broker_path("1")
        await store.apply([Create(path, ConfigNode.encode({}))])
        image = (await load_image(store)).with_broker(Broker(1, 0, None, {}))
        altered = alter_configs(image, [change(BROKER, "1", ("num.io.threads", "3", SET))], SETTINGS)
        await store.apply(altered.operations)
        node = await store.get(path)
        return {} if node is None else ConfigNode.decode(path, node.data)

    assert asyncio.run(scenario()) == {"num.io.threads": "3"}
