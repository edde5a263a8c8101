"""The checkers of rights: which decisions are right while ACLs change, and which may be either."""

from __future__ import annotations

import pytest

from odradek.sim.checkers.access import check_access, check_agreement
from odradek.sim.checkers.access_history import AccessHistory, Change, LoginTry, Probe, Question
from odradek.sim.checkers.history import Violation
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType

READ = Question("alice", "10.0.0.7", AclOperation.READ, ResourceType.TOPIC, "orders")
ALLOW = AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
DENY = AclBinding(ResourceType.TOPIC, "ord", "User:*", AclOperation.ALL, AclPermissionType.DENY, "10.0.0.0/25",
                  PatternType.PREFIXED)  # fmt: skip
SINCE = Change(1.0, 1.1, "here", is_certain=True)
REMOVED = Change(5.0, 5.1, None, is_certain=True)
UNKNOWN = Change(5.0, 5.0, None, is_certain=False)


def judged(
    acls: dict[AclBinding, list[Change]],
    asked_at: float,
    *,
    allowed: bool,
    informed: float = 0.0,
    asked: Question = READ,
) -> None:
    history = AccessHistory()
    history.acls.update(acls)
    history.probes.append(Probe(asked, "b1", asked_at, asked_at + 0.01, informed, allowed))
    check_access(history)


def test_served_request_is_found_when_its_acl_was_removed() -> None:
    acls = {ALLOW: [SINCE, REMOVED]}
    judged(acls, 6.0, allowed=True)
    with pytest.raises(Violation, match="served without right"):
        judged(acls, 6.2, allowed=True)


def test_served_request_is_found_when_a_denial_covers_it() -> None:
    with pytest.raises(Violation, match="served without right"):
        judged({ALLOW: [SINCE], DENY: [SINCE]}, 3.0, allowed=True)


def test_denial_of_another_network_decides_nothing() -> None:
    elsewhere = READ._replace(address="10.0.0.129")
    judged({ALLOW: [SINCE], DENY: [SINCE]}, 3.0, allowed=True, asked=elsewhere)
    with pytest.raises(Violation, match="refused that is allowed"):
        judged({ALLOW: [SINCE], DENY: [SINCE]}, 3.0, allowed=False, asked=elsewhere)


def test_rejected_request_is_found_when_it_was_always_allowed() -> None:
    with pytest.raises(Violation, match="refused that is allowed"):
        judged({ALLOW: [SINCE]}, 3.0, allowed=False)


def test_broker_that_cannot_learn_of_a_change_may_decide_either_way() -> None:
    for allowed in (True, False):
        judged({ALLOW: [SINCE, REMOVED]}, 9.0, allowed=allowed, informed=8.5)


def test_change_of_unknown_outcome_may_count_at_any_time() -> None:
    for allowed in (True, False):
        judged({ALLOW: [SINCE, UNKNOWN]}, 30.0, allowed=allowed)


def test_role_counts_only_for_its_members() -> None:
    of_role = ALLOW._replace(principal="Role:staff")
    member = AclBinding(ResourceType.USER, "Role:staff", "User:alice", AclOperation.ALL)
    judged({of_role: [SINCE], member: [SINCE]}, 3.0, allowed=True)
    with pytest.raises(Violation, match="served without right"):
        judged({of_role: [SINCE], member: [SINCE, REMOVED]}, 7.0, allowed=True)


def login(*changes: Change, password: str, accepted: bool, session: bool = False) -> None:
    history = AccessHistory()
    history.users["dora"].extend(changes)
    history.logins.append(LoginTry("dora", password, "b1", 9.0, 9.1, 0.0, accepted, is_session=session))
    check_access(history)


@pytest.mark.parametrize(
    ("password", "accepted", "session"), [("here", True, False), ("other", True, False), ("here", True, True)]
)
def test_login_of_a_deleted_user_is_found(password: str, accepted: bool, session: bool) -> None:
    with pytest.raises(Violation):
        login(SINCE, REMOVED, password=password, accepted=accepted, session=session)


def test_rejected_login_is_found_when_the_password_is_right() -> None:
    login(SINCE, password="other", accepted=False)
    with pytest.raises(Violation):
        login(SINCE, password="here", accepted=False)


def test_brokers_that_decide_differently_are_found() -> None:
    check_agreement({READ: {"b1": True, "b2": True}})
    with pytest.raises(Violation):
        check_agreement({READ: {"b1": True, "b2": False}})
