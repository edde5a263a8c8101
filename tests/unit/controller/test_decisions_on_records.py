"""Decisions of the controller on images that were replayed from KRaft's records, and the records of these decisions."""

from __future__ import annotations

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.aliveness import BY_RECORDS, BY_SESSIONS
from odradek.controller.brokers import fencing_changed, leaders_sought, recovered_partitions, shutting_down
from odradek.controller.config_effects import MIN_IN_SYNC
from odradek.controller.configs import ConfigChange, ResourceChanges, ResourceType
from odradek.controller.in_sync import IsrChange, alter_partitions
from odradek.controller.reassignments import Reassignment, alter_reassignments
from odradek.controller.record_controller import RecordController
from odradek.controller.registrations import (
    ReplicaDirectory,
    assign_directories,
    directories_failed,
    register_broker,
    unregister_broker,
)
from odradek.metadata.directories import LOST, MIGRATING
from odradek.metadata.features import METADATA_VERSION
from odradek.metadata.image import DEFAULT_BROKER, NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.kraft.difference import difference
from odradek.metadata.kraft.replay import replay
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import cluster_metadata as md

CONFIG = BrokerConfig({"min.insync.replicas": "1"})
TOPIC_ID = b"t" * 16


def cluster(*states: PartitionState) -> ClusterImage:
    image = ClusterImage().with_brokers({i: Broker(i, 10 + i, None, {}) for i in (1, 2, 3)})
    return image.with_topic(Topic("t", TOPIC_ID, states))


def test_controlled_shutdown_is_recorded_as_such_and_not_as_a_fence() -> None:
    image = cluster(PartitionState(1, 4, (1, 2), (1, 2), 7, leader_broker_epoch=11))
    after = shutting_down(image, 1, 11, CONFIG).image
    assert difference(image, after) == [
        md.BrokerRegistrationChangeRecord(1, 11, in_controlled_shutdown=1),
        md.PartitionChangeRecord(0, TOPIC_ID, isr=[2], leader=2),
    ]


def test_finished_move_leaves_one_directory_for_each_replica() -> None:
    state = PartitionState(1, 4, (1, 2), (1, 2), 7, leader_broker_epoch=11, directories=(b"a" * 16, b"b" * 16))
    image = cluster(state).with_broker(Broker(3, 13, None, {}, log_dirs=(b"c" * 16,)))
    moving = alter_reassignments(image, [Reassignment("t", 0, (3, 1))], CONFIG).image
    (during,) = moving.topics["t"].partitions
    assert (during.replicas, during.directories) == ((3, 1, 2), (b"c" * 16, b"a" * 16, b"b" * 16))
    change = IsrChange(TOPIC_ID, 0, 4, during.partition_epoch, ((1, 11), (2, 12), (3, 13)))
    ended = alter_partitions(moving, 1, 11, [change], CONFIG).image
    (after,) = ended.topics["t"].partitions
    assert (after.replicas, after.directories) == ((3, 1), (b"c" * 16, b"a" * 16))
    for before, now in ((image, moving), (moving, ended)):
        assert replay(difference(before, now), before).topics == now.topics


def test_leader_of_a_replayed_image_has_not_restarted() -> None:
    """No record carries `leader_broker_epoch`: on a replayed image every leader looked as if it had restarted."""
    before = cluster(PartitionState(1, 4, (1, 2), (1, 2), 7, leader_broker_epoch=11))
    image = replay(difference(ClusterImage(), before), ClusterImage())
    assert recovered_partitions(image, CONFIG, aliveness=BY_RECORDS).image is image


def test_fenced_leader_without_company_leads_no_longer() -> None:
    """A fence is the end of a session in KRaft; on a store, a silent broker may still have its session."""
    image = cluster(PartitionState(1, 4, (1, 2), (1,), 7, leader_broker_epoch=11))
    for aliveness, leader in ((BY_RECORDS, NO_LEADER), (BY_SESSIONS, 1)):
        after = fencing_changed(image, [image.brokers[1]], [], CONFIG, aliveness=aliveness).image
        assert after.topics["t"].partitions[0].leader == leader


def test_replica_in_a_failed_directory_does_not_lead() -> None:
    """The registration names the directories that are online, and the partition that of each replica."""
    state = PartitionState(1, 4, (1, 2), (1, 2), 7, directories=(b"a" * 16, b"b" * 16))
    image = cluster(state)
    for directories, leader in (((), 1), ((b"a" * 16, b"x" * 16), 1), ((b"x" * 16,), 2)):
        now = image.with_broker(image.brokers[1]._replace(log_dirs=directories))
        (found,) = leaders_sought(now, CONFIG, aliveness=BY_RECORDS).image.topics["t"].partitions
        assert found.leader == leader


STATE = PartitionState(1, 4, (1, 2), (1, 2), 7)
AGAIN = Broker(1, 20, None, {}, incarnation_id=b"n" * 16)


def test_new_incarnation_is_registered_fenced_and_loses_its_leadership() -> None:
    decision = register_broker(cluster(STATE), AGAIN, 11, CONFIG)
    assert decision.image.brokers[1] == AGAIN._replace(fenced=True)
    assert decision.image.topics["t"].partitions[0][:5] == (2, 5, (1, 2), (2,), 8)


@pytest.mark.parametrize(("previous_epoch", "elr"), [(11, (1,)), (10, ()), (-1, ())])
def test_incarnation_after_an_unclean_end_is_not_eligible(previous_epoch: int, elr: tuple[int, ...]) -> None:
    """Only a clean shutdown under the epoch that is registered proves that the logs have every record."""
    image = cluster(PartitionState(NO_LEADER, 4, (1, 2), (2,), 7, elr=(1,)))
    image = image.with_broker(image.brokers[2]._replace(fenced=True))
    defaults = BrokerConfig({"min.insync.replicas": "2"})
    (state,) = register_broker(image, AGAIN, previous_epoch, defaults).image.topics["t"].partitions
    assert (state.leader, state.isr, state.elr) == (NO_LEADER, (2,), elr)


def test_same_incarnation_amends_its_registration() -> None:
    amended = AGAIN._replace(incarnation_id=Broker(1, 0, None, {}).incarnation_id, rack="r")
    decision = register_broker(cluster(STATE), amended, -1, CONFIG)
    assert decision.image.brokers[1] == Broker(1, 11, "r", {})
    assert decision.image.topics["t"].partitions == (STATE,)


def test_broker_that_runs_is_not_unregistered() -> None:
    """No heartbeat registers it again, and its successors would wait for the end of its lease."""
    image = cluster(STATE)
    with pytest.raises(KafkaError) as failure:
        unregister_broker(image, 1, CONFIG)
    assert failure.value.code is ErrorCode.INVALID_REQUEST
    fenced = fencing_changed(image, [image.brokers[1]], [], CONFIG, aliveness=BY_RECORDS).image
    assert unregister_broker(fenced, 1, CONFIG).image.brokers.keys() == image.brokers.keys() - {1}


def test_failed_directory_moves_the_leadership_of_its_replicas() -> None:
    image = cluster(STATE._replace(directories=(b"a" * 16, b"b" * 16)), STATE._replace(directories=(b"x" * 16,) * 2))
    image = image.with_broker(image.brokers[1]._replace(log_dirs=(b"a" * 16, b"x" * 16)))
    after = directories_failed(image, 1, [b"a" * 16], CONFIG).image
    assert after.brokers[1].log_dirs == (b"x" * 16,)
    assert [state.leader for state in after.topics["t"].partitions] == [2, 1]
    halted = directories_failed(after, 1, [b"x" * 16], CONFIG).image
    assert halted.brokers[1].fenced
    assert [state.leader for state in halted.topics["t"].partitions] == [2, 2]


def test_reported_directory_is_assigned_and_a_lost_one_ends_leadership() -> None:
    image = cluster(STATE)
    image = image.with_broker(image.brokers[1]._replace(log_dirs=(b"a" * 16,)))
    known = [ReplicaDirectory(TOPIC_ID, 0, b"a" * 16), ReplicaDirectory(b"u" * 16, 0, b"a" * 16)]
    decision = assign_directories(image, 1, 11, known, CONFIG)
    assert decision.replies == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    (state,) = decision.image.topics["t"].partitions
    assert (state.leader, state.directories) == (1, (b"a" * 16, MIGRATING))
    lost = assign_directories(decision.image, 1, 11, [ReplicaDirectory(TOPIC_ID, 0, LOST)], CONFIG)
    assert lost.image.topics["t"].partitions[0].leader == 2


@pytest.mark.parametrize(("last_known", "leader"), [((2,), 2), ((1, 2), NO_LEADER), ((3,), NO_LEADER), ((), NO_LEADER)])
def test_empty_isr_is_led_by_its_last_known_leader(last_known: tuple[int, ...], leader: int) -> None:
    """Apache's controller empties ISR and ELR after unclean ends, and remembers the last leader (KIP-966)."""
    image = cluster(PartitionState(NO_LEADER, 4, (1, 2), (), 7, last_known_elr=last_known))
    (state,) = leaders_sought(image, CONFIG, aliveness=BY_RECORDS).image.topics["t"].partitions
    assert state.leader == leader
    if leader != NO_LEADER:
        assert (state.isr, state.elr, state.last_known_elr) == ((leader,), (), ())


@pytest.mark.parametrize(("minimum", "eligible"), [("2", (2, 3)), ("1", ())])
def test_lower_minimum_ends_the_eligibility_of_replicas(minimum: str, eligible: tuple[int, ...]) -> None:
    """Else one of them is elected later, and lacks what the ISR alone has committed since."""
    topic = Topic("t", TOPIC_ID, (PartitionState(1, 4, (1, 2, 3), (1,), 7, elr=(2, 3)),), configs={MIN_IN_SYNC: "3"})
    image = cluster().with_features({METADATA_VERSION: 30}, 0).with_topic(topic)
    controller = RecordController(image, CONFIG, SeededRandom(1))
    change = ResourceChanges(ResourceType.TOPIC, "t", [ConfigChange(MIN_IN_SYNC, 0, minimum)])
    decided = controller.alter_configs([change])
    (state,) = decided.image.topics["t"].partitions
    assert (state.elr, state.isr, state.leader_epoch) == (eligible, (1,), 4)
    named = [each.eligible_leader_replicas for each in decided.records if isinstance(each, md.PartitionChangeRecord)]
    assert named == ([] if eligible else [[]])


@pytest.mark.parametrize(("value", "leader"), [("true", 2), (" TRUE", 2), ("false", NO_LEADER), ("?", NO_LEADER)])
def test_default_of_all_brokers_counts_in_the_decision_that_sets_it(value: str, leader: int) -> None:
    """The configuration of a controller follows the committed records: no leader was elected."""
    name = "unclean.leader.election.enable"
    image = cluster(PartitionState(NO_LEADER, 4, (9, 2), (9,), 7)).with_features({METADATA_VERSION: 30}, 0)
    image = image.with_broker_configs(DEFAULT_BROKER, {name: value})
    decided = RecordController(image, CONFIG, SeededRandom(1)).begin()
    assert decided.image.topics["t"].partitions[0].leader == leader
    if value == "true":
        controller = RecordController(image.with_broker_configs(DEFAULT_BROKER, {}), CONFIG, SeededRandom(1))
        change = ResourceChanges(ResourceType.BROKER, DEFAULT_BROKER, [ConfigChange(name, 0, value)])
        assert controller.alter_configs([change]).image.topics["t"].partitions[0].leader == leader


def test_minimum_of_all_brokers_decides_who_is_eligible() -> None:
    image = cluster(PartitionState(1, 4, (1, 2), (1, 2), 7)).with_features({METADATA_VERSION: 30}, 0)
    image = image.with_broker_configs(DEFAULT_BROKER, {MIN_IN_SYNC: "1"})
    controller = RecordController(image, BrokerConfig({MIN_IN_SYNC: "2"}), SeededRandom(1))
    (state,) = controller.fence_brokers([2]).image.topics["t"].partitions
    assert (state.isr, state.elr) == ((1,), ())
