"""Access control lists. A broker without an authorizer answers SECURITY_DISABLED: it is raised or returned as such."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek.client.admin.requests import AdminRequests, failure_of, raise_failure
from odradek.client.network.cluster import error_of
from odradek.wire.acls import AclBinding, AclFilter, AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.wire.errors import KafkaError
from odradek.wire.messages.create_acls import CreateAclsRequest, CreateAclsRequestCreation, CreateAclsResponse
from odradek.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter, DeleteAclsResponse
from odradek.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

EVERY_ACL = AclFilter()


class AclsAdmin:
    """`admin.acls`.

    Example:

        allow = AclBinding(ResourceType.TOPIC, "orders", "User:anna", AclOperation.READ, AclPermissionType.ALLOW)
        raise_first(await admin.acls.create([allow]))
        print(await admin.acls.describe(AclFilter(ResourceType.TOPIC, "orders")))
        print(await admin.acls.delete([AclFilter(principal="User:anna")]))
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe(self, matching: AclFilter = EVERY_ACL) -> list[AclBinding]:
        """The ACLs that a filter matches. Raises KafkaError (SECURITY_DISABLED)."""
        request = DescribeAclsRequest(
            matching.resource_type,
            matching.resource_name,
            matching.pattern_type,
            matching.principal,
            matching.host,
            matching.operation,
            matching.permission,
        )
        response = await self._requests.to_any(request, DescribeAclsResponse)
        raise_failure(response.error_code, response.error_message)
        return [
            AclBinding(
                ResourceType(resource.resource_type),
                resource.resource_name,
                each.principal,
                AclOperation(each.operation),
                AclPermissionType(each.permission_type),
                each.host,
                PatternType(resource.pattern_type),
            )
            for resource in response.resources
            for each in resource.acls
        ]

    async def create(self, bindings: Iterable[AclBinding]) -> dict[AclBinding, KafkaError | None]:
        """Add ACLs; the outcome of each."""
        wanted = list(dict.fromkeys(bindings))
        creations = [
            CreateAclsRequestCreation(
                each.resource_type,
                each.resource_name,
                each.pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission,
            )
            for each in wanted
        ]
        response = await self._requests.to_controller(
            CreateAclsRequest(creations),
            CreateAclsResponse,
            codes=lambda answer: [each.error_code for each in answer.results],
        )
        outcomes = [failure_of(each.error_code, each.error_message) for each in response.results]
        return dict(zip(wanted, outcomes, strict=True))

    async def delete(self, filters: Iterable[AclFilter]) -> dict[AclFilter, list[AclBinding | KafkaError] | KafkaError]:
        """Remove what the filters match: by filter, the removed ACLs and the errors of those that remain."""
        wanted = list(dict.fromkeys(filters))
        requested = [
            DeleteAclsRequestFilter(
                each.resource_type,
                each.resource_name,
                each.pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission,
            )
            for each in wanted
        ]
        response = await self._requests.to_controller(
            DeleteAclsRequest(requested),
            DeleteAclsResponse,
            codes=lambda answer: [each.error_code for each in answer.filter_results],
        )
        results: list[list[AclBinding | KafkaError] | KafkaError] = []
        for each in response.filter_results:
            if each.error_code:
                results.append(error_of(each.error_code, each.error_message))
            else:
                results.append([_removed(acl) for acl in each.matching_acls])
        return dict(zip(wanted, results, strict=True))


def _removed(acl: Any) -> AclBinding | KafkaError:
    if acl.error_code:
        return error_of(acl.error_code, acl.error_message)
    return AclBinding(
        ResourceType(acl.resource_type),
        acl.resource_name,
        acl.principal,
        AclOperation(acl.operation),
        AclPermissionType(acl.permission_type),
        acl.host,
        PatternType(acl.pattern_type),
    )
