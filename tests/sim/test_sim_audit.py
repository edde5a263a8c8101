"""The checker of the audit topic: what has to be there, what may be missing, and what may never be there."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.sim.checkers.access_history import AccessHistory, Asked, Change, LoginTry, Probe, Question
from odradek.sim.checkers.audit import check_audit, parse_event
from odradek.sim.checkers.audit_history import AuditEvent, AuditHistory
from odradek.sim.checkers.history import Violation
from odradek.sim.run import run_seed
from odradek.wire.acls import AclBinding, AclOperation, ResourceType

ADDED = {
    "event": "change", "request": "CREATE_ACLS", "principal": "User:root", "resource_type": "TOPIC",
    "resource_name": "orders",
    "after": {"principal": "User:alice", "permission": "ALLOW", "operation": "READ", "host": "*",
              "pattern_type": "LITERAL"},
}  # fmt: skip
DENIED = {
    "event": "denial", "principal": "User:bert", "operation": "READ", "resource_type": "TOPIC",
    "resource_name": "orders",
}  # fmt: skip
LOGGED_IN = {"event": "login", "principal": "User:dora", "mechanism": "SCRAM-SHA-256"}


def event(sequence: int, at: float, fields: dict[str, Any], broker: int = 1) -> AuditEvent:
    common = {"version": 1, "time_ms": int(at * 1000), "broker": broker, "started_ms": 0, "sequence": sequence}
    return AuditEvent(at, broker, 0, sequence, {**common, "host": "10.0.0.9", **fields})


def histories() -> tuple[AuditHistory, AccessHistory]:
    """An addition, a denial and a login, each with its event."""
    access, audit = AccessHistory(), AuditHistory()
    acl = AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
    access.acls[acl].append(Change(1.0, 1.2, "here", is_certain=True))
    asked = Question("bert", "10.0.0.9", AclOperation.READ, ResourceType.TOPIC, "orders")
    access.asked.append(Asked(asked, "b1", 2.0))
    access.probes.append(Probe(asked, "b1", 2.0, 2.2, 0.0, is_allowed=False))
    access.logins.append(LoginTry("dora", "word", "b1", 3.0, 3.2, 0.0, is_accepted=True))
    audit.topic += [event(1, 1.1, ADDED), event(2, 2.1, DENIED), event(3, 3.1, LOGGED_IN)]
    audit.known_until = 10.0
    audit.passwords = (b"planted-secret",)
    return audit, access


def test_complete_audit_is_accepted() -> None:
    check_audit(*histories())


@pytest.mark.parametrize("index", [0, 1, 2])
def test_missing_event_is_found_unless_it_was_lost_with_its_broker(index: int) -> None:
    audit, access = histories()
    gone = audit.topic.pop(index)
    audit.topic = [each for each in audit.topic if each.sequence < gone.sequence]
    with pytest.raises(Violation, match="everything is in the audit"):
        check_audit(audit, access)
    audit.left += [each for each in histories()[0].topic if each.sequence >= gone.sequence]
    check_audit(audit, access)


def test_gap_is_found_unless_the_queue_has_counted_it() -> None:
    audit, access = histories()
    audit.topic[2] = event(4, 3.1, LOGGED_IN)
    with pytest.raises(Violation, match="gaps in the audit"):
        check_audit(audit, access)
    audit.lost[1, 0] = 1
    check_audit(audit, access)


def test_denials_at_the_same_time_are_as_many_as_requests() -> None:
    """A broker without metadata decides later what clients have asked on connections that they gave up."""
    audit, access = histories()
    asked = access.probes[0].question
    access.asked += [Asked(asked, "b1", 3.5), Asked(asked, "b1", 3.9)]
    audit.topic += [event(4, 4.0, DENIED), event(5, 4.0, DENIED)]
    check_audit(audit, access)
    audit.topic += [event(6, 4.0, LOGGED_IN), event(7, 4.0, DENIED)]
    with pytest.raises(Violation, match=r"single: event 4 .* and event 5 .* and event 7 .*, of 2 requests"):
        check_audit(audit, access)


@pytest.mark.parametrize(("broker", "asked_at"), [("b2", 3.5), ("b1", 4.5)])
def test_requests_elsewhere_or_later_explain_no_second_denial(broker: str, asked_at: float) -> None:
    audit, access = histories()
    asked = access.probes[0].question
    access.asked += [Asked(asked, "b1", 3.5), Asked(asked, broker, asked_at)]
    audit.topic += [event(4, 4.0, DENIED), event(5, 4.0, DENIED)]
    with pytest.raises(Violation, match="of 1 requests"):
        check_audit(audit, access)


def test_repeated_batch_is_accepted() -> None:
    audit, access = histories()
    audit.topic += audit.topic[1:]
    check_audit(audit, access)


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (lambda topic: topic.insert(0, topic.pop()), "in order"),
        (lambda topic: topic.extend((event(4, 4.0, DENIED), event(5, 4.0, DENIED))), "single"),
        (lambda topic: topic.append(event(3, 3.1, {**LOGGED_IN, "principal": "User:emil"})), "numbers of their own"),
        (lambda topic: topic.append(event(4, 4.0, {**ADDED, "resource_name": "other"})), "invents nothing"),
        (lambda topic: topic.append(event(4, 0.5, ADDED)), "invents nothing"),
        (lambda topic: topic.append(event(4, 4.0, {**ADDED, "principal": "User:bert"})), "names who asked"),
        (lambda topic: topic.append(event(4, 4.0, {**LOGGED_IN, "reason": "planted-secret"})), "no secrets"),
    ],
)
def test_wrong_events_are_found(change: Any, violation: str) -> None:
    audit, access = histories()
    change(audit.topic)
    with pytest.raises(Violation, match=violation):
        check_audit(audit, access)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"time_ms":1,"broker":1,"started_ms":0,"sequence":1}'])
def test_record_without_the_fields_of_an_event_is_found(value: bytes) -> None:
    with pytest.raises(Violation, match="records are events"):
        parse_event(value, 0)


def test_seed_with_faults_has_a_complete_audit() -> None:
    outcome = run_seed(3, "audit", safety_seconds=8)
    assert not outcome.violation, f"{outcome.seed}: {outcome.violation}: {outcome.story}"
    assert outcome.marks["audit read"]
    assert outcome.marks["request denied"]
