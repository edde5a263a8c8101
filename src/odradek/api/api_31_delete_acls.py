"""DeleteAcls: remove the ACLs that filters match, and answer which they were."""

from __future__ import annotations

from odradek.api.requests.acl_messages import NO_AUTHORIZER, filter_of
from odradek.api.requests.capabilities import HasAuthorization
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.acls import AclBinding
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseFilter,
    DeleteAclsResponseMatchingAcl,
)


@api(ApiKey.DELETE_ACLS)
async def handle(request: DeleteAclsRequest, context: RequestContext[HasAuthorization]) -> DeleteAclsResponse:
    """Delete the matching ACLs, and return them for each filter; SECURITY_DISABLED without an authorizer."""
    authorization = context.services.authorization
    if authorization is None:
        refused = DeleteAclsResponseFilter(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    removed = await authorization.delete([filter_of(each) for each in request.filters])
    return DeleteAclsResponse(
        filter_results=[DeleteAclsResponseFilter(matching_acls=[_removed(each) for each in found]) for found in removed]
    )


def _removed(binding: AclBinding) -> DeleteAclsResponseMatchingAcl:
    return DeleteAclsResponseMatchingAcl(
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )
