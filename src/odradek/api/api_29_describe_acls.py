"""DescribeAcls, of a broker without an authorizer: there are no access control lists, and Kafka says so this way."""

from __future__ import annotations

from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."


@api(ApiKey.DESCRIBE_ACLS)
def handle(_request: DescribeAclsRequest, _context: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(0, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
