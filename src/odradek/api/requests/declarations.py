"""What each API is: who may send it, where it is decided, what may overtake it, and which rights it needs.

One row per API that this broker serves; the dispatcher decides by it before a handler runs, and the ApiVersions answer
lists what is declared for clients. The handler is the function under `@api(ApiKey.X)` in the module `api_NN_name.py`,
which loads with the first request of its key: a broker that starts must not pay for sixty APIs of which a client uses
ten. The rights are those that Kafka's `KafkaApis` and `ControllerApis` ask for; the guards in `api/authorization`
decide on them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from odradek.api.requests.rights import Denial, Right
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode


class Audience(Enum):
    """Who sends requests of an API."""

    CLIENTS = "clients"
    """All clients."""
    BROKERS = "brokers"
    """Only a broker of this cluster, to any other."""
    CONTROLLER = "controller"
    """Only a broker of this cluster, to the controller."""


class Size(Enum):
    """The limits of a client's request, before it is decoded."""

    SMALL = "64 KiB"
    """Requests that a peer sends before it has proven anything."""
    CONTROL = "odradek.max.control.request.bytes"
    LARGE = "socket.request.max.bytes"
    """Requests that carry records."""


class Declaration(NamedTuple):
    """What the dispatcher knows of an API before it loads the handler."""

    key: ApiKey
    rights: tuple[Right, ...] = ()
    audience: Audience = Audience.CLIENTS
    is_forwarded: bool = False
    """The controller decides: another broker passes the request on in an Envelope (KIP-590)."""
    is_decided_by_quorum: bool = False
    """In a KRaft cluster the active controller decides; otherwise the broker that is asked does."""
    is_overtaking: bool = False
    """The connection's next request may start while the answer of this one still waits."""
    is_throttled: bool = True
    """Quotas may delay the client after the answer."""
    is_for_telemetry: bool = False
    """The ApiVersions answer lists the API only if this broker receives clients' metrics (KIP-714)."""
    is_for_sasl: bool = False
    """The ApiVersions answer lists the API on listeners with SASL only."""
    size: Size = Size.CONTROL
    """How many bytes a client's request may have."""
    names_topics: bool = False
    """The request has as many elements as topics and partitions; others have few."""

    @property
    def module(self) -> str:
        """The module of the handler in `odradek.api`."""
        return f"api_{self.key:02}_{self.key.name.lower()}"


_READ, _WRITE, _CREATE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
_ALTER, _DESCRIBE, _ANY = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.ANY
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
_TOPIC, _GROUP, _CLUSTER, _TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
_REQUEST, _HIDDEN, _NEXT, _REPORTED = Denial.REQUEST, Denial.HIDDEN, Denial.NEXT, Denial.REPORTED

_CLUSTER_ACTION: Final = Right(AclOperation.CLUSTER_ACTION, _CLUSTER, _REQUEST)
_ON_DEMAND: Final = "if the request asks for the authorized operations"


def _of_cluster(operation: AclOperation) -> tuple[Right, ...]:
    return (Right(operation, _CLUSTER, _REQUEST),)


def _of_member() -> tuple[Right, ...]:
    return (Right(_READ, _GROUP, _REQUEST),)


def _of_configs(operation: AclOperation) -> tuple[Right, ...]:
    return (
        Right(operation, _TOPIC, when="topics"),
        Right(operation, _CLUSTER, when="brokers, loggers of brokers, client metrics"),
        Right(operation, _GROUP, when="groups"),
    )


def _between_brokers(key: ApiKey, audience: Audience = Audience.BROKERS) -> Declaration:
    """What brokers ask each other grows with the cluster, and no client's quota is for it."""
    return Declaration(key, (_CLUSTER_ACTION,), audience, is_throttled=False, names_topics=True)


_DECLARED: Final = (
    Declaration(
        ApiKey.PRODUCE,
        (Right(_WRITE, _TRANSACTIONAL_ID, _REQUEST, "if a batch is transactional"), Right(_WRITE, _TOPIC)),
        is_overtaking=True,
        size=Size.LARGE,
        names_topics=True,
    ),
    Declaration(
        ApiKey.FETCH,
        (
            Right(
                AclOperation.CLUSTER_ACTION,
                _CLUSTER,
                when="if a follower fetches",
                denied_with=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ),
            Right(_READ, _TOPIC, when="if a consumer fetches: topics of the request and of the fetch session"),
        ),
        is_overtaking=True,
        names_topics=True,
    ),
    Declaration(ApiKey.LIST_OFFSETS, (Right(_DESCRIBE, _TOPIC),), names_topics=True),
    Declaration(
        ApiKey.METADATA,
        (
            Right(_DESCRIBE, _TOPIC, _HIDDEN, "if the request asks for all topics"),
            Right(_DESCRIBE, _TOPIC, when="topics by name"),
            Right(_DESCRIBE, _TOPIC, when="topics by id"),
            Right(_CREATE, _CLUSTER, _NEXT, "missing topics that are created automatically"),
            Right(_CREATE, _TOPIC, when="missing topics that are created automatically"),
            Right(_DESCRIBE, _CLUSTER, _REPORTED, _ON_DEMAND),
            Right(_ANY, _TOPIC, _REPORTED, _ON_DEMAND),
        ),
        names_topics=True,
    ),
    _between_brokers(ApiKey.LEADER_AND_ISR),
    _between_brokers(ApiKey.STOP_REPLICA),
    _between_brokers(ApiKey.UPDATE_METADATA),
    _between_brokers(ApiKey.CONTROLLED_SHUTDOWN, Audience.CONTROLLER),
    Declaration(
        ApiKey.OFFSET_COMMIT,
        (Right(_READ, _GROUP, _REQUEST), Right(_READ, _TOPIC)),
        is_overtaking=True,
        names_topics=True,
    ),
    Declaration(
        ApiKey.OFFSET_FETCH,
        (
            Right(_DESCRIBE, _GROUP),
            Right(_DESCRIBE, _TOPIC, when="topics of the request"),
            Right(_DESCRIBE, _TOPIC, _HIDDEN, "if the request asks for all topics of the group"),
        ),
        names_topics=True,
    ),
    Declaration(
        ApiKey.FIND_COORDINATOR,
        (
            Right(_DESCRIBE, _GROUP),
            Right(_DESCRIBE, _TRANSACTIONAL_ID),
            Right(AclOperation.CLUSTER_ACTION, _CLUSTER, _REQUEST, "if the key is that of a share partition"),
        ),
    ),
    Declaration(ApiKey.JOIN_GROUP, _of_member()),
    Declaration(ApiKey.HEARTBEAT, _of_member()),
    Declaration(ApiKey.LEAVE_GROUP, _of_member()),
    Declaration(ApiKey.SYNC_GROUP, _of_member()),
    Declaration(ApiKey.DESCRIBE_GROUPS, (Right(_DESCRIBE, _GROUP), Right(_ANY, _GROUP, _REPORTED, _ON_DEMAND))),
    Declaration(ApiKey.LIST_GROUPS, (Right(_DESCRIBE, _CLUSTER, _NEXT), Right(_DESCRIBE, _GROUP, _HIDDEN))),
    Declaration(ApiKey.SASL_HANDSHAKE, is_for_sasl=True, is_throttled=False, size=Size.SMALL),
    Declaration(ApiKey.API_VERSIONS, size=Size.SMALL),
    Declaration(
        ApiKey.CREATE_TOPICS,
        (
            Right(_CREATE, _CLUSTER, _NEXT),
            Right(_CREATE, _TOPIC),
            Right(_DESCRIBE_CONFIGS, _TOPIC, when="created topics whose configuration is answered"),
        ),
        is_forwarded=True,
        names_topics=True,
    ),
    Declaration(
        ApiKey.DELETE_TOPICS,
        (
            Right(_DELETE, _CLUSTER, _NEXT),
            Right(_DESCRIBE, _TOPIC, when="topics by name"),
            Right(_DESCRIBE, _TOPIC, when="topics by id"),
            Right(_DELETE, _TOPIC),
        ),
        is_forwarded=True,
        names_topics=True,
    ),
    Declaration(ApiKey.DELETE_RECORDS, (Right(_DELETE, _TOPIC),), names_topics=True),
    Declaration(
        ApiKey.INIT_PRODUCER_ID,
        (
            Right(_WRITE, _TRANSACTIONAL_ID, _REQUEST),
            Right(AclOperation.TWO_PHASE_COMMIT, _TRANSACTIONAL_ID, _REQUEST, "if it enables two-phase commit"),
            Right(AclOperation.IDEMPOTENT_WRITE, _CLUSTER, _NEXT, "without a transactional id"),
            Right(
                _WRITE,
                _TOPIC,
                _REQUEST,
                "without a transactional id: on any topic",
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ),
        ),
    ),
    Declaration(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        (Right(AclOperation.CLUSTER_ACTION, _CLUSTER, _NEXT), Right(_DESCRIBE, _TOPIC)),
        names_topics=True,
    ),
    Declaration(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        (
            Right(_WRITE, _TRANSACTIONAL_ID, _REQUEST, "version 3 and below"),
            Right(_WRITE, _TOPIC, when="version 3 and below: if one topic is denied, none is added"),
            Right(AclOperation.CLUSTER_ACTION, _CLUSTER, _REQUEST, "version 4 and above, which brokers send"),
        ),
        names_topics=True,
    ),
    Declaration(
        ApiKey.ADD_OFFSETS_TO_TXN,
        (Right(_WRITE, _TRANSACTIONAL_ID, _REQUEST), Right(_READ, _GROUP, _REQUEST)),
    ),
    Declaration(ApiKey.END_TXN, (Right(_WRITE, _TRANSACTIONAL_ID, _REQUEST),)),
    Declaration(
        ApiKey.WRITE_TXN_MARKERS,
        (Right(_ALTER, _CLUSTER, _NEXT), _CLUSTER_ACTION),
        is_throttled=False,
        names_topics=True,
    ),
    Declaration(
        ApiKey.TXN_OFFSET_COMMIT,
        (Right(_WRITE, _TRANSACTIONAL_ID, _REQUEST), Right(_READ, _GROUP, _REQUEST), Right(_READ, _TOPIC)),
        names_topics=True,
    ),
    Declaration(ApiKey.DESCRIBE_ACLS, _of_cluster(_DESCRIBE)),
    Declaration(ApiKey.CREATE_ACLS, _of_cluster(_ALTER), is_decided_by_quorum=True),
    Declaration(ApiKey.DELETE_ACLS, _of_cluster(_ALTER), is_decided_by_quorum=True),
    Declaration(ApiKey.DESCRIBE_CONFIGS, _of_configs(_DESCRIBE_CONFIGS), names_topics=True),
    Declaration(ApiKey.ALTER_CONFIGS, _of_configs(_ALTER_CONFIGS), is_forwarded=True, names_topics=True),
    Declaration(ApiKey.ALTER_REPLICA_LOG_DIRS, _of_cluster(_ALTER), names_topics=True),
    Declaration(ApiKey.DESCRIBE_LOG_DIRS, _of_cluster(_DESCRIBE), names_topics=True),
    Declaration(ApiKey.SASL_AUTHENTICATE, is_for_sasl=True, is_throttled=False, size=Size.SMALL),
    Declaration(ApiKey.CREATE_PARTITIONS, (Right(_ALTER, _TOPIC),), is_forwarded=True, names_topics=True),
    Declaration(
        ApiKey.CREATE_DELEGATION_TOKEN,
        (Right(AclOperation.CREATE_TOKENS, ResourceType.USER, _REQUEST, "if the owner is another user"),),
        is_decided_by_quorum=True,
    ),
    Declaration(ApiKey.RENEW_DELEGATION_TOKEN, is_decided_by_quorum=True),
    Declaration(ApiKey.EXPIRE_DELEGATION_TOKEN, is_decided_by_quorum=True),
    Declaration(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        (
            Right(_DESCRIBE, ResourceType.DELEGATION_TOKEN, _HIDDEN, "tokens of others"),
            Right(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, _HIDDEN, "tokens of others, by their owner"),
        ),
    ),
    Declaration(ApiKey.DELETE_GROUPS, (Right(_DELETE, _GROUP),)),
    Declaration(ApiKey.ELECT_LEADERS, _of_cluster(_ALTER), is_forwarded=True, names_topics=True),
    Declaration(ApiKey.INCREMENTAL_ALTER_CONFIGS, _of_configs(_ALTER_CONFIGS), is_forwarded=True, names_topics=True),
    Declaration(ApiKey.ALTER_PARTITION_REASSIGNMENTS, _of_cluster(_ALTER), is_forwarded=True, names_topics=True),
    Declaration(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        _of_cluster(_DESCRIBE),
        is_decided_by_quorum=True,
        names_topics=True,
    ),
    Declaration(ApiKey.OFFSET_DELETE, (Right(_DELETE, _GROUP, _REQUEST), Right(_READ, _TOPIC)), names_topics=True),
    Declaration(ApiKey.DESCRIBE_CLIENT_QUOTAS, _of_cluster(_DESCRIBE_CONFIGS)),
    Declaration(ApiKey.ALTER_CLIENT_QUOTAS, _of_cluster(_ALTER_CONFIGS), is_forwarded=True),
    Declaration(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, _of_cluster(_DESCRIBE)),
    Declaration(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, _of_cluster(_ALTER), is_forwarded=True),
    Declaration(ApiKey.DESCRIBE_QUORUM, _of_cluster(_DESCRIBE), is_decided_by_quorum=True),
    Declaration(ApiKey.ADD_RAFT_VOTER, _of_cluster(_ALTER), is_decided_by_quorum=True),
    Declaration(ApiKey.REMOVE_RAFT_VOTER, _of_cluster(_ALTER), is_decided_by_quorum=True),
    _between_brokers(ApiKey.ALTER_PARTITION, Audience.CONTROLLER),
    Declaration(ApiKey.UPDATE_FEATURES, _of_cluster(_ALTER), is_forwarded=True),
    _between_brokers(ApiKey.ENVELOPE, Audience.CONTROLLER),
    Declaration(ApiKey.DESCRIBE_CLUSTER, (Right(_DESCRIBE, _CLUSTER, _REPORTED, _ON_DEMAND),)),
    Declaration(ApiKey.DESCRIBE_PRODUCERS, (Right(_READ, _TOPIC),), names_topics=True),
    Declaration(ApiKey.UNREGISTER_BROKER, _of_cluster(_ALTER), is_forwarded=True),
    Declaration(
        ApiKey.DESCRIBE_TRANSACTIONS,
        (Right(_DESCRIBE, _TRANSACTIONAL_ID), Right(_DESCRIBE, _TOPIC, _HIDDEN)),
    ),
    Declaration(ApiKey.LIST_TRANSACTIONS, (Right(_DESCRIBE, _TRANSACTIONAL_ID, _HIDDEN),)),
    _between_brokers(ApiKey.ALLOCATE_PRODUCER_IDS, Audience.CONTROLLER),
    _between_brokers(ApiKey.LEADERSHIP_LEASE, Audience.CONTROLLER),
    _between_brokers(ApiKey.LEADERSHIP_PROMISE),
    Declaration(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        (
            Right(_READ, _GROUP, _REQUEST),
            Right(_DESCRIBE, _TOPIC, _REQUEST, "topics subscribed by name"),
            Right(_DESCRIBE, _TOPIC, _HIDDEN, "topics subscribed by a pattern"),
        ),
        names_topics=True,
    ),
    Declaration(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (
            Right(_DESCRIBE, _GROUP),
            Right(_DESCRIBE, _TOPIC, when="topics of the assignments: the group fails if one is denied"),
            Right(_ANY, _GROUP, _REPORTED, _ON_DEMAND),
        ),
    ),
    Declaration(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, is_for_telemetry=True),
    Declaration(ApiKey.PUSH_TELEMETRY, is_for_telemetry=True),
    Declaration(ApiKey.LIST_CONFIG_RESOURCES, _of_cluster(_DESCRIBE_CONFIGS)),
    Declaration(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        (
            Right(_DESCRIBE, _TOPIC, _HIDDEN, "if the request asks for all topics"),
            Right(_DESCRIBE, _TOPIC, when="topics by name"),
            Right(_ANY, _TOPIC, _REPORTED),
        ),
        names_topics=True,
    ),
)

DECLARATIONS: Final[dict[int, Declaration]] = {declared.key.value: declared for declared in _DECLARED}
"""API key -> what the API is, of every key that this broker serves, in the order of the keys."""
