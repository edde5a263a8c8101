"""DescribeUserScramCredentials (KIP-554): who has which, and never what they are."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.scram_credentials import describe_scram_credentials
from odradek.wire.apis import ApiKey
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseCredential,
    DescribeUserScramCredentialsResponseResult,
)


@api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext[HasImage]
) -> DescribeUserScramCredentialsResponse:
    """Return mechanisms and iterations of the users named, or of all; RESOURCE_NOT_FOUND for a user without
    credentials.
    """
    users = None if request.users is None else [user.name for user in request.users]
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            DescribeUserScramCredentialsResponseResult(
                found.user,
                0 if found.failure is None else found.failure.code,
                None if found.failure is None else found.failure.message,
                [DescribeUserScramCredentialsResponseCredential(*credential) for credential in found.credentials],
            )
            for found in describe_scram_credentials(context.services.image(), users)
        ],
    )
