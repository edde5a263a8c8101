"""CreateAcls: an entry that is no ACL fails alone. ACLs that exist are created again without an error."""

from __future__ import annotations

from odradek.api.requests.acl_messages import NO_AUTHORIZER, binding_of
from odradek.api.requests.capabilities import HasAuthorization
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.acls import AclBinding
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse, CreateAclsResponseCreation


@api(ApiKey.CREATE_ACLS)
async def handle(request: CreateAclsRequest, context: RequestContext[HasAuthorization]) -> CreateAclsResponse:
    """Create the valid ACLs; each creation has its own error, SECURITY_DISABLED without an authorizer."""
    authorization = context.services.authorization
    if authorization is None:
        refused = CreateAclsResponseCreation(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return CreateAclsResponse(results=[refused] * len(request.creations))
    results: list[CreateAclsResponseCreation] = []
    bindings: list[AclBinding] = []
    for creation in request.creations:
        try:
            bindings.append(binding_of(creation))
            results.append(CreateAclsResponseCreation())
        except KafkaError as error:
            results.append(CreateAclsResponseCreation(error.code, error.message))
    if bindings:
        await authorization.create(bindings)
    return CreateAclsResponse(results=results)
