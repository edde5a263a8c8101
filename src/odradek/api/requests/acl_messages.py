"""From the messages of ACLs to bindings and filters, with Kafka's checks.

Source: Kafka's `CreateAclsRequest.validate`, `AclApis`, `AclControlManager.validateNewAcl`.
"""

from __future__ import annotations

from typing import Final

from odradek.wire.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_acls import CreateAclsRequestCreation
from odradek.wire.messages.delete_acls import DeleteAclsRequestFilter
from odradek.wire.messages.describe_acls import DescribeAclsRequest

NO_AUTHORIZER: Final = "No Authorizer is configured."


def binding_of(creation: CreateAclsRequestCreation) -> AclBinding:
    """The ACL of an entry of CreateAcls. Raises KafkaError INVALID_REQUEST."""
    from odradek.authorization.hosts import is_valid_host  # a broker without an authorizer needs none of it

    binding = AclBinding(
        ResourceType(creation.resource_type),
        creation.resource_name,
        creation.principal,
        AclOperation(creation.operation),
        AclPermissionType(creation.permission_type),
        creation.host,
        PatternType(creation.resource_pattern_type),
    )
    kind, separator, name = binding.principal.partition(":")
    if binding.resource_type <= ResourceType.ANY:
        raise _invalid(f"Invalid resourceType {binding.resource_type.name}")
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {binding.pattern_type.name}")
    if binding.operation <= AclOperation.ANY:
        raise _invalid(f"Invalid operation {binding.operation.name}")
    if binding.permission <= AclPermissionType.ANY:
        raise _invalid(f"Invalid permissionType {binding.permission.name}")
    if binding.resource_type == ResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not binding.resource_name:
        raise _invalid("Invalid empty resource name")
    if not (kind and separator and name):
        raise _invalid(f"expected a string in format principalType:principalName but got {binding.principal}")
    if not is_valid_host(binding.host):
        raise _invalid(f"Invalid host {binding.host!r}: an address, a network such as 10.0.0.0/8, or *")
    return binding


def filter_of(request: DescribeAclsRequest | DeleteAclsRequestFilter) -> AclFilter:
    """The filter of a request. Raises KafkaError INVALID_REQUEST for codes that no version of Kafka has."""
    found = AclFilter(
        ResourceType(request.resource_type_filter),
        request.resource_name_filter,
        request.principal_filter,
        AclOperation(request.operation),
        AclPermissionType(request.permission_type),
        request.host_filter,
        PatternType(request.pattern_type_filter),
    )
    if 0 in (found.resource_type, found.operation, found.permission, found.pattern_type):
        raise _invalid("The AclBindingFilter must not contain UNKNOWN elements.")
    return found


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
