"""A connection's session: who sends, and what handlers and quotas read from it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.api.requests.context import RequestContext
from odradek.api.requests.session import ANONYMOUS, Authentication, Principal, Session


def test_session_begins_anonymous_and_unproven() -> None:
    session = Session("PLAINTEXT", "10.0.0.1")
    assert session.principal == ANONYMOUS
    assert str(session.principal) == "User:ANONYMOUS"
    assert session.authentication is Authentication.NOT_REQUIRED
    assert not session.is_broker


def test_session_is_a_brokers_when_broker_zero_has_proven_itself() -> None:
    session = Session("PLAINTEXT", "10.0.0.1")
    session.broker_id = 0
    assert session.is_broker


def test_quotas_go_by_the_sessions_principal_and_the_client_id() -> None:
    connection: Any = SimpleNamespace(session=Session("SASL", "10.0.0.1", Principal("User", "alice")))
    services: Any = None
    assert RequestContext(services, 0, 1, "app", connection).quota_entity == ("alice", "app")
    assert RequestContext(services, 0, 1, None, connection).quota_entity == ("alice", "")
