"""DescribeAcls: the ACLs that a filter matches. Without an authorizer there are none, which is SECURITY_DISABLED."""

from __future__ import annotations

from itertools import groupby

from odradek.api.requests.acl_messages import filter_of
from odradek.api.requests.capabilities import HasAuthorization
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.acls import pattern_of
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeAclsResponseDescription,
    DescribeAclsResponseResource,
)


@api(ApiKey.DESCRIBE_ACLS)
def handle(request: DescribeAclsRequest, context: RequestContext[HasAuthorization]) -> DescribeAclsResponse:
    """Return the matching ACLs, grouped by resource pattern."""
    authorization = context.services.authorization
    if authorization is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    found = sorted(authorization.describe(filter_of(request)), key=pattern_of)
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResponseResource(
                pattern.type,
                pattern.name,
                pattern.pattern_type,
                [
                    DescribeAclsResponseDescription(each.principal, each.host, each.operation, each.permission)
                    for each in bindings
                ],
            )
            for pattern, bindings in groupby(found, pattern_of)
        ]
    )
