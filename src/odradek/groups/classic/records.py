"""A classic group in `__consumer_offsets`: record type 2, its last stable generation.

Source: Kafka's GroupCoordinatorRecordHelpers and its record schemas.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from odradek.groups.records import RecordType
from odradek.wire.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMemberMetadata,
)

_INT16 = Struct(">h")
_GROUP_TYPE = _INT16.pack(2)
_GROUP_VALUE_VERSION = 3


class MemberValue(NamedTuple):
    """A member of a stored classic group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A stored classic group; `state_timestamp_ms` is when it got into its state, -1 when unknown."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]


class ClassicGroupRecord(NamedTuple):
    """A classic group's metadata, or its tombstone."""

    group_id: str
    value: GroupValue | None


def _encode(record: ClassicGroupRecord) -> tuple[bytes, bytes | None]:
    key = bytearray(_GROUP_TYPE)
    GroupMetadataKey(record.group_id).encode(key, 0)
    return bytes(key), None if record.value is None else _encode_group(record.value)


def _encode_group(group: GroupValue) -> bytes:
    value = bytearray(_INT16.pack(_GROUP_VALUE_VERSION))
    GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            GroupMetadataValueMemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in group.members
        ],
    ).encode(value, _GROUP_VALUE_VERSION)
    return bytes(value)


def _decode(key: memoryview, body: memoryview | None) -> ClassicGroupRecord:
    group_id = GroupMetadataKey.decode(key, 2, 0)[0].group
    return ClassicGroupRecord(group_id, None if body is None else _decode_group(body))


def _decode_group(body: memoryview) -> GroupValue:
    (version,) = _INT16.unpack_from(body)
    value = GroupMetadataValue.decode(body, 2, version)[0]
    return GroupValue(
        value.protocol_type,
        value.generation,
        value.protocol,
        value.leader,
        value.current_state_timestamp,
        tuple(
            MemberValue(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                # Version 0 did not store it; Kafka uses the session timeout then.
                member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
                member.session_timeout,
                bytes(member.subscription),
                bytes(member.assignment),
            )
            for member in value.members
        ),
    )


CLASSIC_RECORD_TYPES: Final = (RecordType(2, ClassicGroupRecord, _encode, _decode),)
"""For `record_types`."""
