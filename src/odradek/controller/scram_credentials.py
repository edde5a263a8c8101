"""SCRAM credentials of users (KIP-554): stored as keys that only prove a password, described without them.

Source: Kafka's `ScramControlManager` and `ScramCredentialUtils`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.controller.client_quotas import write_client_configs
from odradek.controller.outcome import Decision, Failure
from odradek.metadata.image import ClientEntity, ClusterImage
from odradek.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, Mechanism, ScramCredential, credential_of
from odradek.wire.errors import ErrorCode, KafkaError


class Deletion(NamedTuple):
    """Delete a user's credential of one mechanism."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """`salted_password` is what PBKDF2 made of the password on the client's side."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        """Without what proves the password: it may be printed in a traceback."""
        return f"Upsertion(user={self.user!r}, mechanism={self.mechanism}, iterations={self.iterations})"


class AlteredUser(NamedTuple):
    """The result for one user; no failure means that all its changes took effect."""

    user: str
    failure: Failure | None


class DescribedUser(NamedTuple):
    """`credentials`: (mechanism, iterations)."""

    user: str
    failure: Failure | None
    credentials: Sequence[tuple[int, int]] = ()


def scram_credential(image: ClusterImage, user: str, mechanism: Mechanism) -> ScramCredential | None:
    """A user's credential; None without one."""
    text = image.client_configs.get(ClientEntity(user), {}).get(mechanism.config_name)
    return None if text is None else ScramCredential.parse(text)


def alter_scram_credentials(
    image: ClusterImage, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> Decision[AlteredUser]:
    """One reply for every user; a user is changed as a whole or not at all."""
    alterations: list[Deletion | Upsertion] = [*deletions, *upsertions]
    counts = Counter((alteration.user, alteration.mechanism) for alteration in alterations)
    failures: dict[str, Failure | None] = {}
    changed: dict[ClientEntity, dict[str, str]] = {}
    for alteration in alterations:
        user = alteration.user
        if failures.setdefault(user, None) is not None:
            continue
        try:
            mechanism = _checked(alteration, counts)
            before = image.client_configs.get(ClientEntity(user), {})
            after = changed.setdefault(ClientEntity(user), dict(before))
            if isinstance(alteration, Upsertion):
                _, _, iterations, salt, salted = alteration
                after[mechanism.config_name] = credential_of(mechanism, salted, salt, iterations).text()
            elif after.pop(mechanism.config_name, None) is None:
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
        except KafkaError as error:
            failures[user] = Failure(error.code, error.message)
            changed.pop(ClientEntity(user), None)
    operations, changed_image = write_client_configs(image, changed)
    return Decision(operations, changed_image, [AlteredUser(user, failure) for user, failure in failures.items()])


def _checked(alteration: Deletion | Upsertion, counts: Mapping[tuple[str, int], int]) -> Mechanism:
    if not alteration.user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if alteration.mechanism not in Mechanism.__members__.values():
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if counts[(alteration.user, alteration.mechanism)] > 1:
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    if isinstance(alteration, Upsertion):
        if alteration.iterations < MIN_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if alteration.iterations > MAX_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        if not alteration.salted_password:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
    return Mechanism(alteration.mechanism)


def describe_scram_credentials(image: ClusterImage, users: Sequence[str] | None) -> list[DescribedUser]:
    """Those users, or all that have credentials."""
    by_user: dict[str, list[tuple[int, int]]] = {}
    for entity, configs in image.client_configs.items():
        if entity.user is None or entity.client_id is not None:
            continue
        found = [
            (int(mechanism), ScramCredential.parse(configs[mechanism.config_name]).iterations)
            for mechanism in Mechanism
            if mechanism.config_name in configs
        ]
        if found:
            by_user[entity.user] = found
    if not users:
        return [DescribedUser(user, None, found) for user, found in sorted(by_user.items())]
    described = []
    for user, count in Counter(users).items():
        if count > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            described.append(DescribedUser(user, Failure(ErrorCode.DUPLICATE_RESOURCE, message)))
        elif user not in by_user:
            message = f"Attempt to describe a user credential that does not exist: {user}"
            described.append(DescribedUser(user, Failure(ErrorCode.RESOURCE_NOT_FOUND, message)))
        else:
            described.append(DescribedUser(user, None, by_user[user]))
    return described
