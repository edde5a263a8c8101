"""Events of the audit topic: their fields, what is left out, how long they may be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.api.audit.selection import Selection, check_events
from odradek.api.audit.trail import AuditTrail, Change
from odradek.api.requests.session import Principal, Session
from odradek.authorization.authorizer import Question
from odradek.authorization.decisions import Decision, Reason, Subject
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode

ALICE = Session("SASL_SSL", "10.0.0.7", Principal("User", "alice"))
READ_ORDERS = Question(
    Subject("User:alice", "10.0.0.7"), AclOperation.READ, ResourceType.TOPIC, "orders", "FETCH", "tool"
)
DENIED = Decision(False, Reason.NO_MATCH)


class Taken:
    """Keeps events; implements `Outlet`."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.lost = 0

    def offer(self, time_ms: int, event: bytes) -> bool:
        self.events.append(json.loads(event))
        assert self.events[-1]["time_ms"] == time_ms
        return True

    def lose(self) -> None:
        self.lost += 1


class Asked:
    """A request of alice."""

    session = ALICE
    client_id = "tool"


def trail(taken: Taken, selected: Selection = Selection()) -> AuditTrail:  # noqa: B008
    return AuditTrail(3, lambda: 1000, selected, taken)


COMMON = {"version": 1, "time_ms": 1000, "broker": 3, "started_ms": 1000, "sequence": 1, "host": "10.0.0.7"}


def test_login_has_mechanism_principal_and_address() -> None:
    taken = Taken()
    trail(taken).logged_in(ALICE, "SCRAM-SHA-512", "User:alice")
    assert taken.events == [
        {
            **COMMON,
            "event": "login",
            "principal": "User:alice",
            "listener": "SASL_SSL",
            "mechanism": "SCRAM-SHA-512",
        }
    ]


def test_failed_login_has_the_claimed_name_at_most_255_characters_long() -> None:
    taken = Taken()
    trail(taken).login_failed("10.0.0.7", "SASL_SSL", "PLAIN", "m" * 300, "wrong")
    assert taken.events == [
        {
            **COMMON,
            "event": "login_failure",
            "principal": f"User:{'m' * 255}",
            "listener": "SASL_SSL",
            "mechanism": "PLAIN",
            "reason": "wrong",
        }
    ]


def test_denial_has_the_right_and_the_rule() -> None:
    taken = Taken()
    trail(taken).denied(READ_ORDERS, DENIED, is_enforced=True)
    assert taken.events == [
        {
            **COMMON,
            "event": "denial",
            "principal": "User:alice",
            "client_id": "tool",
            "request": "FETCH",
            "operation": "READ",
            "resource_type": "TOPIC",
            "resource_name": "orders",
            "rule": "no ACL for the resource allows it",
            "enforced": True,
        }
    ]


def test_change_has_before_after_and_the_error() -> None:
    taken = Taken()
    changes = [
        Change("TOPIC", "orders", {"partitions": 1}, {"partitions": 2}),
        Change("TOPIC", "orders", {"partitions": 2}, {"partitions": 2}, ErrorCode.INVALID_PARTITIONS),
        Change("TOPIC", "secret", None, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    trail(taken).changed(Asked(), "CREATE_PARTITIONS", changes)
    first, second = taken.events
    assert (first["before"], first["after"], first.get("error")) == ({"partitions": 1}, {"partitions": 2}, None)
    assert (first["request"], first["client_id"], first["principal"]) == ("CREATE_PARTITIONS", "tool", "User:alice")
    assert (second["error"], second["sequence"]) == ("INVALID_PARTITIONS", 2)


def test_lost_event_leaves_a_gap_in_the_numbers() -> None:
    taken = Taken()
    made = trail(taken)
    made.lost()
    made.logged_in(ALICE, "PLAIN", "User:alice")
    assert (taken.lost, taken.events[0]["sequence"]) == (1, 2)


def test_long_values_are_cut() -> None:
    taken = Taken()
    after = {"text": "x" * 100_000, **{str(number): number for number in range(5000)}}
    trail(taken).changed(Asked(), "ALTER_CONFIGS", [Change("TOPIC", "orders", None, after)])
    assert len(json.dumps(taken.events[0])) < 64_000


@pytest.mark.parametrize(
    "selected",
    [
        Selection(events=frozenset(("denial",))),
        Selection(events=frozenset(("FETCH",))),
        Selection(principals=frozenset(("User:alice",))),
        Selection(topics=("orders",)),
        Selection(topics=("x", "ord*")),
    ],
)
def test_denial_is_left_out_by_each_filter(selected: Selection) -> None:
    taken = Taken()
    trail(taken, selected).denied(READ_ORDERS, DENIED, is_enforced=True)
    assert not taken.events


def test_filter_of_topics_counts_for_the_topic_of_an_offset() -> None:
    taken = Taken()
    change = Change("GROUP", "readers", None, {"0": 7}, topic="orders")
    trail(taken, Selection(topics=("orders",))).changed(Asked(), "OFFSET_COMMIT", [change])
    assert not taken.events


def test_events_are_named_by_kind_or_api() -> None:
    assert check_events(["Login", "offset_commit"]) == {"login", "OFFSET_COMMIT"}
    with pytest.raises(ValueError, match="logins is neither an API nor one of login, "):
        check_events(["logins"])
