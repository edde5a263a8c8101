"""Leaders that have restarted or ended, by sessions of a store and by KRaft's records."""

from __future__ import annotations

import pytest

from odradek.controller.aliveness import BY_RECORDS, BY_SESSIONS, Aliveness
from odradek.metadata.image import NO_BROKER, NO_LEADER, Broker, PartitionState

ELECTED = 7
"""The epoch of the registration that the leader was elected in."""


def led_by(leader: int) -> PartitionState:
    return PartitionState(leader, 4, (1, 2), (1, 2), leader_broker_epoch=ELECTED)


def registered(epoch: int = ELECTED, *, fenced: bool = False, stopping: bool = False) -> dict[int, Broker]:
    return {1: Broker(1, epoch, None, {}, fenced, in_controlled_shutdown=stopping)}


@pytest.mark.parametrize(
    ("leader", "brokers", "bounced", "led"),
    [
        (1, registered(), False, True),
        (1, registered(ELECTED + 1), True, False),
        (2, registered(), False, False),
        (NO_LEADER, registered(), False, False),
    ],
    ids=["same registration", "another registration", "not registered", "no leader"],
)
def test_registration_of_a_leader_is_compared_when_a_store_has_it(
    leader: int, brokers: dict[int, Broker], bounced: bool, led: bool
) -> None:
    state = led_by(leader)
    assert (BY_SESSIONS.has_bounced(state, brokers), BY_SESSIONS.has_led(state, brokers)) == (bounced, led)


@pytest.mark.parametrize("epoch", [ELECTED, ELECTED + 1])
def test_registration_of_a_leader_does_not_matter_with_records(epoch: int) -> None:
    assert not BY_RECORDS.has_bounced(led_by(1), registered(epoch))
    assert not BY_RECORDS.has_led(led_by(1), registered(epoch))


@pytest.mark.parametrize(
    ("brokers", "with_sessions", "with_records"),
    [
        (registered(), True, True),
        (registered(stopping=True), True, True),
        (registered(fenced=True), True, False),
        ({}, False, False),
    ],
    ids=["active", "in controlled shutdown", "fenced", "not registered"],
)
def test_leader_may_finish_while_its_session_lasts(
    brokers: dict[int, Broker], with_sessions: bool, with_records: bool
) -> None:
    assert BY_SESSIONS.may_finish(1, brokers) is with_sessions
    assert BY_RECORDS.may_finish(1, brokers) is with_records


@pytest.mark.parametrize(("aliveness", "epoch"), [(BY_SESSIONS, 9), (BY_RECORDS, NO_BROKER)])
def test_leader_is_elected_in_its_registration(aliveness: Aliveness, epoch: int) -> None:
    assert aliveness.elected_in(Broker(1, 9, None, {})) == epoch
