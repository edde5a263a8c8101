"""CreateAcls, of a broker without an authorizer: every entry is refused."""

from __future__ import annotations

from odradek.api.api_29_describe_acls import NO_AUTHORIZER
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse, CreateAclsResponseCreation


@api(ApiKey.CREATE_ACLS)
def handle(request: CreateAclsRequest, _context: RequestContext) -> CreateAclsResponse:
    refused = CreateAclsResponseCreation(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
