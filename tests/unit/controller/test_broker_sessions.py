"""Heartbeats of brokers in a KRaft cluster: sessions, and what each broker may do next."""

from __future__ import annotations

import pytest

from odradek.controller.broker_sessions import BrokerSessions, Heartbeat, NextState, next_state
from odradek.metadata.image import Broker


def broker(*, fenced: bool = False, shutting_down: bool = False, epoch: int = 10, node: int = 1) -> Broker:
    return Broker(node, epoch, None, {}, fenced=fenced, in_controlled_shutdown=shutting_down)


@pytest.mark.parametrize(
    ("of", "offset", "fence", "shutdown", "leaderships", "moved", "expected"),
    [
        (broker(fenced=True), 9, False, False, False, True, NextState.FENCED),
        (broker(fenced=True), 10, False, False, False, True, NextState.UNFENCED),
        (broker(fenced=True), 10, True, False, False, True, NextState.FENCED),
        (broker(fenced=True), 10, False, True, False, True, NextState.SHUTDOWN_NOW),
        (broker(), 0, False, False, True, True, NextState.UNFENCED),
        (broker(), 10, True, False, False, True, NextState.FENCED),
        (broker(), 10, True, True, True, False, NextState.SHUTDOWN_NOW),
        (broker(), 10, False, True, True, True, NextState.CONTROLLED_SHUTDOWN),
        (broker(shutting_down=True), 10, False, True, False, False, NextState.CONTROLLED_SHUTDOWN),
        (broker(shutting_down=True), 10, False, True, False, True, NextState.SHUTDOWN_NOW),
        (broker(shutting_down=True), 10, False, False, False, True, NextState.CONTROLLED_SHUTDOWN),
    ],
)
def test_heartbeat_leads_to_the_next_state(
    of: Broker, offset: int, fence: bool, shutdown: bool, leaderships: bool, moved: bool, expected: NextState
) -> None:
    heartbeat = Heartbeat(of.id, offset, fence, shutdown)
    assert next_state(of, heartbeat, has_leaderships=leaderships, moved=moved) is expected


def test_session_expires_without_heartbeats() -> None:
    sessions = BrokerSessions(5.0)
    brokers = {1: broker(), 2: broker(node=2)}
    sessions.begin(brokers.values(), 100.0)
    sessions.touch(2, 10, 7, 103.0)
    assert sessions.expired(brokers, 104.9) == []
    assert sessions.expired(brokers, 105.0) == [1]
    assert sessions.expired(brokers, 108.0) == [1, 2]


def test_fenced_broker_does_not_expire() -> None:
    assert BrokerSessions(5.0).expired({1: broker(fenced=True)}, 100.0) == []


def test_session_is_of_one_registration() -> None:
    sessions = BrokerSessions(5.0)
    sessions.touch(1, 10, 0, 100.0)
    assert sessions.is_valid(broker(), 104.0)
    assert not sessions.is_valid(broker(epoch=11), 104.0)
    sessions.remove(1)
    assert not sessions.is_valid(broker(), 104.0)


def test_lowest_offset_counts_unfenced_brokers_only() -> None:
    sessions = BrokerSessions(5.0)
    sessions.touch(1, 10, 7, 0.0)
    sessions.touch(2, 10, 5, 0.0)
    assert sessions.lowest_offset({1: broker(), 2: broker(node=2)}) == 5
    assert sessions.lowest_offset({1: broker(), 2: broker(node=2, fenced=True)}) == 7
    assert sessions.lowest_offset({}) > 1 << 60


def test_broker_without_a_session_has_none_at_any_time() -> None:
    sessions = BrokerSessions(5.0)
    for now in (0.0, 1.0, -1.0, 100.0):
        assert not sessions.is_valid(broker(epoch=1), now)
        assert not sessions.is_valid(broker(epoch=0), now)


def test_lowest_offset_is_that_of_the_slowest_unfenced_broker() -> None:
    sessions = BrokerSessions(5.0)
    brokers = {1: broker(), 2: broker(node=2), 3: broker(node=3, fenced=True)}
    assert sessions.lowest_offset({}) == sessions.lowest_offset({3: brokers[3]}) == 1 << 62
    sessions.begin(brokers.values(), 100.0)
    assert sessions.lowest_offset(brokers) == -1, "none has reported an offset to this controller"
    for node, offset in ((1, 7), (2, 5), (3, 2)):
        sessions.touch(node, 10, offset, 100.0)
    assert sessions.lowest_offset(brokers) == 5
    sessions.remove(2)
    assert sessions.lowest_offset(brokers) == -1, "its registration is another one from now on"
    sessions.touch(2, 11, 9, 100.0)
    assert sessions.lowest_offset(brokers) == 7
    sessions.begin(brokers.values(), 101.0)
    assert sessions.lowest_offset(brokers) == -1
