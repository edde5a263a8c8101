"""Logins end when they are idle or old; tokens belong to one browser; failures are limited by address."""

import asyncio
from contextlib import ExitStack

from odradek.console.clusters import Clusters
from odradek.console.sessions import FAILURE_WINDOW_S, MAX_AGE_S, MAX_FAILURES, Sessions


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(clock: _Clock, idle_s: float = 60.0) -> tuple[Sessions, str]:
    """Sessions with one login, and its id."""
    sessions = Sessions(idle_s, clock)
    return sessions, asyncio.run(sessions.open("alice", Clusters({}, 1.0))).id


def test_session_ends_when_it_is_idle() -> None:
    clock = _Clock()
    sessions, session_id = opened(clock)
    clock.now = 59.0
    assert sessions.find(session_id) is not None
    clock.now = 118.0
    assert sessions.find(session_id) is not None
    clock.now = 179.0
    assert sessions.find(session_id) is None


def test_session_ends_when_only_its_pages_renew_themselves() -> None:
    clock = _Clock()
    sessions, session_id = opened(clock)
    clock.now = 59.0
    assert sessions.find(session_id, is_use=False) is not None
    clock.now = 61.0
    assert sessions.find(session_id) is None


def test_session_ends_at_its_age_though_it_is_used() -> None:
    clock = _Clock()
    sessions, session_id = opened(clock, idle_s=MAX_AGE_S * 2)
    clock.now = MAX_AGE_S + 1
    assert sessions.find(session_id) is None


def test_closed_session_is_forgotten() -> None:
    sessions, session_id = opened(_Clock())
    asyncio.run(sessions.close(session_id))
    assert sessions.find(session_id) is None


def test_token_is_that_of_one_browser() -> None:
    sessions = Sessions(60.0, _Clock())
    assert sessions.is_token("a" * 43, sessions.token("a" * 43))
    assert not sessions.is_token("b" * 43, sessions.token("a" * 43))
    assert not Sessions(60.0, _Clock()).is_token("a" * 43, sessions.token("a" * 43))


def test_address_waits_after_failures() -> None:
    clock = _Clock()
    sessions = Sessions(60.0, clock)
    for _ in range(MAX_FAILURES):
        assert sessions.may_try("192.0.2.1")
        sessions.count_failure("192.0.2.1")
    assert not sessions.may_try("192.0.2.1")
    assert sessions.may_try("192.0.2.2")
    clock.now = FAILURE_WINDOW_S + 1
    assert sessions.may_try("192.0.2.1")


def test_failures_of_a_network_of_ipv6_count_together() -> None:
    """A host may have any of its 2^64 addresses."""
    sessions = Sessions(60.0, _Clock())
    for number in range(MAX_FAILURES):
        sessions.count_failure(f"2001:db8:0:1::{number:x}")
    assert not sessions.may_try("2001:db8:0:1:ffff::1")
    assert sessions.may_try("2001:db8:0:2::1")


def test_failures_of_ipv4_count_by_address_behind_a_socket_of_ipv6() -> None:
    sessions = Sessions(60.0, _Clock())
    for _ in range(MAX_FAILURES):
        sessions.count_failure("::ffff:192.0.2.1")
    assert not sessions.may_try("192.0.2.1")
    assert sessions.may_try("::ffff:192.0.2.2")
    assert sessions.may_try("")


def test_running_logins_count_until_they_end() -> None:
    sessions = Sessions(60.0, _Clock())
    with ExitStack() as running:
        for _ in range(MAX_FAILURES):
            assert sessions.may_try("192.0.2.1")
            running.enter_context(sessions.trying("192.0.2.1"))
        assert not sessions.may_try("192.0.2.1")
        assert sessions.may_try("192.0.2.2")
    assert sessions.may_try("192.0.2.1")


def test_question_whether_a_session_is_open_is_no_use_of_it() -> None:
    clock = _Clock()
    sessions, session_id = opened(clock)
    session = sessions.find(session_id)
    assert session is not None
    clock.now = 59.0
    assert sessions.is_open(session)
    clock.now = 61.0
    assert not sessions.is_open(session)


def test_closed_session_is_not_open() -> None:
    sessions, session_id = opened(_Clock())
    session = sessions.find(session_id)
    assert session is not None
    asyncio.run(sessions.close(session_id))
    assert not sessions.is_open(session)
