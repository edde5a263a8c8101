"""The APIs that a controller serves, and by what.

What brokers serve, too, has the same handlers; the quorum's own APIs are here. Source: Kafka's `ControllerApis`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast

from odradek.api.api_18_api_versions import version_table, versions_response
from odradek.api.api_58_envelope import serve_envelope
from odradek.api.requests.context import RequestContext
from odradek.api.requests.declarations import Declaration, Size
from odradek.api.requests.registry import Endpoint, endpoint
from odradek.api.requests.session import Authentication
from odradek.broker.quorum.services import ControllerServices
from odradek.metadata.features import CONTROLLER_FEATURES
from odradek.metadata.image import NO_BROKER
from odradek.wire.acls import AclOperation
from odradek.wire.apis import ApiKey, request_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)

if TYPE_CHECKING:
    from odradek.api.requests.context import Services

Context = RequestContext[ControllerServices]

_CONTROLLERS: Final = 2
"""The type of endpoints in DescribeCluster (KIP-919)."""
_SHARED: Final = (
    ApiKey.SASL_HANDSHAKE,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_PARTITION,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
_OF_BROKERS: Final = frozenset((ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS))
"""Of these the shared ones that only brokers send."""

_endpoints: dict[int, Endpoint] = {}
_guarded: dict[int, Endpoint] = {}


def controller_endpoint(key: int) -> Endpoint | None:
    """How a controller without an authorizer serves an API; None where it does not."""
    found = _endpoints.get(key)
    if found is None:
        if key in _OWN:
            found = _own_endpoint(ApiKey(key))
        elif key in _SHARED and (shared := endpoint(key)) is not None:
            found = shared._replace(is_guarded=False, own_part=None)
        else:
            return None
        _endpoints[key] = found
    return found


def guarded_controller_endpoint(key: int) -> Endpoint | None:
    """How a controller with an authorizer serves an API: requests of brokers and voters need the right to act so."""
    found = _guarded.get(key)
    if found is None:
        plain = controller_endpoint(key)
        if plain is None or key in _OPEN:
            return plain
        if key in _OWN or key in _OF_BROKERS:
            found = plain._replace(handle=_of_cluster(plain, _RIGHTS.get(key, AclOperation.CLUSTER_ACTION)))
        else:
            from odradek.api.authorization.endpoints import guarded_endpoint

            shared = guarded_endpoint(key)
            assert shared is not None, "it is served without an authorizer"
            found = shared._replace(is_guarded=False, own_part=None)
        _guarded[key] = found
    return found


def _of_cluster(plain: Endpoint, operation: AclOperation) -> Callable[..., Any]:
    handle, name = plain.handle, plain.key.name

    def guarded(request: Any, context: Context) -> Any:
        access = context.access
        access.request, access.client_id = name, context.client_id
        if not access.allows_cluster(operation):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return handle(request, context)

    return guarded


def _own_endpoint(key: ApiKey) -> Endpoint:
    is_forwarded = key in _FORWARDED
    declared = Declaration(
        key, is_decided_by_quorum=is_forwarded, is_throttled=False, size=Size.CONTROL, names_topics=True
    )
    return Endpoint(declared, request_class(key).decode, _OWN[key])


# --- the quorum's own APIs ---


def _raft(request: Any, context: Context) -> Awaitable[Any]:
    return context.services.raft.serve(request, context.connection.identifier)


def _envelope(request: Any, context: Context) -> Awaitable[Any]:
    endpoints = controller_endpoint if context.services.authorization is None else guarded_controller_endpoint
    # Handlers of forwarded APIs read no other services than those that both kinds of nodes have.
    return serve_envelope(request, cast("RequestContext[Services]", context), endpoints)


def _describe_quorum(request: Any, context: Context) -> Any:
    return context.services.raft.describe(request, context.services.image(), context.version)


def _register_broker(request: Any, context: Context) -> Awaitable[Any]:
    return context.services.brokers.register(request, context.connection.identifier)


def _heartbeat(request: Any, context: Context) -> Awaitable[Any]:
    return context.services.brokers.heartbeat(request, context.connection.identifier)


def _register_controller(request: Any, context: Context) -> Awaitable[Any]:
    return context.services.brokers.register_controller(request)


def _assign_directories(request: Any, context: Context) -> Awaitable[Any]:
    return context.services.brokers.assign_directories(request)


def _api_versions(request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    with_sasl = context.session.authentication is not Authentication.NOT_REQUIRED
    hidden = () if with_sasl else (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    table = version_table(tuple(sorted({*_SHARED, *_OWN} - set(hidden))))
    return versions_response(request, context, table, CONTROLLER_FEATURES)


def _describe_cluster(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    if request.endpoint_type != _CONTROLLERS:
        text = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=text, endpoint_type=request.endpoint_type
        )
    image, listener = context.services.image(), context.session.listener_name
    return DescribeClusterResponse(
        endpoint_type=_CONTROLLERS,
        cluster_id=image.cluster_id,
        # One that has not registered yet is in no list.
        controller_id=image.controller_id if image.controller_id in image.controllers else NO_BROKER,
        brokers=[
            DescribeClusterResponseBroker(each.id, each.endpoints[listener].host, each.endpoints[listener].port)
            for _, each in sorted(image.controllers.items())
            if listener in each.endpoints
        ],
    )


_OWN: Final[dict[int, Callable[..., Any]]] = {
    ApiKey.FETCH: _raft,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.VOTE: _raft,
    ApiKey.BEGIN_QUORUM_EPOCH: _raft,
    ApiKey.END_QUORUM_EPOCH: _raft,
    ApiKey.DESCRIBE_QUORUM: _describe_quorum,
    ApiKey.ENVELOPE: _envelope,
    ApiKey.FETCH_SNAPSHOT: _raft,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.BROKER_REGISTRATION: _register_broker,
    ApiKey.BROKER_HEARTBEAT: _heartbeat,
    ApiKey.CONTROLLER_REGISTRATION: _register_controller,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _assign_directories,
    ApiKey.ADD_RAFT_VOTER: _raft,
    ApiKey.REMOVE_RAFT_VOTER: _raft,
    ApiKey.UPDATE_RAFT_VOTER: _raft,
}
_FORWARDED: Final = frozenset((ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER))
"""The quorum's own APIs that brokers pass on in an Envelope."""
_OPEN: Final = frozenset(
    (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER)
)
"""APIs that need no right: a client asks them before it has logged in, or for the controllers' addresses."""
_RIGHTS: Final[dict[int, AclOperation]] = {
    ApiKey.DESCRIBE_QUORUM: AclOperation.DESCRIBE,
    ApiKey.ADD_RAFT_VOTER: AclOperation.ALTER,
    ApiKey.REMOVE_RAFT_VOTER: AclOperation.ALTER,
}
"""Rights on the cluster for what tools ask; all others need CLUSTER_ACTION."""
