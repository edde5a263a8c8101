"""Records of `__consumer_offsets` and `__transaction_state` as JSON, every version that the schemas know."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from odradek.records.record import Record
from odradek.wire.messages import consumer_group_records, consumer_offsets, transaction_state
from odradek.wire.primitives import DecodeError

Schema = tuple[Any, Any]
"""The classes of a record type's key and value."""

_TRANSACTIONS: Final[Mapping[int, Schema]] = {
    0: (transaction_state.TransactionLogKey, transaction_state.TransactionLogValue)
}
_UUID_BYTES: Final = 16


@cache
def _offsets_schemas() -> Mapping[int, Schema]:
    groups = consumer_group_records
    return {
        0: (consumer_offsets.LegacyOffsetCommitKey, consumer_offsets.LegacyOffsetCommitValue),
        1: (consumer_offsets.OffsetCommitKey, consumer_offsets.OffsetCommitValue),
        2: (consumer_offsets.GroupMetadataKey, consumer_offsets.GroupMetadataValue),
        3: (groups.ConsumerGroupMetadataKey, groups.ConsumerGroupMetadataValue),
        4: (groups.ConsumerGroupPartitionMetadataKey, groups.ConsumerGroupPartitionMetadataValue),
        5: (groups.ConsumerGroupMemberMetadataKey, groups.ConsumerGroupMemberMetadataValue),
        6: (groups.ConsumerGroupTargetAssignmentMetadataKey, groups.ConsumerGroupTargetAssignmentMetadataValue),
        7: (groups.ConsumerGroupTargetAssignmentMemberKey, groups.ConsumerGroupTargetAssignmentMemberValue),
        8: (groups.ConsumerGroupCurrentMemberAssignmentKey, groups.ConsumerGroupCurrentMemberAssignmentValue),
        16: (groups.ConsumerGroupRegularExpressionKey, groups.ConsumerGroupRegularExpressionValue),
    }


def decode_offsets_record(record: Record) -> tuple[str | None, str | None]:
    """Key and value as JSON, each None if absent."""
    return _decode(record, _offsets_schemas())


def decode_transaction_record(record: Record) -> tuple[str | None, str | None]:
    """Key and value of a record of `__transaction_state` as JSON, each None if absent or unknown."""
    return _decode(record, _TRANSACTIONS)


def _decode(record: Record, schemas: Mapping[int, Schema]) -> tuple[str | None, str | None]:
    if record.key is None or len(record.key) < 2:
        return None, None
    key = memoryview(record.key)
    kind = int.from_bytes(key[:2], "big", signed=True)
    if kind not in schemas:
        return f"a record of the unknown type {kind}", None
    key_class, value_class = schemas[kind]
    try:
        found, _ = key_class.decode(key, 2, key_class.MAX_VERSION if kind < 2 and len(schemas) > 1 else 0)
        shown_key = _json({"type": str(kind), "data": _plain(found)})
        if record.value is None:
            return shown_key, "<DELETE>"
        value = memoryview(record.value)
        version = int.from_bytes(value[:2], "big", signed=True)
        found, _ = value_class.decode(value, 2, version)
    except DecodeError as error:
        return f"not decoded: {error}", None
    return shown_key, _json({"version": str(version), "data": _plain(found)})


def _json(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return urlsafe_b64encode(data).rstrip(b"=").decode() if len(data) == _UUID_BYTES else b64encode(data).decode()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if hasattr(type(value), "__slots__") and hasattr(value, "encode") and not isinstance(value, str):
        return {_camel(name): _plain(getattr(value, name)) for name in type(value).__slots__}
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
