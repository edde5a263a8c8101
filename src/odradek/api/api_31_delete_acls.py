"""DeleteAcls, of a broker without an authorizer: every filter is refused."""

from __future__ import annotations

from odradek.api.api_29_describe_acls import NO_AUTHORIZER
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse, DeleteAclsResponseFilter


@api(ApiKey.DELETE_ACLS)
def handle(request: DeleteAclsRequest, _context: RequestContext) -> DeleteAclsResponse:
    refused = DeleteAclsResponseFilter(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
