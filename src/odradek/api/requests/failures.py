"""The answer to a request that failed as a whole: the error code everywhere the response has room for one.

Kafka writes this by hand for every request (`AbstractRequest.getErrorResponse`). The messages are regular enough to
derive it: what the request lists (topics, partitions, groups, resources) the response lists again under the same names.
"""

from __future__ import annotations

import typing
from typing import Any, Final

from odradek.wire.apis import response_class
from odradek.wire.primitives import EncodeError

_LISTED: Final = {
    ("DeleteTopicsRequest", "responses"): ("topics", "topic_names"),
    ("AlterUserScramCredentialsRequest", "results"): ("deletions", "upsertions"),
    ("AddPartitionsToTxnRequest", "results_by_topic_v3_and_below"): ("v3_and_below_topics",),
}
"""What a response's list repeats where the request has several lists, none of which has its name."""
_FLATTENED: Final = {("AlterReplicaLogDirsRequest", "results"): ("dirs", "topics")}
"""What a response's list repeats where the request has it one level further down."""
_ECHOED: Final = {"AlterClientQuotasResponseEntry": "entity"}
"""Lists without errors that say of what an entry is."""
_CALLED: Final = {"user": "name", "topic_name": "name"}
"""What an entry of a response calls that which the request calls otherwise."""
_CODES: Final = ("error_code", "partition_error_code")
"""Names of the fields of error codes, of the whole and of entries."""
_NO_RESULT: Final = {
    "CreateTopicsResponseTopic": ("num_partitions", "replication_factor"),
    "DeleteRecordsResponsePartition": ("low_watermark",),
    "InitProducerIdResponse": ("producer_epoch",),
    "OffsetForLeaderEpochResponseEpochEndOffset": ("leader_epoch",),
}
"""Fields that are -1 in Kafka's answers with errors: their defaults, or the request's fields of that name, look like
results."""


def failure_response(key: int, request: Any, version: int, code: int, message: str | None = None) -> Any:
    """A response of `key` in which every entry of the request failed with `code`.

    Versions differ in where they have room for errors: in the whole, in every entry, or in both.
    """
    kind = response_class(key)
    # An older version may have no room for the words, but where it has room for the code, that has to be there: an
    # answer with neither code nor entries reads as success.
    wordings: tuple[str | None, ...] = (None,) if message is None else (message, None)
    response = kind()
    for in_whole, in_entries in ((True, True), (True, False), (False, True)):
        if not in_entries and not hasattr(kind, "error_code"):
            continue
        for words in wordings:
            response = kind()
            if in_entries:
                _fill(response, request, code, words)
            _coded(response, code if in_whole else 0, words if in_whole else None)
            if _fits(response, version):
                return response
    return response


def _fits(response: Any, version: int) -> bool:
    try:
        response.encode(bytearray(), version)
    except EncodeError:
        return False
    return True


def _fill(target: Any, source: Any, code: int, message: str | None) -> None:
    _coded(target, code, message)
    for name, struct in _lists_with_errors(type(target)):
        entries = _entries_like(source, name)
        setattr(target, name, [_mirror(struct, entry, code, message) for entry in entries])


_lists: dict[type[Any], tuple[tuple[str, type[Any]], ...]] = {}


def _lists_with_errors(kind: type[Any]) -> tuple[tuple[str, type[Any]], ...]:
    """The list fields of a message that have to be filled, and what they hold: found once per class, not per entry."""
    found = _lists.get(kind)
    if found is None:
        found = _lists[kind] = _find_lists_with_errors(kind)
    return found


def _find_lists_with_errors(kind: type[Any]) -> tuple[tuple[str, type[Any]], ...]:
    hints = typing.get_type_hints(kind.__init__)
    fields = ((name, _struct_of_list(hints[name])) for name in kind.__slots__ if name not in (*_CODES, "error_message"))
    return tuple((name, struct) for name, struct in fields if struct is not None)


def _struct_of_list(hint: Any) -> type[Any] | None:
    """The message struct that a list field holds, if it can carry an error itself or further down."""
    for option in (hint, *typing.get_args(hint)):
        if typing.get_origin(option) is list:
            struct = typing.get_args(option)[0]
            if hasattr(struct, "__slots__") and _carries_error(struct):
                return typing.cast("type[Any]", struct)
    return None


def _carries_error(struct: type[Any]) -> bool:
    if any(name in struct.__slots__ for name in _CODES):
        return True
    hints = typing.get_type_hints(struct.__init__)
    return any(_struct_of_list(hints[name]) is not None for name in struct.__slots__)


def _entries_like(source: Any, name: str) -> list[Any]:
    """What the response's list `name` repeats: the request's list of that name, else its only one or all that count."""
    lists = {slot: getattr(source, slot) for slot in getattr(source, "__slots__", ())}
    lists = {slot: value for slot, value in lists.items() if isinstance(value, list)}
    if name in lists:
        return list(lists[name])
    if path := _FLATTENED.get((type(source).__name__, name)):
        outer, inner = path
        return [entry for each in lists[outer] for entry in getattr(each, inner)]
    if listed := _LISTED.get((type(source).__name__, name)):
        return [entry for slot in listed for entry in lists[slot]]
    return list(next(iter(lists.values()))) if len(lists) == 1 else []


def _mirror(struct: type[Any], entry: Any, code: int, message: str | None) -> Any:
    made = struct()
    if isinstance(entry, str | int | bytes):
        # A request that lists plain names or indexes: the first field of that type in the response is what they become.
        for name in made.__slots__:
            if name not in _CODES and type(getattr(made, name)) is type(entry):
                setattr(made, name, entry)
                break
        return _coded(made, code, message)
    for name in made.__slots__:
        source = name if hasattr(entry, name) else _CALLED.get(name, "")
        if hasattr(entry, source) and not isinstance(getattr(entry, source), list):
            setattr(made, name, getattr(entry, source))
    if echoed := _ECHOED.get(struct.__name__):
        item = typing.get_args(typing.get_type_hints(struct.__init__)[echoed])[0]
        setattr(made, echoed, [_mirror(item, each, code, message) for each in getattr(entry, echoed)])
    _fill(made, entry, code, message)
    return made


def _coded(made: Any, code: int, message: str | None) -> Any:
    for name in _CODES:
        if name in made.__slots__:
            setattr(made, name, int(code))
    for name in _NO_RESULT.get(type(made).__name__, ()):
        setattr(made, name, -1)
    if "error_message" in made.__slots__:
        made.error_message = message
    return made
