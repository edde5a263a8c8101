"""When the controller grants leases of leadership, and when new leaders may begin."""

from __future__ import annotations

import pytest

from odradek.controller.lease_table import NO_GRANT, Grant, LeaseTable, deposed_brokers
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic

LEASE = 2.0


@pytest.fixture
def table() -> LeaseTable:
    """A controller that was elected at 100 and confirmed at 110; brokers 1 and 2 know image 1."""
    table = LeaseTable(LEASE)
    table.begin(100.0, deposed_before=False)
    table.confirm(110.0)
    table.acknowledge(1, 11, 1)
    table.acknowledge(2, 12, 1)
    return table


def broker(broker_id: int, epoch: int) -> Broker:
    return Broker(broker_id, epoch, None, {})


def test_lease_lasts_from_the_confirmation(table: LeaseTable) -> None:
    assert table.grant(1, 11, 110.5) == Grant(1.5, may_begin=True)


def test_lease_is_not_granted_without_a_recent_confirmation(table: LeaseTable) -> None:
    assert table.grant(1, 11, 112.0) == NO_GRANT


def test_lease_is_not_granted_after_the_reign(table: LeaseTable) -> None:
    table.revoke_confirmation()
    assert table.grant(1, 11, 110.5) == NO_GRANT


def test_lease_is_not_granted_to_a_broker_without_an_image(table: LeaseTable) -> None:
    assert table.grant(3, 13, 110.5) == NO_GRANT


def test_lease_is_not_granted_to_another_registration(table: LeaseTable) -> None:
    assert table.grant(1, 14, 110.5) == NO_GRANT


def test_lease_never_lasts_beyond_the_session_of_the_broker() -> None:
    table = LeaseTable(2.0)
    table.begin(100.0, deposed_before=False)
    table.acknowledge(1, 11, 1)
    table.confirm(110.0)
    assert table.grant(1, 11, 110.5, 111.0) == Grant(0.5, may_begin=True, is_ending=True)
    assert table.grant(1, 11, 111.0, 111.0) == Grant(0.0, may_begin=False, is_ending=True)
    assert table.grant(1, 11, 110.5, 112.0) == Grant(1.5, may_begin=True)
    assert table.grant(1, 11, 112.5, 112.25) == NO_GRANT, "the store does not confirm: the broker asks for promises"


def test_successor_begins_when_the_session_and_so_the_lease_ends() -> None:
    table = LeaseTable(2.0)
    table.begin(100.0, deposed_before=False)
    table.acknowledge(1, 11, 1)
    table.confirm(110.0)
    table.grant(1, 11, 110.5, 111.0)
    table.depose({1: 11}, 2)
    assert table.deposed(110.9) == {1}
    assert not table.deposed(111.0)


def test_new_leader_waits_for_the_deposed_one(table: LeaseTable) -> None:
    table.grant(1, 11, 110.5)
    table.depose({1: 11}, 2)
    grant = table.grant(2, 12, 110.6)
    assert grant.seconds > 0
    assert not grant.may_begin


def test_new_leader_begins_when_the_deposed_one_acknowledged(table: LeaseTable) -> None:
    table.grant(1, 11, 110.5)
    table.depose({1: 11}, 2)
    table.acknowledge(1, 11, 2)
    assert table.grant(2, 12, 110.6).may_begin


def test_acknowledgement_of_an_earlier_image_does_not_count(table: LeaseTable) -> None:
    table.grant(1, 11, 110.5)
    table.depose({1: 11}, 3)
    table.acknowledge(1, 11, 2)
    assert not table.grant(2, 12, 110.6).may_begin


def test_new_leader_begins_when_the_lease_of_the_deposed_one_is_over(table: LeaseTable) -> None:
    table.grant(1, 11, 110.5)
    table.depose({1: 11}, 2)
    table.confirm(111.9)
    assert not table.grant(2, 12, 111.99).may_begin
    assert table.grant(2, 12, 112.0).may_begin


def test_new_leader_begins_when_the_deposed_process_is_dead(table: LeaseTable) -> None:
    table.grant(1, 11, 110.5)
    table.depose({1: 11}, 2)
    table.bury(1, 11)
    assert table.grant(2, 12, 110.6).may_begin


def test_death_that_was_known_before_is_not_waited_for(table: LeaseTable) -> None:
    table.grant(1, 11, 110.5)
    table.bury(1, 11)
    table.depose({1: 11}, 2)
    assert table.grant(2, 12, 110.6).may_begin


def test_new_leader_begins_when_the_deposed_broker_registered_again(table: LeaseTable) -> None:
    table.grant(1, 11, 110.5)
    table.depose({1: 11}, 2)
    table.register([broker(1, 15)])
    assert table.grant(2, 12, 110.6).may_begin


def test_deposed_broker_gets_no_lease_before_it_acknowledged(table: LeaseTable) -> None:
    table.depose({1: 11}, 2)
    table.confirm(120.0)
    assert table.grant(1, 11, 120.0) == NO_GRANT
    table.acknowledge(1, 11, 2)
    assert table.grant(1, 11, 120.0).seconds == LEASE


def test_deposed_broker_does_not_wait_for_itself(table: LeaseTable) -> None:
    table.grant(1, 11, 110.5)
    table.depose({1: 11, 2: 12}, 2)
    table.acknowledge(2, 12, 2)
    assert not table.grant(2, 12, 110.6).may_begin
    table.acknowledge(1, 11, 2)
    assert table.grant(1, 11, 110.6).may_begin


def test_leases_of_the_controller_before_count_from_the_election() -> None:
    table = LeaseTable(LEASE)
    table.begin(100.0, deposed_before=False)
    table.acknowledge(2, 12, 1)
    table.depose({1: 11}, 1)
    table.confirm(101.5)
    assert not table.grant(2, 12, 101.9).may_begin
    assert table.grant(2, 12, 102.0).may_begin


def test_depositions_of_the_controller_before_are_waited_for() -> None:
    table = LeaseTable(LEASE)
    table.begin(100.0, deposed_before=True)
    table.acknowledge(2, 12, 1)
    table.confirm(101.5)
    assert not table.grant(2, 12, 101.9).may_begin
    assert not table.is_quiet(101.9)
    assert table.grant(2, 12, 102.0).may_begin


def image(leader: int, *brokers: Broker, leader_broker_epoch: int = -1, topic_id: int = 1) -> ClusterImage:
    state = PartitionState(leader, 1, (1, 2), (1, 2), leader_broker_epoch=leader_broker_epoch)
    topic = Topic("t", bytes([topic_id]) * 16, (state,))
    return ClusterImage("c").with_brokers({each.id: each for each in brokers}).with_topics([topic])


ONE, TWO = broker(1, 11), broker(2, 12)


@pytest.mark.parametrize("successor", [2, NO_LEADER])
def test_broker_that_loses_a_partition_is_deposed(successor: int) -> None:
    assert deposed_brokers(image(1, ONE, TWO), image(successor, ONE, TWO)) == {1: 11}
    assert deposed_brokers(image(1, ONE, TWO), image(successor, TWO)) == {1: 11}


def test_unknown_registration_is_that_of_the_election() -> None:
    assert deposed_brokers(image(1, TWO, leader_broker_epoch=9), image(2, TWO)) == {1: 9}
    assert deposed_brokers(image(1, TWO), image(2, TWO)) == {1: -1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (image(1, ONE), image(1, ONE)),
        (image(NO_LEADER, ONE), image(1, ONE)),
        (image(1, ONE), image(2, broker(1, 13), TWO)),
        (image(1, ONE), image(2, ONE, topic_id=2)),
    ],
    ids=["the same", "no leader", "registered again", "another topic of the name"],
)
def test_broker_is_not_deposed(old: ClusterImage, new: ClusterImage) -> None:
    assert deposed_brokers(old, new) == {}
