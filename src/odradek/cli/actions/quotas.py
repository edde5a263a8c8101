"""`odradek configs` for users, clients and addresses: client quotas (KIP-546), SCRAM credentials (KIP-554)."""

from __future__ import annotations

import argparse
import re
from typing import Any, Final

from odradek.cli.arguments.config_entities import Entity, show_altered
from odradek.cli.arguments.errors import UsageError
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document
from odradek.client.admin import Admin, QuotaEntityType, QuotaMatch, ScramMechanism, raise_first
from odradek.client.admin.quotas import ClientQuotaEntity, QuotaFilter
from odradek.client.admin.users import DEFAULT_ITERATIONS, ScramDeletion, ScramUpsertion
from odradek.wire.errors import ErrorCode, KafkaError

_ENTITIES: Final = {"users": QuotaEntityType.USER, "clients": QuotaEntityType.CLIENT_ID, "ips": QuotaEntityType.IP}
MECHANISMS: Final = {each.mechanism_name: each for each in ScramMechanism if each is not ScramMechanism.UNKNOWN}
_MIN_ITERATIONS: Final = 4_096
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
    """The quotas of the entities, one row each; an entity's empty name matches all of its type."""
    filters = []
    for each in entities:
        match = QuotaMatch.ANY if each.name == "" else QuotaMatch.DEFAULT if each.name is None else QuotaMatch.EXACT
        filters.append(QuotaFilter(_ENTITIES[each.type], match, each.name if match is QuotaMatch.EXACT else None))
    return [
        {"kind": "quotas", "entity": entity.as_dict(), "configs": configs}
        for entity, configs in (await admin.quotas.describe(filters)).items()
    ]


async def credentials(admin: Admin, user: str) -> list[dict[str, Any]]:
    """Mechanisms of one user, or of all for an empty name; none where the broker has no credentials."""
    from odradek.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

    if not await admin.offers(DescribeUserScramCredentialsRequest):
        return []
    rows = []
    for name, found in (await admin.users.describe([user] if user else None)).items():
        if isinstance(found, KafkaError):
            if found.code is ErrorCode.RESOURCE_NOT_FOUND:
                continue
            raise found
        configs = {each.mechanism.mechanism_name: f"iterations={each.iterations}" for each in found}
        rows.append({"kind": "credentials", "entity": {"user": name}, "configs": configs})
    return rows


def alter(arguments: argparse.Namespace, entities: list[Entity], changes: dict[str, str | None]) -> int:
    """Sets and removes quotas, or a user's credentials. Raises UsageError for a value that is neither."""
    scram = {name: value for name, value in changes.items() if name in MECHANISMS}
    if scram and len(scram) != len(changes):
        raise UsageError("credentials and quotas cannot be altered in one command")
    if scram:
        if [each.type for each in entities] != ["users"] or not entities[0].name:
            raise UsageError("credentials belong to one user")
        user = entities[0].name
        wanted = [_scram_change(user, name, value) for name, value in scram.items()]

        async def alter_credentials(admin: Admin) -> None:
            raise_first(await admin.users.alter(wanted))

        run_admin(arguments, alter_credentials)
    else:
        limits: dict[str, float | None] = {}
        for name, value in changes.items():
            try:
                limits[name] = None if value is None else float(value)
            except ValueError:
                raise UsageError(f"{name}={value}: a quota is a number") from None
        entity = ClientQuotaEntity.of({_ENTITIES[each.type]: each.name for each in entities})

        async def alter_quotas(admin: Admin) -> None:
            raise_first(await admin.quotas.alter({entity: limits}))

        run_admin(arguments, alter_quotas)
    show_altered(arguments, entities, dict.fromkeys(scram) if scram else changes)
    return 0


def _scram_change(user: str, mechanism: str, value: str | None) -> ScramUpsertion | ScramDeletion:
    """Raises UsageError."""
    if value is None:
        return ScramDeletion(user, MECHANISMS[mechanism])
    iterations, password = parse_credential(mechanism, value)
    return ScramUpsertion(user, MECHANISMS[mechanism], password, iterations)


def parse_credential(mechanism: str, text: str) -> tuple[int, str]:
    """`iterations=8192,password=…` (iterations may be missing) -> both. Raises UsageError."""
    found = _CREDENTIAL.fullmatch(text)
    if found is None:
        raise UsageError(f"{mechanism}=[iterations=8192,password=…] expected")
    iterations = int(found[1] or DEFAULT_ITERATIONS)
    if iterations < _MIN_ITERATIONS:
        raise UsageError(f"{mechanism}: iterations must be at least {_MIN_ITERATIONS}")
    return iterations, found[2]
