"""The authorizer of a broker: which decisions the audit topic gets, and when rights are looked up again."""

from __future__ import annotations

import pytest

from odradek.api.audit.selection import Selection
from odradek.api.audit.trail import AuditTrail
from odradek.api.requests.session import ANONYMOUS, Principal, Session
from odradek.authorization.authorizer import Mode, Question, Settings
from odradek.authorization.decisions import Decision, Reason, Subject
from odradek.broker.authorization.broker_authorization import BrokerAuthorization, acls_in
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.wire.acls import AclOperation, ResourceType
from tests.unit.api.audit.test_trail import Taken

QUESTION = Question(Subject("User:alice", "10.0.0.7"), AclOperation.READ, ResourceType.TOPIC, "orders", "FETCH")


def authorization(taken: Taken, mode: Mode = Mode.ENFORCE) -> BrokerAuthorization:
    audit = AuditTrail(3, lambda: 1000, Selection(), taken)
    return BrokerAuthorization(Settings(mode=mode), acls_in(MemoryStore()), audit)


@pytest.mark.parametrize(
    ("is_allowed", "quiet", "audited"),
    [(False, False, 1), (False, True, 0), (True, False, 0), (True, True, 0)],
    ids=["denial", "denial as a part of a longer question", "grant", "grant as a part"],
)
def test_audit_topic_gets_denials_that_a_client_notices(is_allowed: bool, quiet: bool, audited: int) -> None:
    taken = Taken()
    decision = Decision(is_allowed, Reason.NO_MATCH)
    authorization(taken).authorizer.report(QUESTION, decision, quiet=quiet)
    assert len(taken.events) == audited


@pytest.mark.parametrize(("mode", "is_enforced"), [(Mode.ENFORCE, True), (Mode.AUDIT, False)])
def test_audited_denial_says_whether_it_took_effect(mode: Mode, is_enforced: bool) -> None:
    taken = Taken()
    authorization(taken, mode).authorizer.report(QUESTION, Decision(False, Reason.NO_MATCH), quiet=False)
    assert [event["enforced"] for event in taken.events] == [is_enforced]


def test_rights_of_a_connection_change_with_its_login_only() -> None:
    rights = authorization(Taken())
    session = Session("SASL_PLAINTEXT", "10.0.0.7", ANONYMOUS)
    first = rights.access(session)
    assert rights.access(session) is first
    session.principal = Principal("User", "alice")
    second = rights.access(session)
    assert second is not first
    assert second.principal is session.principal
    assert rights.access(session) is second
    session.broker_id = 2
    assert rights.access(session).is_broker
    assert rights.access(session) is rights.access(session)
