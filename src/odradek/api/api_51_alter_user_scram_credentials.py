"""AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasController
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.scram_credentials import Deletion, Upsertion, alter_scram_credentials
from odradek.wire.apis import ApiKey
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseResult,
)


@api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext[HasController]
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials; each user has its own error."""
    deletions = [Deletion(deletion.name, deletion.mechanism) for deletion in request.deletions]
    # What is kept must not point into the receive buffer.
    upsertions = [
        Upsertion(made.name, made.mechanism, made.iterations, bytes(made.salt), bytes(made.salted_password))
        for made in request.upsertions
    ]
    altered = await context.services.controller.change(
        lambda image: alter_scram_credentials(image, deletions, upsertions)
    )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponseResult(
                result.user,
                0 if result.failure is None else result.failure.code,
                None if result.failure is None else result.failure.message,
            )
            for result in altered
        ]
    )
