"""SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.client.admin.enums import ScramMechanism
from odradek.client.admin.requests import AdminRequests, failure_of, raise_failure
from odradek.client.network.cluster import error_of
from odradek.wire.errors import KafkaError
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
)
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUser,
    DescribeUserScramCredentialsResponse,
)

DEFAULT_ITERATIONS: Final = 8_192
_SALT_BYTES: Final = 16


class ScramCredential(NamedTuple):
    """What a broker reports of a credential: never the password or its salt."""

    mechanism: ScramMechanism
    iterations: int


class ScramUpsertion(NamedTuple):
    """A credential to set. The broker receives the salted password only (RFC 5802). `salt` is random for None."""

    user: str
    mechanism: ScramMechanism
    password: str
    iterations: int = DEFAULT_ITERATIONS
    salt: bytes | None = None

    def __repr__(self) -> str:
        """Without the password: it may be printed in a traceback."""
        return f"ScramUpsertion(user={self.user!r}, mechanism={self.mechanism!r}, iterations={self.iterations})"


class ScramDeletion(NamedTuple):
    """A credential to remove."""

    user: str
    mechanism: ScramMechanism


class UsersAdmin:
    """`admin.users`.

    Example:

        anna = ScramUpsertion("anna", ScramMechanism.SCRAM_SHA_512, "a long password")
        raise_first(await admin.users.alter([anna]))
        print(await admin.users.describe(["anna"]))
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe(self, users: Iterable[str] | None = None) -> dict[str, list[ScramCredential] | KafkaError]:
        """Credentials of these users, or of all that have one; RESOURCE_NOT_FOUND for a user without any."""
        wanted = None if users is None else [DescribeUserScramCredentialsRequestUser(each) for each in users]
        response = await self._requests.to_any(
            DescribeUserScramCredentialsRequest(wanted), DescribeUserScramCredentialsResponse
        )
        raise_failure(response.error_code, response.error_message)
        return {
            each.user: error_of(each.error_code, each.error_message)
            if each.error_code
            else [ScramCredential(ScramMechanism(c.mechanism), c.iterations) for c in each.credential_infos]
            for each in response.results
        }

    async def alter(self, changes: Iterable[ScramUpsertion | ScramDeletion]) -> dict[str, KafkaError | None]:
        """Set and remove credentials; the outcome by user."""
        deletions: list[AlterUserScramCredentialsRequestDeletion] = []
        upsertions: list[AlterUserScramCredentialsRequestUpsertion] = []
        for each in changes:
            if isinstance(each, ScramDeletion):
                deletions.append(AlterUserScramCredentialsRequestDeletion(each.user, each.mechanism))
            else:
                upsertions.append(salted_upsertion(each))
        response = await self._requests.to_controller(
            AlterUserScramCredentialsRequest(deletions, upsertions),
            AlterUserScramCredentialsResponse,
            codes=lambda answer: [each.error_code for each in answer.results],
        )
        return {each.user: failure_of(each.error_code, each.error_message) for each in response.results}


def salted_upsertion(upsertion: ScramUpsertion) -> AlterUserScramCredentialsRequestUpsertion:
    """The request for a credential: the password becomes a salted one. Computes PBKDF2."""
    user, mechanism, password, iterations, salt = upsertion
    salt = os.urandom(_SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
    return AlterUserScramCredentialsRequestUpsertion(user, mechanism, iterations, salt, salted)
