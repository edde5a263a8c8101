"""Messages as JSON documents, for people and for assertions; without secrets."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from odradek.records.batch import split_batches
from odradek.records.errors import CorruptRecords
from odradek.records.record import decode_records
from odradek.wire.apis import ApiKey
from odradek.wire.message import SECRET_FIELDS, SETTING_CLASSES

Document = dict[str, Any]
"""A message by its fields: dicts, lists, text, numbers, None. Bytes are text if they are UTF-8, else in base64."""

HIDDEN: Final = "[hidden]"
SECRET_APIS: Final = frozenset(
    {
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.ENVELOPE,
    }
)
"""APIs whose messages may hold passwords or tokens: their bytes are not recorded."""
_RECORDS: Final = frozenset({"records"})


def document_of(message: Any) -> Document:
    """A decoded request or response."""
    kind = type(message).__name__
    hidden = SECRET_FIELDS | ({"value"} if kind in SETTING_CLASSES else frozenset())
    found: Document = {}
    for name in message.__slots__:
        value = getattr(message, name)
        if name in hidden:
            found[name] = HIDDEN
        elif name in _RECORDS and isinstance(value, bytes | bytearray | memoryview):
            found[name] = _records(value)
        else:
            found[name] = _plain(name, value)
    return found


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return data.hex() if name.endswith("_id") and len(data) == 16 else text_of(data)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(name, each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(name, each) for key, each in value.items()}
    return document_of(value) if hasattr(type(value), "__slots__") and hasattr(value, "decode") else value


def text_of(data: bytes | bytearray | memoryview | None) -> Any:
    """Bytes as JSON can carry them."""
    if data is None:
        return None
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _records(data: bytes | bytearray | memoryview) -> Any:
    """The records of batches; how many bytes there are where they cannot be read."""
    view = memoryview(data)
    found: list[Document] = []
    try:
        for position, header in split_batches(view, allow_partial_tail=True):
            if header.is_control:
                continue
            found += [
                {
                    "offset": each.offset,
                    "timestamp": each.timestamp,
                    "key": text_of(each.key),
                    "value": text_of(each.value),
                    "headers": [[name, text_of(value)] for name, value in each.headers],
                }
                for each in decode_records(view, header, position)
            ]
    except CorruptRecords as error:
        return {"bytes": len(view), "error": str(error)}
    return found
