"""The elected controller among brokers: topics, failures, restarts, shutdowns, and its successors."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Mapping, Sequence

import pytest

from odradek.api.services.controller_service import NotTheController
from odradek.broker.cluster import controller as controller_module
from odradek.broker.cluster import membership
from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.controller_channel import FULL
from odradek.broker.cluster.membership import Membership
from odradek.broker.cluster.registrations import DIRECTORY_EVENTS, announce_failed_directory, register
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.client.errors import Disconnected
from odradek.client.network.connection import Connection
from odradek.controller.in_sync import IsrChange
from odradek.controller.outcome import STEP_PARTITIONS
from odradek.controller.reassignments import Reassignment, alter_reassignments
from odradek.controller.topics import MorePartitions, NewTopic, TopicReference
from odradek.metadata.changes import load_image
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, Endpoint, PartitionState
from odradek.metadata.nodes import (
    BROKER_IDS,
    BROKER_SEQUENCE,
    CONTROLLER,
    CONTROLLER_EPOCH,
    ControllerEpochNode,
    ControllerNode,
)
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.clock import SystemClock
from odradek.ports.randomness import SeededRandom
from odradek.ports.store import BadVersion, Check, Create, Delete, Node, Operation, Put, StoreError, StoreUnavailable
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from tests.unit.broker.cluster.cluster_members import Cluster, DyingStore, Member, run


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is slow to learn of a change is waited for: all that run here answer, however slow the machine."""
    monkeypatch.setattr(controller_module, "TELL_SECONDS", 60.0)


def state(cluster: Cluster, topic: str = "t", index: int = 0) -> PartitionState:
    found = cluster.reigning.image.partition(topic, index)
    assert found is not None
    return found


def partitions_of(image: ClusterImage, topic: str) -> Sequence[PartitionState]:
    found = image.topics.get(topic)
    return () if found is None else found.partitions


def test_everybody_knows_a_new_topic_before_its_creation_is_answered() -> None:
    async def test(cluster: Cluster) -> None:
        members = await cluster.of(1, 2, 3)
        await cluster.reigning.create_topics([NewTopic("t", 6, 3)])
        assert cluster.agrees()
        for member in members:
            assert len(member.image.topics["t"].partitions) == 6
        await cluster.reigning.delete_topics([TopicReference("t")])
        assert cluster.agrees()
        assert all("t" not in member.image.topics for member in members)
        for member in members:
            if not member.controller.is_active:
                assert sorted(member.deleted) == [("t", i) for i in range(6)]

    run(test)


def test_the_partitions_of_a_dead_broker_are_led_by_others() -> None:
    async def test(cluster: Cluster) -> None:
        _, second, _ = await cluster.of(1, 2, 3)
        await cluster.reigning.create_topics([NewTopic("t", 6, 3)])
        before = cluster.reigning.image.topics["t"].partitions
        await second.die(session_ends=True)
        await cluster.until(lambda: 2 not in cluster.reigning.image.brokers and cluster.agrees())
        for old, new in zip(before, cluster.reigning.image.topics["t"].partitions, strict=True):
            assert 2 not in new.isr
            assert new.leader == (old.leader if old.leader != 2 else new.isr[0])
            assert new.leader_epoch == old.leader_epoch + (old.leader == 2)

    run(test)


def test_a_refused_connection_ends_a_registration_before_its_session() -> None:
    async def test(cluster: Cluster) -> None:
        first, second, _ = await cluster.of(1, 2, 3)
        await cluster.reigning.create_topics([NewTopic("t", 6, 3)])
        await second.die(session_ends=False)
        await cluster.until(lambda: 2 not in cluster.reigning.image.brokers)
        assert await first.store.get("/brokers/ids/2") is None
        assert all(s.leader not in (2, NO_LEADER) for s in cluster.reigning.image.topics["t"].partitions)

    run(test)


@pytest.mark.parametrize("dies", [1, 2])
def test_a_registration_ends_although_another_one_begins_at_that_moment(dies: int) -> None:
    """Of the controller or of another broker; sessions would last on."""

    async def test(cluster: Cluster) -> None:
        stores = {i: DyingStore(MemoryStore(cluster.tree)) for i in (1, 3)}
        for broker_id in (1, 2, 3):
            await cluster.add(broker_id, store=stores.get(broker_id))
        await cluster.until(cluster.agrees)
        assert cluster.reigning is cluster.members[1].controller
        if dies == 1:
            # Who else would notice.
            cluster.members[2].watch.close()
        store = stores[3 if dies == 1 else 1]
        store.failure, store.after = BadVersion("/brokers/seqid"), False
        await cluster.members[dies].die(session_ends=False)
        await cluster.until(lambda: cluster.controller is not None and dies not in cluster.reigning.image.brokers)
        assert store.failure is None

    run(test)


def test_returning_broker_receives_everything_and_follows() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.of(1, 2, 3)
        await cluster.reigning.create_topics([NewTopic("t", 3, 3)])
        await cluster.members[3].die(session_ends=True)
        await cluster.until(lambda: 3 not in cluster.reigning.image.brokers)
        await cluster.reigning.create_topics([NewTopic("u", 3, 2)])
        again = await cluster.add(3)
        await cluster.until(cluster.agrees)
        full = [request for request in again.asked if getattr(request, "type", 0) == FULL]
        assert [type(request) for request in full] == [LeaderAndIsrRequest, UpdateMetadataRequest]
        assert {t.topic_name for t in full[0].topic_states} == {"t"}
        assert {t.topic_name for t in full[1].topic_states} == {"t", "u"}
        assert full[0].broker_epoch == again.epoch
        # It is not in sync until a leader says so.
        assert all(3 not in s.isr for s in cluster.reigning.image.topics["t"].partitions)
        s = state(cluster)
        leader = cluster.members[s.leader]
        change = IsrChange(
            cluster.reigning.image.topics["t"].id,
            0,
            s.leader_epoch,
            s.partition_epoch,
            tuple((i, cluster.members[i].epoch) for i in s.replicas),
        )
        asked = len(leader.asked)
        (done,) = await cluster.reigning.alter_partitions(leader.id, leader.epoch, [change])
        assert done.error is ErrorCode.NONE
        assert state(cluster).isr == s.replicas
        await cluster.until(cluster.agrees)
        assert not [r for r in leader.asked[asked:] if isinstance(r, LeaderAndIsrRequest)], "no broker's role changed"

    run(test)


def test_a_restart_that_the_controller_did_not_see_moves_leadership() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.of(1, 2, 3)
        await cluster.reigning.create_topics([NewTopic("t", 6, 3), NewTopic("one", 6, 1)])
        alone = cluster.reigning.image.topics["one"].partitions
        old = cluster.members[2]
        old.lines.clear()
        await old.die(session_ends=True)
        again = await cluster.add(2)
        await cluster.until(lambda: cluster.agrees() and again.epoch == cluster.reigning.image.brokers[2].epoch)
        for s in cluster.reigning.image.topics["t"].partitions:
            assert s.leader != 2
            assert 2 not in s.isr
        assert cluster.reigning.image.topics["one"].partitions == alone, "a sole replica keeps its epoch"

    run(test)


def test_the_next_controller_takes_over() -> None:
    async def test(cluster: Cluster) -> None:
        first, *_ = await cluster.of(1, 2, 3)
        assert first.controller.is_active
        await first.controller.create_topics([NewTopic("t", 6, 3)])
        await first.die(session_ends=True)
        await cluster.until(lambda: cluster.controller is not None and cluster.agrees())
        new = cluster.reigning
        assert new.epoch == 2
        assert all(s.leader in (2, 3) and 1 not in s.isr for s in new.image.topics["t"].partitions)
        (made,) = await new.create_topics([NewTopic("u", 3, 2)])
        assert made.failure is None
        assert cluster.agrees()

    run(test)


def test_stopped_broker_watches_no_controller() -> None:
    async def test(cluster: Cluster) -> None:
        first, second, third = await cluster.of(1, 2, 3)
        third.watch.close()
        asked = len(first.lines) + len(second.lines)
        third.watch.follow(third.image, third.image.with_controller(2, 9))
        await asyncio.sleep(0.01)
        assert len(first.lines) + len(second.lines) == asked

    run(test)


def test_dead_controller_is_replaced_before_its_session_ends() -> None:
    async def test(cluster: Cluster) -> None:
        first, second, _ = await cluster.of(1, 2, 3)
        dead = second.image.brokers[1]
        await first.die(session_ends=False)
        await cluster.until(lambda: cluster.controller is not None and cluster.agrees())
        assert await second.store.get("/brokers/ids/1") is None
        assert 1 not in cluster.reigning.image.brokers
        # Said again, of a registration that is over, it changes nothing.
        epoch = cluster.reigning.epoch
        await second.membership.controller_died(dead)
        assert cluster.reigning.epoch == epoch

    run(test)


def test_restarted_controller_ends_the_election_of_its_last_process() -> None:
    async def test(cluster: Cluster) -> None:
        first, second = await cluster.of(1, 2)
        # It is back before the other broker has noticed.
        second.watch.close()
        await first.die(session_ends=False)
        again = await cluster.add(1)
        await cluster.until(lambda: again.controller.is_active or second.controller.is_active)
        node = await again.store.get(CONTROLLER)
        assert node is not None
        assert node.session != first.store.session
        assert cluster.reigning.epoch == 2

    run(test)


def test_a_deposed_controller_writes_nothing_and_resigns() -> None:
    async def test(cluster: Cluster) -> None:
        first, second, third = await cluster.of(1, 2, 3)
        await first.controller.create_topics([NewTopic("t", 1, 3)])
        # It sleeps through its own end: it is not notified.
        deposed = first.controller
        first.membership._leaving = True
        await second.membership.controller_died(second.image.brokers[1])
        await cluster.until(lambda: second.controller.is_active or third.controller.is_active)
        with pytest.raises(NotTheController):
            await deposed.create_topics([NewTopic("late", 1, 1)])
        assert not deposed.is_active
        assert await second.store.get("/brokers/topics/late") is None
        with pytest.raises(NotTheController):
            await deposed.alter_partitions(1, 1, [])
        first.membership._leaving = False
        first.membership._wake()
        await cluster.until(lambda: 1 in cluster.reigning.image.brokers and cluster.agrees())
        assert not first.controller.is_active

    run(test)


def test_what_an_earlier_reign_has_begun_ends_before_the_next_one_begins() -> None:
    async def test(cluster: Cluster) -> None:
        store = DyingStore(MemoryStore(cluster.tree))
        first = await cluster.add(1, store=store)
        await cluster.add(2)
        await cluster.until(cluster.agrees)
        controller = first.controller
        await controller.create_topics([NewTopic("t", 3, 2)])
        read, slow, answer = store.subtree, asyncio.Event(), asyncio.Event()

        async def subtree(path: str) -> Mapping[str, Node]:
            if path == BROKER_IDS and not slow.is_set():
                slow.set()
                await answer.wait()
            return await read(path)

        store.subtree = subtree  # type: ignore[assignment]
        known: list[ClusterImage] = []
        first.view.subscribe(lambda _old, new: known.append(new))
        controller._brokers.look_at_brokers_soon()
        await slow.wait()
        controller.resign()
        reign = asyncio.create_task(controller.reign(controller.epoch, controller._store._epoch_version))
        for _ in range(10):
            await asyncio.sleep(0)
        answer.set()
        await reign
        assert known
        assert all(set(image.topics) == {"t"} for image in known), "or its broker deletes their logs"
        await cluster.until(cluster.agrees)

    run(test)


def test_other_brokers_are_notified_though_the_controllers_own_fails() -> None:
    async def test(cluster: Cluster) -> None:
        first, second = await cluster.of(1, 2)

        def fail(_old: ClusterImage, _new: ClusterImage) -> None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

        unsubscribe = first.view.subscribe(fail)
        with pytest.raises(KafkaError):
            await first.controller.create_topics([NewTopic("t", 1, 2)])
        await cluster.until(lambda: "t" in second.image.topics)
        unsubscribe()

    run(test)


def test_producer_ids_are_for_who_is_registered() -> None:
    async def test(cluster: Cluster) -> None:
        _, second = await cluster.of(1, 2)
        allocate = cluster.reigning.next_producer_id_block
        assert await allocate(2, second.epoch) == range(1000)
        for broker_id, epoch, code in (
            (2, second.epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
            (9, 1, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ):
            with pytest.raises(KafkaError) as refused:
                await allocate(broker_id, epoch)
            assert refused.value.code is code

    run(test)


def test_a_lost_session_is_followed_by_a_new_registration() -> None:
    async def test(cluster: Cluster) -> None:
        first, second, _ = await cluster.of(1, 2, 3)
        await first.controller.create_topics([NewTopic("t", 6, 3)])
        for member in (second, first):
            epoch = member.epoch
            assert isinstance(member.store, MemoryStore)
            member.store.expire()
            await cluster.until(lambda m=member, e=epoch: m.epoch > e and cluster.agrees())  # type: ignore[misc]
        assert cluster.reigning.epoch > 1
        assert cluster.reigning.image.brokers.keys() == {1, 2, 3}

    run(test)


def test_broker_mistaken_for_dead_registers_again() -> None:
    async def test(cluster: Cluster) -> None:
        first, second, _ = await cluster.of(1, 2, 3)
        await first.controller.create_topics([NewTopic("t", 6, 3)])
        epoch = second.epoch
        await first.controller.broker_failed(first.controller.image.brokers[2])
        await cluster.until(lambda: second.epoch > epoch and cluster.agrees())
        assert all(s.leader != 2 for s in cluster.reigning.image.topics["t"].partitions)

    run(test)


def test_a_broker_that_is_not_reached_registers_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(membership, "RETRY_SECONDS", 0.005)

    def pauses() -> list[str]:
        return [
            r.getMessage().partition("again after ")[2] for r in caplog.records if "although it runs" in r.getMessage()
        ]

    async def test(cluster: Cluster) -> None:
        _, second, _ = await cluster.of(1, 2, 3)
        second.refuse()
        await cluster.until(lambda: len(pauses()) >= 4)
        assert pauses()[:4] == ["0 s", "0.01 s", "0.02 s", "0.04 s"]
        second.refusing = False
        await cluster.until(lambda: cluster.reigning.image.brokers.keys() == {1, 2, 3} and cluster.agrees())

    run(test)


def test_new_controller_ends_the_pause_of_an_unreached_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(membership, "MAX_RETRY_SECONDS", 600)
    monkeypatch.setattr(membership, "RETRY_SECONDS", 600)

    async def test(cluster: Cluster) -> None:
        first, second, _ = await cluster.of(1, 2, 3)
        second.refuse()
        await cluster.until(lambda: "again after 600 s" in caplog.text)
        second.refusing = False
        await first.die(session_ends=True)
        await cluster.until(lambda: cluster.controller is not None and cluster.agrees())
        assert cluster.reigning.image.brokers.keys() == {2, 3}

    run(test)


def test_a_controlled_shutdown_moves_what_can_be_moved() -> None:
    async def test(cluster: Cluster) -> None:
        first, second, _ = await cluster.of(1, 2, 3)
        await first.controller.create_topics([NewTopic("t", 6, 3), NewTopic("one", 6, 1)])
        with pytest.raises(KafkaError) as raised:
            await first.controller.controlled_shutdown(2, second.epoch - 1)
        assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert await first.controller.controlled_shutdown(2, second.epoch) == []
        assert cluster.agrees()
        for s in first.controller.image.topics["t"].partitions:
            assert s.leader in (1, 3)
            assert s.isr in ((1, 3), (3, 1))
        assert any(s.leader == 2 for s in first.controller.image.topics["one"].partitions)
        (made,) = await first.controller.create_topics([NewTopic("new", 4, 2)])
        assert made.topic is not None
        assert all(2 not in s.replicas for s in made.topic.partitions)
        before = first.controller.image.topics
        await second.stop()
        await cluster.until(lambda: 2 not in first.controller.image.brokers)
        assert first.controller.image.topics == before

    run(test)


def test_the_controller_leaves_and_another_takes_over_at_once() -> None:
    async def test(cluster: Cluster) -> None:
        first, *_ = await cluster.of(1, 2, 3)
        await first.controller.create_topics([NewTopic("t", 6, 3)])
        await first.controller.controlled_shutdown(1, first.epoch)
        await first.membership.leave()
        first.alive = False
        await cluster.until(lambda: cluster.controller is not None and cluster.agrees())
        assert await first.store.get("/brokers/ids/1") is None
        assert cluster.reigning.epoch == 2

    run(test)


def test_replicas_in_a_failed_directory_do_not_lead() -> None:
    async def test(cluster: Cluster) -> None:
        first, _, third = await cluster.of(1, 2, 3)
        third.bad_replicas.update(("t", i) for i in range(3))
        await first.controller.create_topics([NewTopic("t", 3, 3)])
        await cluster.until(
            lambda: all(s.offline_replicas == (3,) for s in first.controller.image.topics["t"].partitions)
        )
        assert all(s.leader in (1, 2) and 3 not in s.isr for s in first.controller.image.topics["t"].partitions)
        await cluster.until(cluster.agrees)
        assert third.image.topics["t"].partitions[0].offline_replicas == (3,)
        # Another controller has to be notified again.
        await first.membership.leave()
        first.alive = False
        await cluster.until(
            lambda: (
                cluster.controller is not None
                and all(s.offline_replicas == (3,) for s in cluster.reigning.image.topics["t"].partitions)
            )
        )
        # A new registration begins with directories presumed good.
        third.bad_replicas.clear()
        await cluster.reigning.broker_failed(cluster.reigning.image.brokers[3])
        await cluster.until(
            lambda: (
                cluster.controller is not None
                and 3 in cluster.reigning.image.brokers
                and all(s.offline_replicas == () for s in cluster.reigning.image.topics["t"].partitions)
            )
        )

    run(test)


def test_failed_directory_of_a_deleted_topic_does_not_affect_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answered for the first one when there is the second one already."""
    monkeypatch.setattr(controller_module, "TELL_SECONDS", 0.0)

    async def test(cluster: Cluster) -> None:
        first, second = await cluster.of(1, 2)
        offline: list[tuple[int, ...]] = []
        first.view.subscribe(lambda _, new: offline.extend(s.offline_replicas for s in partitions_of(new, "t")))
        controller = first.controller
        wanted = NewTopic("t", assignments=[(0, (1, 2))])
        second.silent = True
        await controller.create_topics([wanted])
        old = controller.image.topics["t"].id
        second.is_offline = lambda topic, _: second.image.topics[topic].id == old
        await controller.delete_topics([TopicReference("t")])
        await controller.create_topics([wanted])
        assert controller.image.topics["t"].id != old
        second.silent = False
        await cluster.until(cluster.agrees)
        await controller.wait_until_idle()
        assert second.image.topics["t"].id != old
        assert set(offline) == {()}
        assert state(cluster).isr == (1, 2)

    run(test)


def test_a_directory_that_fails_later_is_asked_about() -> None:
    async def test(cluster: Cluster) -> None:
        first, second, _ = await cluster.of(1, 2, 3)
        await first.controller.create_topics([NewTopic("t", 3, 3)])
        for member in (second, first):
            member.bad_replicas.update(("t", i) for i in range(2))
            member.membership.directory_failed()
            await cluster.until(
                lambda b=member.id: all(  # type: ignore[misc]
                    b in s.offline_replicas and s.leader != b for s in first.controller.image.topics["t"].partitions[:2]
                )
            )
        assert first.controller.image.topics["t"].partitions[2].offline_replicas == ()
        assert first.controller.image.topics["t"].partitions[0].leader == 3
        await cluster.until(cluster.agrees)
        assert await first.store.children("/log_dir_event_notification") == []
        # It fails again, before the controller has looked, and a third time.
        await asyncio.gather(*(announce_failed_directory(second.store, 2) for _ in range(3)))
        await cluster.until(lambda: cluster.tree.find("/log_dir_event_notification/2") is None)

    run(test)


def test_directory_failure_is_reported_once_the_store_is_back() -> None:
    async def test(cluster: Cluster) -> None:
        first = await cluster.add(1)
        store = DyingStore(MemoryStore(cluster.tree))
        second = await cluster.add(2, store=store)
        await cluster.until(cluster.agrees)
        await first.controller.create_topics([NewTopic("t", 1, 2)])
        second.bad_replicas.add(("t", 0))
        store.failure, store.after = StoreUnavailable("away"), False
        second.membership.directory_failed()
        await cluster.until(lambda: state(cluster).offline_replicas == (2,))

    run(test)


@pytest.mark.parametrize("lost", ["look", "answer to the deletion", "deletion", "new leader"])
@pytest.mark.parametrize("failed", [1, 2], ids=["of the controller", "of another broker"])
def test_a_failed_directory_is_not_forgotten_when_the_store_fails(lost: str, failed: int) -> None:
    async def test(cluster: Cluster) -> None:
        store = DyingStore(MemoryStore(cluster.tree))
        first = await cluster.add(1, store=store)
        second = await cluster.add(2)
        await cluster.until(cluster.agrees)
        assert cluster.reigning is first.controller
        await first.controller.create_topics([NewTopic("t", assignments=[(0, (failed, 3 - failed))])])
        children, apply = store.children, store.apply
        # More than there may be notices of one change.
        failures: list[StoreError] = [StoreUnavailable("away")] * (3 if lost in ("look", "deletion") else 1)

        async def look(path: str) -> list[str]:
            if path == DIRECTORY_EVENTS and lost == "look" and failures:
                raise failures.pop()
            return await children(path)

        async def write(operations: Sequence[Operation]) -> None:
            deletes = any(isinstance(o, Delete) and o.path.startswith(DIRECTORY_EVENTS) for o in operations)
            if deletes and lost == "answer to the deletion" and failures:
                await apply(operations)
                raise failures.pop()
            elects = any(isinstance(o, Put) for o in operations)
            if failures and ((lost == "deletion" and deletes) or (lost == "new leader" and elects)):
                raise failures.pop()
            await apply(operations)

        store.children, store.apply = look, write  # type: ignore[method-assign]
        member = cluster.members[failed]
        member.bad_replicas.add(("t", 0))
        member.membership.directory_failed()
        await cluster.until(lambda: state(cluster).offline_replicas == (failed,))
        assert state(cluster).leader == 3 - failed
        await cluster.until(lambda: cluster.agrees() and cluster.tree.find(f"{DIRECTORY_EVENTS}/{failed}") is None)
        assert not failures
        assert second.image.topics["t"].partitions[0].leader == 3 - failed

    run(test)


def test_who_may_have_lost_records_steps_back_once() -> None:
    async def test(cluster: Cluster) -> None:
        first, *_ = await cluster.of(1, 2, 3)
        await first.controller.create_topics([NewTopic("t", 3, 3), NewTopic("one", 3, 1)])
        before = first.controller.image.topics["one"].partitions
        await cluster.members[2].die(session_ends=True)
        again = await cluster.add(2, unclean=True)
        await cluster.until(cluster.agrees)
        await cluster.until(lambda: again.judged == 1)
        assert not cluster.reigning.image.brokers[2].unclean
        node = await first.store.get("/brokers/ids/2")
        assert node is not None
        assert b"unclean" not in node.data
        assert cluster.reigning.image.topics["one"].partitions == before
        assert again.epoch == cluster.reigning.image.brokers[2].epoch, "clearing the mark is no new registration"

    run(test)


@pytest.mark.parametrize("by", ["a broker that registers", "another controller"])
def test_broker_becomes_controller_although_others_write_meanwhile(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: Cluster) -> None:
        other = MemoryStore(cluster.tree)
        store = DyingStore(MemoryStore(cluster.tree))
        apply = store.apply
        overtaken: list[str] = []

        async def apply_later(operations: Sequence[Operation]) -> None:
            if not overtaken and Check(BROKER_SEQUENCE, 0) in operations:
                overtaken.append(by)
                if by == "another controller":
                    await other.apply([Put(CONTROLLER_EPOCH, ControllerEpochNode.encode(2))])
                else:
                    endpoints = {"PLAINTEXT": Endpoint("host2", 9092, "PLAINTEXT")}
                    await register(other, Broker(2, -1, None, endpoints), 0)
            await apply(operations)

        monkeypatch.setattr(store, "apply", apply_later)
        member = await cluster.add(1, unclean=True, store=store)
        assert overtaken == [by]
        assert member.controller.is_active
        assert not member.controller.image.brokers[1].unclean
        if by == "another controller":
            assert member.controller.epoch == 2
        else:
            assert 2 in member.controller.image.brokers

    monkeypatch.setattr(membership, "RETRY_SECONDS", 0.001)
    run(test)


def test_a_start_ends_with_whatever_goes_wrong_in_it() -> None:
    async def test() -> None:
        clock = SystemClock()
        store = MemoryStore(MemoryTree())

        class Broken:
            image = ClusterImage()

            async def take(self, _image: ClusterImage) -> None:
                raise ValueError("a defect")

        async def refused(_broker: Broker) -> Connection:
            raise Disconnected("refused")

        controller = Controller(store, BrokerConfig({"node.id": "1"}), clock, SeededRandom(1), Broken(), refused)
        membership = Membership(store, clock, controller)
        joining = membership.join(Broker(1, -1, None, {"PLAINTEXT": Endpoint("host", 1, "PLAINTEXT")}))
        with pytest.raises(ValueError, match="a defect"):
            await asyncio.wait_for(joining, 10)

    asyncio.run(test())


def test_a_registration_left_behind_at_another_address_is_waited_for() -> None:
    async def test() -> None:
        tree = MemoryTree()
        clock = SystemClock()

        def member(patience_seconds: float) -> tuple[MemoryStore, Membership]:
            store = MemoryStore(tree)
            controller = Controller(store, BrokerConfig({"node.id": "1"}), clock, SeededRandom(1), Taking(), refused)
            return store, Membership(store, clock, controller, patience_seconds=patience_seconds)

        class Taking:
            image = ClusterImage()

            async def take(self, _image: ClusterImage) -> None:
                return

        async def refused(_broker: Broker) -> Connection:
            raise Disconnected("refused")

        def entry(port: int) -> Broker:
            return Broker(1, -1, None, {"PLAINTEXT": Endpoint("host", port, "PLAINTEXT")})

        left_behind = MemoryStore(tree)
        await register(left_behind, entry(1), 0)
        _, impatient = member(0.0)
        with pytest.raises(StoreError, match="registered by another process, at host:1"):
            await impatient.join(entry(2))
        _, patient = member(60.0)
        joining = asyncio.create_task(patient.join(entry(3)))
        # It has looked in vain once.
        await asyncio.wait({joining}, timeout=0.05)
        assert not joining.done()
        left_behind.expire()
        joined = await joining
        assert joined.endpoints["PLAINTEXT"].port == 3
        await patient.leave()

    asyncio.run(test())


def test_silent_broker_is_waited_for_and_notified_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.cluster.controller.TELL_SECONDS", 0.01)

    async def test(cluster: Cluster) -> None:
        first, second, _ = await cluster.of(1, 2, 3)
        second.silent = True
        await first.controller.create_topics([NewTopic("a", 1, 3)])
        await first.controller.create_topics([NewTopic("b", 1, 3)])
        await first.controller.delete_topics([TopicReference("a")])
        assert 2 in first.controller.image.brokers
        second.silent = False
        await cluster.until(cluster.agrees)
        assert set(second.image.topics) == {"b"}

    run(test)


def test_a_connection_that_broke_is_made_again() -> None:
    async def test(cluster: Cluster) -> None:
        first, second, _ = await cluster.of(1, 2, 3)
        for line in list(second.lines):
            line.close()
        await first.controller.create_topics([NewTopic("t", 1, 3)])
        await cluster.until(cluster.agrees)
        assert 2 in first.controller.image.brokers
        assert first.controller.image.brokers[2].epoch == second.epoch

    run(test)


def test_leaders_go_back_to_where_they_belong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.cluster.leader_balancing.FIRST_BALANCE_SECONDS", 0.01)

    async def test(cluster: Cluster) -> None:
        first, *_ = await cluster.of(1, 2, 3)
        await first.controller.create_topics([NewTopic("t", 6, 3)])
        await cluster.members[2].die(session_ends=True)
        await cluster.until(lambda: all(s.leader != 2 for s in first.controller.image.topics["t"].partitions))
        again = await cluster.add(2)
        controller = cluster.reigning
        for index, s in enumerate(controller.image.topics["t"].partitions):
            isr = tuple((i, cluster.members[i].epoch) for i in s.replicas)
            change = IsrChange(controller.image.topics["t"].id, index, s.leader_epoch, s.partition_epoch, isr)
            leader = cluster.members[s.leader]
            (done,) = await controller.alter_partitions(leader.id, leader.epoch, [change])
            assert done.error is ErrorCode.NONE
        await cluster.until(
            lambda: all(s.leader == s.replicas[0] for s in controller.image.topics["t"].partitions) and cluster.agrees()
        )
        assert again.image.topics["t"].partitions == tuple(
            s._replace(leader_broker_epoch=-1) for s in controller.image.topics["t"].partitions
        )

    run(test, {"leader.imbalance.check.interval.seconds": "1"})


@pytest.mark.parametrize("after", [True, False], ids=["written", "lost"])
@pytest.mark.parametrize("writes", range(8))
@pytest.mark.parametrize("what", ["create", "delete", "grow", "move", "failover"])
def test_whatever_a_controller_leaves_half_done_the_next_one_finishes(what: str, writes: int, after: bool) -> None:
    async def test(cluster: Cluster) -> None:
        store = DyingStore(MemoryStore(cluster.tree))
        first = await cluster.add(1, store=store)
        await cluster.of(2, 3)
        await first.controller.create_topics([NewTopic("t", 6, 2, (), [("retention.ms", "7")]), NewTopic("u", 6, 3)])
        store.after = after
        store.writes_left = writes
        deaths: list[asyncio.Task[None]] = []
        store.on_death = lambda: deaths.append(asyncio.ensure_future(first.die(session_ends=True)))
        if what == "failover":
            await cluster.members[2].die(session_ends=True)
            await cluster.until(
                lambda: bool(deaths) or (cluster.controller is not None and 2 not in cluster.reigning.image.brokers)
            )
        else:
            with contextlib.suppress(KafkaError):
                await half_done(first.controller, what)
        if not deaths:
            await first.die(session_ends=True)
        await asyncio.gather(*deaths)
        await cluster.until(lambda: cluster.controller is not None and cluster.agrees())
        await cluster.reigning.wait_until_idle()
        image = cluster.reigning.image
        stored = await load_image(cluster.members[3].store)
        assert stored.topics == image.topics
        live = image.brokers.keys()
        for topic in image.topics.values():
            if topic.name == "t":
                assert topic.configs == {"retention.ms": "7"}
            for s in topic.partitions:
                assert s.leader_epoch >= 0
                assert s.isr
                assert s.leader in live or not set(s.isr) & live
        assert not stored.topics_in_deletion
        known = {"/brokers/topics/" + name for name in image.topics}
        paths = [path for path, _ in cluster.tree.below("/brokers/topics")]
        assert all(any(path == k or path.startswith(k + "/") for k in known) for path in paths if path.count("/") > 2)
        # All names can be used again.
        for name in ("t", "new"):
            if name not in image.topics:
                (made,) = await cluster.reigning.create_topics([NewTopic(name, 1, 1)])
                assert made.failure is None

    run(test)


async def half_done(controller: Controller, what: str) -> None:
    if what == "create":
        await controller.create_topics([NewTopic("new", 6, 2)])
    elif what == "delete":
        await controller.delete_topics([TopicReference("t"), TopicReference("u")])
    elif what == "grow":
        await controller.create_partitions([MorePartitions("t", 12)])
    else:
        moves = [Reassignment("t", index, (3, 1)) for index in range(6)]
        await controller.change(lambda image: alter_reassignments(image, moves, BrokerConfig({})))


@pytest.mark.parametrize("after", [True, False], ids=["written", "lost"])
def test_after_a_write_of_unknown_outcome_the_store_is_believed(after: bool) -> None:
    async def test(cluster: Cluster) -> None:
        store = DyingStore(MemoryStore(cluster.tree))
        first = await cluster.add(1, store=store)
        await cluster.of(2)
        await first.controller.create_topics([NewTopic("kept", 1, 1)])
        store.after = after
        store.failure = StoreUnavailable("no connection")
        with pytest.raises(KafkaError) as raised:
            await first.controller.create_topics([NewTopic("t", 1, 1)])
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert ("t" in first.controller.image.topics) is after
        assert first.controller.is_active
        await cluster.until(cluster.agrees)
        await first.controller.create_topics([NewTopic("u", 1, 1)])
        assert (await load_image(store)).topics == first.controller.image.topics

    run(test)


def test_change_that_is_lost_twice_is_finished_without_another_request() -> None:
    """A step of it, and then the write that was to finish what is half done."""

    async def test(cluster: Cluster) -> None:
        store = DyingStore(MemoryStore(cluster.tree))
        first = await cluster.add(1, store=store)
        await cluster.until(cluster.agrees)
        store.after = False
        store.failures = [None, StoreUnavailable("away"), StoreUnavailable("still away")]
        with pytest.raises(KafkaError) as raised:
            await first.controller.create_topics([NewTopic("t", 4, 1)])
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert not store.failures
        await cluster.until(lambda: [s.leader for s in partitions_of(first.image, "t")] == [1] * 4)
        assert (await load_image(store)).topics == first.controller.image.topics

    run(test)


def test_failure_without_a_waiting_caller_is_not_logged() -> None:
    """As when the store hangs for longer than the one who asked had time."""

    async def test(cluster: Cluster) -> None:
        complaints: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        store = DyingStore(MemoryStore(cluster.tree))
        controller = (await cluster.add(1, store=store)).controller
        await cluster.until(cluster.agrees)
        store.failure, store.after = StoreUnavailable("away"), False
        asked = asyncio.create_task(controller.create_topics([NewTopic("t", 1, 1)]))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await controller.wait_until_idle()
        assert store.failure is None
        controller._events._last = None
        gc.collect()
        assert not complaints

    run(test)


def test_no_controller_decides_in_the_epoch_of_another() -> None:
    """Who was taken for dead, and replaced, between the look at the election and the look at its epoch."""

    async def test(cluster: Cluster) -> None:
        store = DyingStore(MemoryStore(cluster.tree))
        rival = MemoryStore(cluster.tree)
        read, elected = store.get, asyncio.Event()

        async def get(path: str) -> Node | None:
            if path == CONTROLLER_EPOCH and not elected.is_set() and await read(CONTROLLER) is not None:
                elected.set()
                found = await read(CONTROLLER_EPOCH)
                assert found is not None
                await rival.apply(
                    [
                        Delete(CONTROLLER),
                        Create(CONTROLLER, ControllerNode.encode(2, 0), ephemeral=True),
                        Put(CONTROLLER_EPOCH, ControllerEpochNode.encode(2), found.version),
                    ]
                )
            return await read(path)

        store.get = get
        member = Member(cluster, 1, {}, store)
        cluster.members[1] = member
        reigns: list[tuple[int, int]] = []
        member.view.subscribe(lambda _old, new: reigns.append((new.controller_id, new.controller_epoch)))
        await member.start()
        assert elected.is_set()
        assert reigns == []
        assert not member.controller.is_active
        assert member.membership.controller_id == 2
        await rival.close()

    run(test)


def test_lease_is_granted_to_the_current_registration_only() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.of(1, 2)
        await cluster.until(cluster.agrees)
        epoch = cluster.members[2].epoch
        for broker_id, asked in ((2, epoch - 1), (2, epoch + 1), (7, epoch)):
            with pytest.raises(KafkaError) as rejected:
                await cluster.reigning.lease(broker_id, asked)
            assert rejected.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert (await cluster.reigning.lease(2, epoch)).seconds > 0

    run(test)


def test_others_are_served_while_many_partitions_are_created() -> None:
    """The decision takes turns of the loop: with slices of no length, one for each step."""

    async def test() -> int:
        cluster = Cluster({"odradek.loop.slice.ms": "0"})
        await cluster.of(1)
        turns = 0
        controller = cluster.reigning
        before = controller.image
        creating = asyncio.ensure_future(controller.create_topics([NewTopic("t", 20 * STEP_PARTITIONS, 1)]))
        while controller.image is before:
            turns += 1
            await asyncio.sleep(0)
        await creating
        await cluster.close()
        return turns

    assert asyncio.run(test()) > 2 * (20 - 1)
