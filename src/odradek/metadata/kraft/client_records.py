"""Quotas, SCRAM credentials, ACLs and delegation tokens, and their records.

The image keeps quotas and credentials of a client as one mapping of text, as Kafka's ZooKeeper does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.kraft.errors import UnknownMetadata
from odradek.metadata.image import ANY, ClientEntity
from odradek.security.delegation_tokens import DelegationToken
from odradek.security.scram import MECHANISMS, Mechanism, ScramCredential
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.wire.messages import cluster_metadata as md

_ENTITY_FIELDS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
_FRACTIONAL: Final = frozenset(("request_percentage", "controller_mutation_rate"))
_MAX_LONG: Final = (1 << 63) - 1
_NAMES: Final = {mechanism.value: name for name, mechanism in MECHANISMS.items()}

ClientRecord = md.ClientQuotaRecord | md.UserScramCredentialRecord | md.RemoveUserScramCredentialRecord


def entity_of(record: md.ClientQuotaRecord) -> ClientEntity:
    """The entity of a quota. Raises UnknownMetadata for an unknown kind of entity."""
    fields = {}
    for each in record.entity:
        field = _ENTITY_FIELDS.get(each.entity_type)
        if field is None:
            raise UnknownMetadata(f"quota of an entity of the unknown type {each.entity_type}")
        fields[field] = ANY if each.entity_name is None else each.entity_name
    return ClientEntity(**fields)


def quota_text(key: str, value: float) -> str:
    """A quota as the image has it: a number of bytes or connections without a fraction."""
    if key in _FRACTIONAL or not value.is_integer():
        return repr(value)
    return str(min(int(value), _MAX_LONG))


def mechanism_name(number: int) -> str:
    """The name of a SCRAM mechanism. Raises UnknownMetadata."""
    if number not in _NAMES:
        raise UnknownMetadata(f"credential of the unknown SCRAM mechanism {number}")
    return _NAMES[number]


def credential_text(record: md.UserScramCredentialRecord) -> str:
    """A credential as the image has it."""
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations).text()


def client_changes(entity: ClientEntity, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[ClientRecord]:
    """The records that change the settings of a client. Raises ValueError for a setting that no record carries."""
    rows = [
        md.ClientQuotaRecordEntityData(kind, name or None)
        for kind, field in _ENTITY_FIELDS.items()
        if (name := getattr(entity, field)) is not None
    ]
    for key in before.keys() - after.keys():
        mechanism = MECHANISMS.get(key)
        if mechanism is None:
            yield md.ClientQuotaRecord(rows, key, 0.0, remove=True)
        else:
            yield md.RemoveUserScramCredentialRecord(entity.user or "", mechanism)
    for key, value in after.items():
        if before.get(key) == value:
            continue
        mechanism = MECHANISMS.get(key)
        if mechanism is None:
            yield md.ClientQuotaRecord(rows, key, float(value))
        else:
            yield _credential_record(entity.user or "", mechanism, ScramCredential.parse(value))


def _credential_record(user: str, mechanism: Mechanism, found: ScramCredential) -> md.UserScramCredentialRecord:
    return md.UserScramCredentialRecord(
        user, mechanism, found.salt, found.stored_key, found.server_key, found.iterations
    )


def acl_of(record: md.AccessControlEntryRecord) -> AclBinding:
    """The ACL of a record; codes that this version does not know become UNKNOWN."""
    return AclBinding(
        ResourceType(record.resource_type),
        record.resource_name,
        record.principal,
        AclOperation(record.operation),
        AclPermissionType(record.permission_type),
        record.host,
        PatternType(record.pattern_type),
    )


def acl_record(acl_id: bytes, acl: AclBinding) -> md.AccessControlEntryRecord:
    """The record of an ACL."""
    return md.AccessControlEntryRecord(
        acl_id,
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def token_of(record: md.DelegationTokenRecord) -> DelegationToken:
    """The delegation token of a record."""
    return DelegationToken(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )


def token_record(token: DelegationToken) -> md.DelegationTokenRecord:
    """The record of a delegation token."""
    return md.DelegationTokenRecord(
        token.owner,
        token.requester,
        list(token.renewers),
        token.issued_ms,
        token.max_ms,
        token.expiry_ms,
        token.token_id,
    )
