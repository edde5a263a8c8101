"""The parts that guards are made of: refuse a request, refuse some of its entries, hide parts of the answer."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from odradek.api.requests.capabilities import HasAuthorization, HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.failures import failure_response
from odradek.authorization.authorizer import Access
from odradek.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from odradek.wire.apis import ApiKey, response_class
from odradek.wire.errors import ErrorCode, KafkaError


class Guarded(HasAuthorization, HasImage, Protocol):
    """The capabilities of the broker that guards use."""


Handle = Callable[[Any, RequestContext[Guarded]], Any]
"""A handler: the answer, or an awaitable of it."""
Guard = Callable[[Any, RequestContext[Guarded], Access, Handle], Any]
"""Serves a request by the handler, with the parts of it that the client may ask for. Raises KafkaError if the whole
request is refused."""
Check = Callable[[Any, Access], None]
"""Raises KafkaError if the client may not send the request."""
Sees = Callable[[Any, Any, RequestContext[Guarded], Access], None]
"""Removes from an answer (second) to a request (first) what the client may not see."""

_ERRORS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def require(access: Access, operation: AclOperation, kind: ResourceType, name: str) -> None:
    """Raise KafkaError unless the client may do the operation."""
    if not access.allows(operation, kind, name):
        raise KafkaError(_ERRORS[kind])


def cluster(operation: AclOperation) -> Check:
    """The operation on the cluster."""
    return lambda _request, access: require(access, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def named(operation: AclOperation, kind: ResourceType, field: str) -> Check:
    """The operation on the resource that a field of the request names."""
    return lambda request, access: require(access, operation, kind, getattr(request, field))


class Entries(NamedTuple):
    """The entries of a request that need a right each."""

    field: str
    """The list in the request."""
    is_allowed: Callable[[Any, Access], bool]
    """Whether the client may name the entry."""
    error: Callable[[Any], ErrorCode]
    """The error of a refused entry."""
    message: str | None = None
    """The words beside it; the error's own if None."""
    is_asked_without: bool = False
    """Whether the handler has an answer to a request none of whose entries is allowed."""


def entries(operation: AclOperation, kind: ResourceType, field: str, name: str = "") -> Entries:
    """Entries that need an operation on the resource that they name, in their field `name` or by themselves."""
    if name:
        return Entries(
            field, lambda entry, access: access.allows(operation, kind, getattr(entry, name)), lambda _: _ERRORS[kind]
        )
    return Entries(field, lambda entry, access: access.allows(operation, kind, entry), lambda _: _ERRORS[kind])


def guard(*checks: Check, entries: Entries | None = None, sees: Sees | None = None, is_bare: bool = False) -> Guard:
    """Checks of the whole request, then of its entries; then what the client may not see is removed.

    `is_bare`: the answer to a refused request names no entries, only the error.
    """

    def guarded(request: Any, context: RequestContext[Guarded], access: Access, handle: Handle) -> Any:
        name = access.request
        try:
            for check in checks:
                check(request, access)
        except KafkaError as error:
            if not is_bare:
                raise
            refused: Any = response_class(ApiKey[name])()
            refused.error_code = error.code
            return refused
        if entries is not None:
            answer = serve_entries(ApiKey[name], entries, request, context, access, handle)
        else:
            answer = handle(request, context)
        if sees is None:
            return answer
        remove = sees

        def seen(answer: Any) -> Any:
            if answer is not None:
                access.request = name
                remove(request, answer, context, access)
            return answer

        return then(answer, seen)

    return guarded


def serve_entries(
    key: ApiKey, wanted: Entries, request: Any, context: RequestContext[Guarded], access: Access, handle: Handle
) -> Any:
    """Serve the allowed entries and refuse the others."""
    allowed, refused = split(request, wanted, access)
    if not refused:
        return handle(request, context)
    answer = joined([_refused(key, wanted, request, context, entry) for entry in refused])
    if not allowed and not wanted.is_asked_without:
        return answer
    return merged(key, with_list(request, wanted.field, allowed), context, handle, answer)


def split(request: Any, wanted: Entries, access: Access) -> tuple[list[Any], list[Any]]:
    """The entries that the client may name, and the others."""
    return divided(getattr(request, wanted.field) or (), lambda entry: wanted.is_allowed(entry, access))


def divided(entries: Iterable[Any], is_allowed: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """The allowed entries and the denied ones, in one pass: a request may name a hundred thousand topics."""
    allowed: list[Any] = []
    denied: list[Any] = []
    for entry in entries:
        (allowed if is_allowed(entry) else denied).append(entry)
    return allowed, denied


def _refused(key: ApiKey, wanted: Entries, request: Any, context: RequestContext[Guarded], entry: Any) -> Any:
    code = wanted.error(entry)
    of_entry = with_list(request, wanted.field, [entry])
    answer = failure_response(key, of_entry, context.version, code, wanted.message or code.message)
    if hasattr(answer, "error_code"):
        answer.error_code = ErrorCode.NONE
    if hasattr(answer, "error_message"):
        answer.error_message = None
    return answer


def with_list(request: Any, field: str, values: Iterable[Any]) -> Any:
    """The request with another list in a field."""
    changed = copy.copy(request)
    setattr(changed, field, list(values))
    return changed


def merged(key: ApiKey, request: Any, context: RequestContext[Guarded], handle: Handle, refused: Any) -> Any:
    """The handler's answer together with that for refused entries, also if the handler fails."""

    def complete(answer: Any) -> Any:
        if answer is None or (hasattr(answer, "error_code") and answer.error_code):
            return answer
        return merge(answer, refused)

    def failed(error: KafkaError) -> Any:
        return merge(failure_response(key, request, context.version, error.code, error.message), refused)

    try:
        answer = handle(request, context)
    except KafkaError as error:
        return failed(error)
    if not hasattr(answer, "__await__"):
        return complete(answer)

    async def later() -> Any:
        try:
            return complete(await answer)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                # The dispatcher forwards the whole request then, and the controller refuses these entries itself.
                raise
            return failed(error)

    return later()


def merge(answer: Any, refused: Any) -> Any:
    """The first answer with the entries of the second one."""
    for name in answer.__slots__:
        added = getattr(refused, name)
        if isinstance(added, list) and added:
            setattr(answer, name, [*(getattr(answer, name) or ()), *added])
    return answer


def joined(answers: Sequence[Any]) -> Any:
    """The first answer with the entries of all others."""
    first = answers[0]
    for name in first.__slots__:
        if isinstance(getattr(first, name), list):
            setattr(first, name, [entry for each in answers for entry in getattr(each, name)])
    return first


def then(answer: Any, complete: Callable[[Any], Any]) -> Any:
    """The completed answer, or an awaitable of it."""
    if not hasattr(answer, "__await__"):
        return complete(answer)
    return _completed(answer, complete)


async def _completed(answer: Awaitable[Any], complete: Callable[[Any], Any]) -> Any:
    return complete(await answer)
