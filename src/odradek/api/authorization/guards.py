"""The guard of every API: what its declaration says, in the fields of its messages.

Source: Kafka's `KafkaApis`, `ControllerApis`, `AclApis`, `ConfigHelper`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from odradek.api.authorization.data_guards import guard_offset_commit, guard_produce
from odradek.api.authorization.group_guards import (
    assigned_topics_are_visible,
    group_operations,
    guard_find_coordinator,
    guard_offset_fetch,
    guard_sync_group,
    subscribed_topics,
    visible_groups,
)
from odradek.api.authorization.guarding import Check, Entries, Guard, Guarded, cluster, entries, guard, named
from odradek.api.authorization.topic_guards import (
    guard_create_topics,
    guard_delete_topics,
    guard_offset_for_leader_epoch,
)
from odradek.api.authorization.transaction_guards import (
    guard_add_partitions,
    may_initialize_producer,
    visible_topics_of_transactions,
    visible_transactions,
)
from odradek.api.authorization.visible_topics import visible_cluster_operations
from odradek.api.requests.context import RequestContext
from odradek.api.requests.declarations import DECLARATIONS, Audience
from odradek.authorization.authorizer import Access
from odradek.controller.configs import ResourceType as ConfigResourceType
from odradek.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsResponse

_O = AclOperation
_TOPIC, _GROUP, _TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID

_CONFIGURED: Final = {
    ConfigResourceType.TOPIC: (_TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ConfigResourceType.GROUP: (_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ConfigResourceType.BROKER: (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ConfigResourceType.BROKER_LOGGER: (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ConfigResourceType.CLIENT_METRICS: (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
}


def _configs(operation: AclOperation) -> Entries:
    """Configurations by the type of their resource; those of an unknown type are left to the handler."""

    def is_allowed(entry: Any, access: Access) -> bool:
        found = _CONFIGURED.get(entry.resource_type)
        if found is None:
            return True
        name = CLUSTER_NAME if found[0] is ResourceType.CLUSTER else entry.resource_name
        return access.allows(operation, found[0], name)

    return Entries("resources", is_allowed, lambda entry: _CONFIGURED[entry.resource_type][1])


def _cluster_operations(request: Any, answer: Any, _context: RequestContext[Guarded], access: Access) -> None:
    if request.include_cluster_authorized_operations and not answer.error_code:
        answer.cluster_authorized_operations = visible_cluster_operations(access)


def _guard_describe_log_dirs(
    request: Any,
    context: RequestContext[Guarded],
    access: Access,
    handle: Callable[[Any, RequestContext[Guarded]], Any],
) -> Any:
    """Before version 3, the answer has no room for an error: it names no directories."""
    if access.allows_cluster(_O.DESCRIBE):
        return handle(request, context)
    return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED if context.version >= 3 else 0)


def _write_markers(_request: Any, access: Access) -> None:
    if not access.allows_cluster(_O.ALTER, quiet=True) and not access.allows_cluster(_O.CLUSTER_ACTION):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def open_to_all(
    request: Any,
    context: RequestContext[Guarded],
    _access: Access,
    handle: Callable[[Any, RequestContext[Guarded]], Any],
) -> Any:
    """Of what every client may send, and of handlers that ask the access themselves."""
    return handle(request, context)


_MEMBER: Final[Check] = named(_O.READ, _GROUP, "group_id")
_PRODUCER: Final[Check] = named(_O.WRITE, _TRANSACTIONAL_ID, "transactional_id")
_CLUSTER_ACTION: Final = guard(cluster(_O.CLUSTER_ACTION))

_BETWEEN_BROKERS: Final = {
    declared.key: _CLUSTER_ACTION for declared in DECLARATIONS.values() if declared.audience is not Audience.CLIENTS
}

GUARDS: Final[dict[ApiKey, Guard]] = _BETWEEN_BROKERS | {
    ApiKey.PRODUCE: guard_produce,
    ApiKey.FETCH: open_to_all,
    ApiKey.LIST_OFFSETS: guard(entries=entries(_O.DESCRIBE, _TOPIC, "topics", "name")),
    ApiKey.METADATA: open_to_all,
    ApiKey.OFFSET_COMMIT: guard_offset_commit,
    ApiKey.OFFSET_FETCH: guard_offset_fetch,
    ApiKey.FIND_COORDINATOR: guard_find_coordinator,
    ApiKey.JOIN_GROUP: guard(_MEMBER),
    ApiKey.HEARTBEAT: guard(_MEMBER),
    ApiKey.LEAVE_GROUP: guard(_MEMBER, is_bare=True),
    ApiKey.SYNC_GROUP: guard_sync_group,
    ApiKey.DESCRIBE_GROUPS: guard(entries=entries(_O.DESCRIBE, _GROUP, "groups"), sees=group_operations),
    ApiKey.LIST_GROUPS: guard(sees=visible_groups),
    ApiKey.SASL_HANDSHAKE: open_to_all,
    ApiKey.API_VERSIONS: open_to_all,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: open_to_all,
    ApiKey.PUSH_TELEMETRY: open_to_all,
    ApiKey.CREATE_TOPICS: guard_create_topics,
    ApiKey.DELETE_TOPICS: guard_delete_topics,
    ApiKey.DELETE_RECORDS: guard(entries=entries(_O.DELETE, _TOPIC, "topics", "name")),
    ApiKey.INIT_PRODUCER_ID: guard(may_initialize_producer),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: guard_offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: guard_add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: guard(_PRODUCER, _MEMBER),
    ApiKey.END_TXN: guard(_PRODUCER),
    ApiKey.WRITE_TXN_MARKERS: guard(_write_markers),
    ApiKey.TXN_OFFSET_COMMIT: guard(_PRODUCER, _MEMBER, entries=entries(_O.READ, _TOPIC, "topics", "name")),
    ApiKey.DESCRIBE_ACLS: guard(cluster(_O.DESCRIBE)),
    ApiKey.CREATE_ACLS: guard(cluster(_O.ALTER)),
    ApiKey.DELETE_ACLS: guard(cluster(_O.ALTER)),
    ApiKey.DESCRIBE_CONFIGS: guard(entries=_configs(_O.DESCRIBE_CONFIGS)),
    ApiKey.ALTER_CONFIGS: guard(entries=_configs(_O.ALTER_CONFIGS)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: guard(cluster(_O.ALTER)),
    ApiKey.DESCRIBE_LOG_DIRS: _guard_describe_log_dirs,
    ApiKey.SASL_AUTHENTICATE: open_to_all,
    ApiKey.CREATE_PARTITIONS: guard(entries=entries(_O.ALTER, _TOPIC, "topics", "name")),
    # Tokens are changed by their owners and renewers; the handlers ask for the rights on tokens of others.
    ApiKey.CREATE_DELEGATION_TOKEN: open_to_all,
    ApiKey.RENEW_DELEGATION_TOKEN: open_to_all,
    ApiKey.EXPIRE_DELEGATION_TOKEN: open_to_all,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: open_to_all,
    ApiKey.DELETE_GROUPS: guard(entries=entries(_O.DELETE, _GROUP, "groups_names")),
    ApiKey.ELECT_LEADERS: guard(cluster(_O.ALTER)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: guard(entries=_configs(_O.ALTER_CONFIGS)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: guard(cluster(_O.ALTER)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: guard(cluster(_O.DESCRIBE)),
    ApiKey.OFFSET_DELETE: guard(
        named(_O.DELETE, _GROUP, "group_id"),
        entries=entries(_O.READ, _TOPIC, "topics", "name")._replace(is_asked_without=True),
        is_bare=True,
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: guard(cluster(_O.DESCRIBE_CONFIGS)),
    ApiKey.ALTER_CLIENT_QUOTAS: guard(cluster(_O.ALTER_CONFIGS)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: guard(cluster(_O.DESCRIBE)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: guard(cluster(_O.ALTER)),
    ApiKey.DESCRIBE_QUORUM: guard(cluster(_O.DESCRIBE), is_bare=True),
    ApiKey.ADD_RAFT_VOTER: guard(cluster(_O.ALTER)),
    ApiKey.REMOVE_RAFT_VOTER: guard(cluster(_O.ALTER)),
    ApiKey.UPDATE_FEATURES: guard(cluster(_O.ALTER)),
    ApiKey.DESCRIBE_CLUSTER: guard(sees=_cluster_operations),
    ApiKey.DESCRIBE_PRODUCERS: guard(entries=entries(_O.READ, _TOPIC, "topics", "name")),
    ApiKey.UNREGISTER_BROKER: guard(cluster(_O.ALTER)),
    ApiKey.DESCRIBE_TRANSACTIONS: guard(
        entries=entries(_O.DESCRIBE, _TRANSACTIONAL_ID, "transactional_ids"), sees=visible_topics_of_transactions
    ),
    ApiKey.LIST_TRANSACTIONS: guard(sees=visible_transactions),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: guard(_MEMBER, subscribed_topics),
    ApiKey.CONSUMER_GROUP_DESCRIBE: guard(
        entries=entries(_O.DESCRIBE, _GROUP, "group_ids"), sees=assigned_topics_are_visible
    ),
    ApiKey.LIST_CONFIG_RESOURCES: guard(cluster(_O.DESCRIBE_CONFIGS)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: open_to_all,
}
"""An API that is not here is refused where the broker has an authorizer."""

OWN_PARTS: Final[dict[ApiKey, Entries]] = dict.fromkeys(
    (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS), _configs(_O.ALTER_CONFIGS)
)
"""The entries of forwarded requests of which the broker that the client asks serves some itself."""
