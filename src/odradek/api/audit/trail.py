"""The one place where audit events are made: their fields, what is left out, and how long a text may be.

An event is a JSON object in one record. Fields are added to later versions of the schema, never renamed or removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from odradek.api.audit.selection import CHANGE, DENIAL, LOGIN, LOGIN_FAILURE, Selection
from odradek.api.requests.session import Session
from odradek.authorization.authorizer import Question
from odradek.authorization.decision_log import rule_text
from odradek.authorization.decisions import Decision, Reason
from odradek.wire.errors import error_code

SCHEMA_VERSION: Final = 1
"""The field `version` of events."""
_MOST_CHARACTERS: Final = 8192
"""Of a text in an event; longer ones are cut."""
_MOST_ENTRIES: Final = 1000
"""Of a list or an object in an event; others are left out."""
_SHORT: Final = 255
"""Characters of what a peer calls itself before it has proven anything."""
_TOPIC: Final = "TOPIC"


class Change(NamedTuple):
    """One resource that a request changed, or did not because of the error."""

    resource_type: str
    resource_name: str
    before: Mapping[str, Any] | None
    """None for what did not exist."""
    after: Mapping[str, Any] | None
    """None for what does not exist any longer, or if the change failed."""
    error_code: int = 0
    topic: str | None = None
    """The topic concerned, if the resource is not that topic."""


class Outlet(Protocol):
    """Takes events as bytes."""

    def offer(self, time_ms: int, event: bytes) -> bool:
        """Accept an event, or count it as lost."""
        ...

    def lose(self) -> None:
        """Count an event that could not be made."""
        ...


class Asked(Protocol):
    """The circumstances of a request."""

    @property
    def session(self) -> Session:
        """Who has sent the request."""
        ...

    @property
    def client_id(self) -> str | None:
        """The client's name for itself."""
        ...


class AuditTrail:
    """Makes the events of one broker, and numbers them: a gap in the numbers is a loss."""

    __slots__ = ("_node_id", "_now_ms", "_outlet", "_selection", "_sequence", "_started_ms")

    def __init__(self, node_id: int, now_ms: Callable[[], int], selected: Selection, outlet: Outlet) -> None:
        """`now_ms` is wall time."""
        self._node_id = node_id
        self._now_ms = now_ms
        self._selection = selected
        self._outlet = outlet
        self._started_ms = now_ms()
        self._sequence = 0

    @property
    def instance(self) -> tuple[int, int]:
        """The broker's id and when its process started (ms): beside `sequence` the identity of its events."""
        return self._node_id, self._started_ms

    def logged_in(self, session: Session, mechanism: str, principal: str) -> None:
        """A client has proven its identity. `mechanism` is that of SASL, or `TLS` for a certificate."""
        if self._selection.admits(LOGIN, None, principal, None):
            self._emit(LOGIN, principal, session.peer_host, listener=session.listener_name, mechanism=mechanism)

    def login_failed(self, host: str, listener: str, mechanism: str, claimed: str | None, reason: str) -> None:
        """A client has not proven its identity; `claimed` is the name of the user that it gave, if it gave one."""
        principal = None if claimed is None else f"User:{claimed[:_SHORT]}"
        if self._selection.admits(LOGIN_FAILURE, None, principal, None):
            self._emit(
                LOGIN_FAILURE, principal, host, listener=listener, mechanism=mechanism[:_SHORT], reason=reason
            )  # fmt: skip

    def denied(self, question: Question, decision: Decision, *, is_enforced: bool) -> None:
        """A client lacks a right."""
        principal = question.subject.principal
        topic = question.name if question.kind.name == _TOPIC else None
        if not self._selection.admits(DENIAL, question.request, principal, topic):
            return
        self._emit(
            DENIAL,
            principal,
            question.subject.address,
            client_id=question.client_id,
            request=question.request or None,
            operation=question.operation.name,
            resource_type=question.kind.name,
            resource_name=question.name or None,
            rule=rule_text(decision),
            enforced=is_enforced or decision.reason is Reason.RESERVED,
        )

    def changed(self, asked: Asked, request: str, changes: Iterable[Change]) -> None:
        """A request of an administrative API was answered. Changes that lacked a right are left to `denied`."""
        session = asked.session
        principal = str(session.principal)
        for each in changes:
            topic = each.resource_name if each.resource_type == _TOPIC else each.topic
            if _is_denied(each.error_code) or not self._selection.admits(CHANGE, request, principal, topic):
                continue
            self._emit(
                CHANGE,
                principal,
                session.peer_host,
                client_id=asked.client_id,
                request=request,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                topic=each.topic,
                before=each.before,
                after=each.after,
                error=_error_name(each.error_code),
            )

    def lost(self) -> None:
        """An event could not be made."""
        self._sequence += 1
        self._outlet.lose()

    def _emit(self, event: str, principal: str | None, host: str, **fields: object) -> None:
        now_ms = self._now_ms()
        self._sequence += 1
        record: dict[str, Any] = {
            "version": SCHEMA_VERSION,
            "time_ms": now_ms,
            "broker": self._node_id,
            "started_ms": self._started_ms,
            "sequence": self._sequence,
            "event": event,
            "principal": principal,
            "host": host,
        }
        record.update((name, _bounded(value)) for name, value in fields.items() if value is not None)
        self._outlet.offer(now_ms, json.dumps(record, separators=(",", ":")).encode())


def _is_denied(code: int) -> bool:
    return (_error_name(code) or "").endswith("AUTHORIZATION_FAILED")


def _error_name(code: int) -> str | None:
    return error_code(code).name if code else None


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARACTERS else f"{value[:_MOST_CHARACTERS]}…"
    if isinstance(value, Mapping):
        return {str(_bounded(name)): _bounded(each) for name, each in list(value.items())[:_MOST_ENTRIES]}
    if isinstance(value, list | tuple):
        return [_bounded(each) for each in value[:_MOST_ENTRIES]]
    return value
