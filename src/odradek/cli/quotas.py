"""`odradek configs` for users, clients and addresses: client quotas (KIP-546), SCRAM credentials (KIP-554)."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
from typing import Any, Final

from odradek.cli.configs import Entity, tell_altered
from odradek.cli.errors import UsageError
from odradek.cli.output import DOCUMENTS, Column, show, show_document
from odradek.cli.session import run_admin
from odradek.client.admin import Admin
from odradek.client.cluster import error_of
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
    AlterClientQuotasResponse,
)
from odradek.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
)

_ENTITIES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
_EXACT, _DEFAULT, _ANY = 0, 1, 2
MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_MIN_ITERATIONS: Final = 4_096
_DEFAULT_ITERATIONS: Final = 8_192
_SALT_BYTES: Final = 16
_CREDENTIAL: Final = re.compile(r"(?:iterations=(\d+),)?password=(.+)")
COLUMNS: Final = (Column("ENTITY", "entity", 25), Column("CONFIGS", "configs"))


def describe(arguments: argparse.Namespace, entities: list[Entity]) -> int:
    """Prints quotas, and for users alone their credentials' mechanisms and iterations."""

    async def work(admin: Admin) -> list[dict[str, Any]]:
        rows = await quotas(admin, entities)
        if [each.type for each in entities] == ["users"] and entities[0].name is not None:
            rows += await credentials(admin, entities[0].name)
        return rows

    rows = run_admin(arguments, work)
    if arguments.output in DOCUMENTS:
        show_document(rows, arguments.output)
    elif arguments.output is not None:
        shown = [
            {**row, "entity": {k: "<default>" if v is None else v for k, v in row["entity"].items()}} for row in rows
        ]
        show(shown, COLUMNS, arguments.output)
    else:
        for row in rows:
            names = [f"the default {k}" if v is None else f"{k} '{v}'" for k, v in row["entity"].items()]
            configs = ", ".join(f"{name}={value}" for name, value in row["configs"].items())
            kind = "SCRAM credential" if row["kind"] == "credentials" else "Quota"
            print(f"{kind} configs for {', '.join(names)} are {configs}")
    return 0


async def quotas(admin: Admin, entities: list[Entity]) -> list[dict[str, Any]]:
    components = []
    for each in entities:
        match = _ANY if each.name == "" else _DEFAULT if each.name is None else _EXACT
        name = each.name if match == _EXACT else None
        components.append(DescribeClientQuotasRequestComponent(_ENTITIES[each.type], match, name))
    request = DescribeClientQuotasRequest(components, strict=False)
    response = await admin.cluster.retrying(
        lambda: admin.cluster.request_any(request, DescribeClientQuotasResponse), "DescribeClientQuotas"
    )
    if response.error_code:
        raise error_of(response.error_code, response.error_message)
    return [
        {
            "kind": "quotas",
            "entity": {each.entity_type: each.entity_name for each in entry.entity},
            "configs": {each.key: each.value for each in entry.values},
        }
        for entry in response.entries or ()
    ]


async def credentials(admin: Admin, user: str) -> list[dict[str, Any]]:
    """Mechanisms of one user, or of all for an empty name; nothing where the broker knows no credentials."""
    from odradek.cli.topic_details import offers
    from odradek.wire.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsRequestUser,
        DescribeUserScramCredentialsResponse,
    )

    if not await offers(admin, DescribeUserScramCredentialsRequest):
        return []
    request = DescribeUserScramCredentialsRequest([DescribeUserScramCredentialsRequestUser(user)] if user else None)
    response = await admin.cluster.retrying(
        lambda: admin.cluster.request_any(request, DescribeUserScramCredentialsResponse), "DescribeUserScramCredentials"
    )
    if response.error_code:
        raise error_of(response.error_code, response.error_message)
    names = {number: name for name, (number, _) in MECHANISMS.items()}
    rows = []
    for each in response.results:
        if each.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if each.error_code:
            raise error_of(each.error_code, each.error_message)
        configs = {
            names.get(c.mechanism, str(c.mechanism)): f"iterations={c.iterations}" for c in each.credential_infos
        }
        rows.append({"kind": "credentials", "entity": {"user": each.user}, "configs": configs})
    return rows


def alter(arguments: argparse.Namespace, entities: list[Entity], changes: dict[str, str | None]) -> int:
    """Sets and removes quotas, or a user's credentials. Raises UsageError for a value that is neither."""
    scram = {name: value for name, value in changes.items() if name in MECHANISMS}
    if scram and len(scram) != len(changes):
        raise UsageError("credentials and quotas are altered one after the other")
    if scram:
        if [each.type for each in entities] != ["users"] or not entities[0].name:
            raise UsageError("credentials belong to one user")
        parsed = {name: None if value is None else parse_credential(name, value) for name, value in scram.items()}
        user = entities[0].name

        async def alter_credentials(admin: Admin) -> None:
            await set_credentials(admin, user, parsed)

        run_admin(arguments, alter_credentials)
    else:
        operations = []
        for name, value in changes.items():
            try:
                number = 0.0 if value is None else float(value)
            except ValueError:
                raise UsageError(f"{name}={value}: a quota is a number") from None
            operations.append(AlterClientQuotasRequestOp(name, number, value is None))

        async def alter_quotas(admin: Admin) -> None:
            await set_quotas(admin, entities, operations)

        run_admin(arguments, alter_quotas)
    tell_altered(arguments, entities, dict.fromkeys(scram) if scram else changes)
    return 0


async def set_quotas(admin: Admin, entities: list[Entity], operations: list[AlterClientQuotasRequestOp]) -> None:
    entity = [AlterClientQuotasRequestEntity(_ENTITIES[each.type], each.name) for each in entities]
    request = AlterClientQuotasRequest([AlterClientQuotasRequestEntry(entity, operations)], validate_only=False)
    response = await admin.cluster.retrying(
        lambda: admin.cluster.request_any(request, AlterClientQuotasResponse), "AlterClientQuotas"
    )
    for each in response.entries:
        if each.error_code:
            raise error_of(each.error_code, each.error_message)


def parse_credential(mechanism: str, text: str) -> tuple[int, str]:
    """`iterations=8192,password=…` (iterations may be missing) -> both. Raises UsageError."""
    found = _CREDENTIAL.fullmatch(text)
    if found is None:
        raise UsageError(f"{mechanism}=[iterations=8192,password=…] expected")
    iterations = int(found[1] or _DEFAULT_ITERATIONS)
    if iterations < _MIN_ITERATIONS:
        raise UsageError(f"{mechanism}: iterations must be at least {_MIN_ITERATIONS}")
    return iterations, found[2]


async def set_credentials(admin: Admin, user: str, changes: dict[str, tuple[int, str] | None]) -> None:
    """The broker sees salted passwords only (RFC 5802's Hi)."""
    from odradek.wire.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsRequestDeletion,
        AlterUserScramCredentialsRequestUpsertion,
        AlterUserScramCredentialsResponse,
    )

    deletions, upsertions = [], []
    for name, given in changes.items():
        number, algorithm = MECHANISMS[name]
        if given is None:
            deletions.append(AlterUserScramCredentialsRequestDeletion(user, number))
            continue
        iterations, password = given
        salt = os.urandom(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
        upsertions.append(AlterUserScramCredentialsRequestUpsertion(user, number, iterations, salt, salted))
    request = AlterUserScramCredentialsRequest(deletions, upsertions)

    async def attempt() -> AlterUserScramCredentialsResponse:
        return await admin.cluster.request(await admin.cluster.controller(), request, AlterUserScramCredentialsResponse)

    response = await admin.cluster.retrying(attempt, "AlterUserScramCredentials")
    for each in response.results:
        if each.error_code:
            raise error_of(each.error_code, each.error_message)
