"""The audit topic, judged apart from the product: every change, denial and login has its event, once, and no secret.

An event may be in the topic twice, since a batch whose answer was lost is written again; then both have one number.
Numbers have gaps only where a queue counted losses. What waited in a broker that was killed is lost with it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from odradek.sim.checkers.access_history import AccessHistory, Asked, Change, LoginTry, Probe
from odradek.sim.checkers.audit_history import AuditEvent, AuditHistory, Instance
from odradek.sim.checkers.history import Violation
from odradek.wire.acls import AclBinding

_TOLERANCE: Final = 0.002
"""Events have times in milliseconds."""
_FIELDS: Final = ("version", "time_ms", "broker", "started_ms", "sequence", "event", "host")
_AT_ONCE: Final = ("CREATE_PARTITIONS",)
"""Requests that users send to all brokers at once, and one broker decides."""
_CHANGE, _DENIAL, _LOGIN, _FAILURE = "change", "denial", "login", "login_failure"


def parse_event(value: bytes, epoch_ms: int) -> AuditEvent:
    """Raises Violation for a record that is no event."""
    try:
        fields = json.loads(value)
        at = (fields["time_ms"] - epoch_ms) / 1000
        event = AuditEvent(at, fields["broker"], fields["started_ms"], fields["sequence"], fields)
    except (ValueError, KeyError, TypeError) as error:
        raise Violation("audit records are events", f"{value[:200]!r}: {error!r}") from error
    if missing := [name for name in _FIELDS if name not in fields]:
        raise Violation("audit records are events", f"{event} has no {', '.join(missing)}")
    return event


def check_audit(audit: AuditHistory, access: AccessHistory) -> None:
    """Raises Violation."""
    if not audit.known_until:
        return
    made = _distinct((*audit.topic, *audit.left))
    _check_secrets(audit)
    _check_order(audit.topic)
    _check_numbers(audit, made.values())
    _check_single(made.values(), access)
    by_key: dict[object, list[AuditEvent]] = defaultdict(list)
    for each in made.values():
        by_key[_key(each)].append(each)
    _check_invented(by_key, access)
    if not any(audit.lost.values()):
        for key, since, until, story in _expected(access, audit.known_until):
            if not any(since - _TOLERANCE <= each.at <= until + _TOLERANCE for each in by_key.get(key, ())):
                raise Violation("everything is in the audit", story)


def _distinct(events: Iterable[AuditEvent]) -> dict[tuple[Instance, int], AuditEvent]:
    found: dict[tuple[Instance, int], AuditEvent] = {}
    for each in events:
        known = found.setdefault((each.instance, each.sequence), each)
        if known.fields != each.fields:
            raise Violation("audit events have numbers of their own", f"{each}: {known.fields} and {each.fields}")
    return found


def _check_secrets(audit: AuditHistory) -> None:
    for each in (*audit.topic, *audit.left):
        text = json.dumps(each.fields).encode()
        if any(password in text for password in audit.passwords):
            raise Violation("the audit has no secrets", f"{each}: {each.fields}")


def _check_order(topic: Iterable[AuditEvent]) -> None:
    """First appearances have growing numbers, per process."""
    newest: dict[Instance, int] = {}
    seen: set[tuple[Instance, int]] = set()
    for each in topic:
        if (each.instance, each.sequence) in seen:
            continue
        seen.add((each.instance, each.sequence))
        before = newest.get(each.instance, 0)
        if each.sequence < before:
            raise Violation("audit events are in order", f"{each} stands behind event {before}")
        newest[each.instance] = each.sequence


def _check_numbers(audit: AuditHistory, made: Iterable[AuditEvent]) -> None:
    numbers: dict[Instance, list[int]] = defaultdict(list)
    for each in made:
        numbers[each.instance].append(each.sequence)
    for instance, found in numbers.items():
        missing = max(found) - len(found)
        if missing > audit.lost.get(instance, 0):
            first = next(number for number, has in enumerate(sorted(found), 1) if number != has)
            what = (
                f"event {first} of broker {instance[0]} is missing, {missing} are, {audit.lost.get(instance, 0)} lost"
            )
            raise Violation("gaps in the audit are counted", what)


def _check_single(made: Iterable[AuditEvent], access: AccessHistory) -> None:
    """No process makes two events of one thing: they would differ in their numbers alone.

    A broker may decide several requests of a user in one millisecond: those that wait for its first metadata, or that
    it received while it was paused. Their denials are alike, so there are at most as many as requests.
    """
    alike: dict[str, list[AuditEvent]] = defaultdict(list)
    for each in made:
        # Two connections of a client may begin in one millisecond.
        if each.fields["event"] in (_CHANGE, _DENIAL) and each.fields.get("request") not in _AT_ONCE:
            alike[json.dumps({**each.fields, "sequence": 0}, sort_keys=True)].append(each)
    for events in alike.values():
        if len(events) > 1 and len(events) > (requests := _requests_behind(events[0], access)):
            what = f"{' and '.join(map(str, events))}, of {requests} requests: {events[0].fields}"
            raise Violation("audit events are single", what)


def _requests_behind(event: AuditEvent, access: AccessHistory) -> int:
    """The number of requests that the broker may have decided when it made an event; administrators send one each."""
    if event.fields["event"] != _DENIAL:
        return 1
    key = _key(event)

    def is_alike(sent: Asked | Probe) -> bool:
        return int(sent.broker[1:]) == event.broker and _denial_key(sent) == key

    sent = sum(each.asked_at <= event.at + _TOLERANCE and is_alike(each) for each in access.asked)
    return sent - sum(each.done_at < event.at - _TOLERANCE and is_alike(each) for each in access.probes)


# --- what has to be there, and what may be there ---


def _key(event: AuditEvent) -> object:
    fields = event.fields
    kind = fields["event"]
    if kind == _CHANGE and not fields.get("error"):
        acl = fields.get("after") or fields.get("before") or {}
        if fields["request"] in ("CREATE_ACLS", "DELETE_ACLS"):
            return (fields["request"], fields["resource_type"], fields["resource_name"], *sorted(acl.items()))
        return fields["request"], fields["resource_name"]
    if kind == _DENIAL:
        asked = (fields.get(name) for name in ("operation", "resource_type", "resource_name"))
        return (kind, fields["principal"], fields["host"], *asked)
    return kind, fields.get("principal"), event.broker, fields.get("mechanism")


def _acl_key(binding: AclBinding, change: Change) -> object:
    acl = {
        "principal": binding.principal,
        "permission": binding.permission.name,
        "operation": binding.operation.name,
        "host": binding.host,
        "pattern_type": binding.pattern_type.name,
    }
    request = "CREATE_ACLS" if change.value else "DELETE_ACLS"
    return (request, binding.resource_type.name, binding.resource_name, *sorted(acl.items()))


def _expected(access: AccessHistory, until: float) -> Iterator[tuple[object, float, float, str]]:
    """Keys of events that have to be there, when they were made at the earliest and the latest, and what they are."""
    for binding, changes in access.acls.items():
        for each in changes:
            if each.is_certain and each.done_at <= until:
                what = f"{'addition' if each.value else 'removal'} of {binding}, done at {each.done_at:.3f}"
                yield _acl_key(binding, each), each.asked_at, each.done_at, what
    for user, changes in access.users.items():
        for each in changes:
            if each.is_certain and each.done_at <= until:
                key = "ALTER_USER_SCRAM_CREDENTIALS", user
                yield key, each.asked_at, each.done_at, f"a password of {user}, changed at {each.done_at:.3f}"
    for probe in access.probes:
        if not probe.is_allowed and probe.done_at <= until:
            # A connection that asks again gets one event until the ACLs change.
            yield _denial_key(probe), 0.0, probe.done_at, f"denial of {probe.question} at {probe.broker}"
    for tried in access.logins:
        if not tried.is_session and tried.done_at <= until:
            what = f"login of {tried.user} at {tried.broker}, {'accepted' if tried.is_accepted else 'rejected'}"
            yield _login_key(tried), tried.asked_at, tried.done_at, f"{what} at {tried.done_at:.3f}"


def _denial_key(sent: Asked | Probe) -> object:
    asked = sent.question
    return (_DENIAL, f"User:{asked.user}", asked.address, asked.operation.name, asked.kind.name, asked.name)


def _login_key(tried: LoginTry) -> object:
    return _LOGIN if tried.is_accepted else _FAILURE, f"User:{tried.user}", int(tried.broker[1:]), "SCRAM-SHA-256"


def _check_invented(made: Mapping[object, list[AuditEvent]], access: AccessHistory) -> None:
    """An event of a change of ACLs or users has a request that came before it."""
    asked: dict[object, float] = {}
    for binding, changes in access.acls.items():
        for each in changes:
            asked.setdefault(_acl_key(binding, each), each.asked_at)
    for user, changes in access.users.items():
        if changes:
            asked["ALTER_USER_SCRAM_CREDENTIALS", user] = changes[0].asked_at
    for key, events in made.items():
        if not isinstance(key, tuple) or key[0] not in ("CREATE_ACLS", "DELETE_ACLS", "ALTER_USER_SCRAM_CREDENTIALS"):
            continue
        since = asked.get(key)
        for event in events:
            if since is None or event.at < since - _TOLERANCE:
                raise Violation("the audit invents nothing", f"{event}: {event.fields}")
            if event.fields["principal"] != "User:root":
                raise Violation("the audit names who asked", f"{event}: {event.fields}")
