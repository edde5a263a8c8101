"""What of an answer depends on the client's rights or on what exists: the parts in which two brokers must agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from odradek.wire.errors import ErrorCode
from tests.integration.acl_probes import AUTHORIZATION

Fact = tuple[object, ...]
_LABELS = (
    "name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name", "user",
    "principal_name", "entity_name", "partition_index", "partition", "partition_id", "index", "resource_type",
)  # fmt: skip
_ERRORS = ("error_code", "errorcode")
_DENIED = AUTHORIZATION | {ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED}
_NOT_COMPARED = {"error_message", "throttle_time_ms"}
_OTHER_NAMES = {"DescribeUserScramCredentialsResponseResult": "user"}
"""Names that Apache Kafka leaves out of a refusal; ours repeats what the client has sent."""
_OTHER_LISTS = {"supported_features", "finalized_features"}
"""Lists that depend on the product, not on the client's rights."""
ZERO_ID = bytes(16)


def facts_of(answer: Any, names: Mapping[bytes, str], hidden: frozenset[str] = frozenset()) -> set[Fact]:
    """Every item with its errors and bit fields, and all fields of an item that is refused.

    `names` are topics by id, because ids differ. Items named in `hidden` are left out.
    """
    return set(_facts(answer, (type(answer).__name__,), names, hidden))


def authorization_of(facts: set[Fact]) -> set[Fact]:
    """The facts that say that something is refused."""
    return {fact for fact in facts if fact[-1] in {code.name for code in _DENIED}}


def _facts(part: Any, path: Fact, names: Mapping[bytes, str], hidden: frozenset[str]) -> Iterator[Fact]:
    yield (*path, "is in the answer")
    is_refused = any(name.endswith(_ERRORS) and getattr(part, name) in _DENIED for name in part.__slots__)
    for field in part.__slots__:
        if field in _OTHER_LISTS or field == _OTHER_NAMES.get(type(part).__name__):
            continue
        value = getattr(part, field)
        if field.endswith(_ERRORS):
            yield (*path, field, ErrorCode(value).name)
        elif field.endswith("authorized_operations"):
            yield (*path, field, value)
        elif isinstance(value, list) or hasattr(value, "__slots__"):
            for item in value if isinstance(value, list) else [value]:
                if not hasattr(item, "__slots__"):
                    continue
                labels = _labels(item, names)
                if hidden.isdisjoint(labels):
                    yield from _facts(item, (*path, field, " ".join(labels)), names, hidden)
        elif is_refused and value is not None and field not in _NOT_COMPARED:
            yield (*path, field, names.get(value, "unknown id") if field == "topic_id" else value)


def _labels(item: Any, names: Mapping[bytes, str]) -> list[str]:
    other = _OTHER_NAMES.get(type(item).__name__)
    values = [getattr(item, field, None) for field in _LABELS if field != other]
    values.append(names.get(getattr(item, "topic_id", ZERO_ID)))
    return list(dict.fromkeys(str(value) for value in values if value not in (None, "")))
