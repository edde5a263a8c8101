import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.cluster import stored_configs
from odradek.broker.cluster.cluster_view import ClusterView, controller_check
from odradek.broker.cluster.controller_channel import (
    leader_and_isr_request,
    stop_replica_request,
    update_metadata_request,
)
from odradek.broker.cluster.controller_requests import ControllerRequests
from odradek.broker.cluster.stored_configs import StoredConfigs
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.notices import difference, everything, notice
from odradek.metadata.changes import load_configs
from odradek.metadata.image import DEFAULT_BROKER, NO_LEADER, Broker, ClusterImage, Endpoint, PartitionState, Topic
from odradek.metadata.nodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    BrokerNode,
    ConfigNode,
    ControllerEpochNode,
    ControllerNode,
    TopicNode,
)
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.metrics.invariants import Invariant, InvariantCounters
from odradek.ports.store import Create, Delete, MetadataStore, Node, Put, StoreError
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaRequestPartitionState,
    StopReplicaRequestTopicState,
)
from odradek.wire.messages.update_metadata import UpdateMetadataRequest

SELF = 2


def running(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    return run


def broker(broker_id: int, epoch: int = 1) -> Broker:
    return Broker(broker_id, epoch, None, {"PLAINTEXT": Endpoint("127.0.0.1", 9000 + broker_id, "PLAINTEXT")})


def state(leader: int, epoch: int, replicas: tuple[int, ...] = (1, 2, 3), partition_epoch: int = 0) -> PartitionState:
    return PartitionState(leader, epoch, replicas, replicas, partition_epoch, controller_epoch=1)


def topic(name: str, *states: PartitionState, generation: int = 0) -> Topic:
    return Topic(name, f"{name}{generation}".encode().ljust(16, b"-"), states)


class Member:
    """A broker that holds no replica of its own, as the controller reaches it."""

    def __init__(self, view: ClusterView, store: MetadataStore) -> None:
        self.view = view
        self.requests = ControllerRequests(SELF, store, view, self)
        self.configs = StoredConfigs(store, view)
        self.stopped: list[tuple[list[tuple[str, int]], bool]] = []

    def is_offline(self, _topic: str, _index: int) -> bool:
        return False

    def stop(self, places: Iterable[tuple[str, int]], delete: bool) -> None:
        self.stopped.append((list(places), delete))


async def new_member(store: MemoryStore | None = None) -> Member:
    store = store or MemoryStore()
    await store.apply([Create(CONTROLLER_EPOCH, ControllerEpochNode.encode(1))])
    view = await loaded(store)
    view.registered(broker(SELF, 1))
    return Member(view, store)


async def loaded(store: MetadataStore) -> ClusterView:
    view = ClusterView(BrokerConfig({"node.id": str(SELF)}))
    await StoredConfigs(store, view).load()
    return view


async def send(member: Member, old: ClusterImage | None, new: ClusterImage, line: int = 1) -> None:
    """As the controller's channel does it."""
    news = everything(new, SELF) if old is None else notice(difference(old, new), SELF)
    if news.stop:
        await member.requests.stop_replica(stop_replica_request(news, new, broker(SELF)), line)
    if news.lead or news.full:
        await member.requests.leader_and_isr(leader_and_isr_request(news, new, broker(SELF)), line)
    await member.requests.update_metadata(update_metadata_request(news, new, broker(SELF)), line)


CLUSTER = ClusterImage("c").with_controller(1, 1).with_brokers({i: broker(i) for i in (1, 2, 3)})


@running
async def test_broker_knows_what_the_controller_has_sent() -> None:
    member = await new_member()
    first = CLUSTER.with_topics([topic("a", state(1, 0), state(3, 0, (3, 1))), topic("b", state(2, 4))])
    await send(member, None, first)
    assert member.view.image.topics == first.topics
    assert member.view.image.brokers == first.brokers
    assert (member.view.image.controller_id, member.view.image.controller_epoch) == (1, 1)
    second = first.with_topics([topic("a", state(2, 1, partition_epoch=1), state(3, 0, (3, 1)))]).without_topics(["b"])
    await send(member, first, second)
    assert member.view.image.topics == second.topics


@running
async def test_new_topic_has_all_partitions_before_a_larger_notice_is_applied() -> None:
    """Or a group would be coordinated, for as long as UpdateMetadata is on its way, by the shard of another number."""
    store = MemoryStore()
    member = await new_member(store)
    await send(member, None, CLUSTER)
    elsewhere = state(1, 0, (1, 3))
    made = topic("a", state(2, 0), elsewhere, elsewhere, elsewhere)
    await store.apply([Create(TopicNode.path("a"), TopicNode.encode(made.id, made.partitions))])
    new = CLUSTER.with_topic(made)
    await member.requests.leader_and_isr(
        leader_and_isr_request(notice(difference(CLUSTER, new), SELF), new, broker(SELF)), 1
    )
    assert not member.view.is_whole
    known = member.view.image.topics["a"].partitions
    assert [(found.leader, found.replicas) for found in known] == [(2, (1, 2, 3)), *[(NO_LEADER, ())] * 3]
    await member.requests.update_metadata(
        update_metadata_request(notice(difference(CLUSTER, new), SELF), new, broker(SELF)), 1
    )
    assert member.view.is_whole
    assert member.view.image.topics == new.topics


@running
async def test_stopped_replicas_are_reported_with_what_becomes_of_their_data() -> None:
    member = await new_member()
    first = CLUSTER.with_topic(topic("a", state(1, 0)))
    await send(member, None, first)
    await send(member, first, CLUSTER.with_topic(topic("a", state(1, 1, (1, 3), 1))))
    assert member.stopped == [([("a", 0)], True)]


@running
async def test_a_controller_that_was_replaced_is_rejected() -> None:
    member = await new_member()
    await send(member, None, CLUSTER.with_topic(topic("a", state(1, 0))))
    stale = UpdateMetadataRequest(controller_id=3, controller_epoch=0, broker_epoch=1)
    with pytest.raises(KafkaError) as refused:
        await member.requests.update_metadata(stale, 2)
    assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    invented = LeaderAndIsrRequest(controller_id=3, controller_epoch=7, broker_epoch=1)
    with pytest.raises(KafkaError) as refused:
        await member.requests.leader_and_isr(invented, 2)
    assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH


@running
async def test_what_arrives_late_on_a_connection_that_was_given_up_is_refused() -> None:
    """Within one reign and registration only this distinguishes it from a new request."""
    store = MemoryStore()
    member = await new_member(store)
    first = CLUSTER.with_topic(topic("a", state(1, 0)))
    second = first.with_topic(topic("b", state(2, 0))).with_brokers({1: broker(1), 2: broker(2)})
    await send(member, None, first, 1)
    await send(member, None, first, 2)
    await send(member, first, second, 2)
    for old, new in ((None, first), (None, second), (first, second), (second, CLUSTER)):
        with pytest.raises(KafkaError) as refused:
            await send(member, old, new, 1)
        assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert member.view.image.topics == second.topics
        assert member.view.image.brokers == second.brokers
    assert not member.stopped
    # The next controller starts afresh, on whatever connection.
    await store.apply([Put(CONTROLLER_EPOCH, ControllerEpochNode.encode(2))])
    await send(member, None, CLUSTER.with_controller(3, 2), 1)
    assert not member.view.image.topics


@running
async def test_no_controller_is_rejected_as_stale_while_the_store_is_away() -> None:
    """Who is called so may give up; who is refused for another reason asks again."""
    store = MemoryStore()
    member = await new_member(store)
    await store.close()
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=2, broker_epoch=1)
    with pytest.raises(KafkaError) as refused:
        await member.requests.leader_and_isr(request, 1)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@running
async def test_rejection_without_a_waiting_caller_is_not_logged() -> None:
    """As when the connection it was asked on has gone."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    gate = asyncio.Event()

    class SlowStore(MemoryStore):
        async def get(self, path: str) -> Node | None:
            await gate.wait()
            return await super().get(path)

    member = await new_member(SlowStore())
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=7, broker_epoch=1)
    asked = asyncio.create_task(member.requests.leader_and_isr(request, 1))
    for _ in range(5):
        await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    gate.set()
    assert member.view._last is not None
    await asyncio.wait({member.view._last})
    member.view._last = None
    gc.collect()
    assert not complaints


@running
async def test_an_image_of_this_brokers_own_earlier_reign_is_not_taken() -> None:
    member = await new_member()
    mine = ClusterImage("c").with_controller(SELF, 0).with_topic(topic("old", state(1, 0)))
    await member.view.take(mine)
    news = CLUSTER.with_topic(topic("a", state(1, 0)))
    await send(member, None, news)
    await member.view.take(mine.with_topic(topic("b", state(1, 0))))
    assert member.view.image.topics == news.topics
    assert member.view.image.controller_id == 1


@running
async def test_recreated_topic_survives_a_repeated_deletion_of_the_old_one() -> None:
    """As after a connection that broke before the last answer."""
    member = await new_member()
    old = CLUSTER.with_topic(topic("a", state(1, 0)))
    new = CLUSTER.with_topic(topic("a", state(2, 0), generation=1))
    await send(member, None, old)
    await send(member, old, new)
    assert [places for places, _ in member.stopped] == [[("a", 0)]]
    await send(member, old, new)
    assert [places for places, _ in member.stopped] == [[("a", 0)]]


@running
async def test_what_was_decided_for_an_earlier_registration_is_rejected() -> None:
    member = await new_member()
    member.view.registered(broker(SELF, 5))
    with pytest.raises(KafkaError) as refused:
        await member.requests.leader_and_isr(decided_for(4), 1)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def decided_for(broker_epoch: int) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=broker_epoch)


@running
async def test_request_for_an_invented_registration_is_rejected() -> None:
    """A broker epoch that is greater than any was taken for a newer one."""
    member = await new_member()
    with pytest.raises(KafkaError) as rejected:
        await member.requests.leader_and_isr(decided_for(1 << 62), 1)
    assert rejected.value.code is ErrorCode.STALE_BROKER_EPOCH


@running
async def test_request_for_the_stored_registration_is_served_before_it_is_known() -> None:
    """The controller sees a registration in the store, maybe before the broker's own write has returned."""
    store = MemoryStore()
    member = await new_member(store)
    await store.apply([Create(BrokerNode.path(SELF), BrokerNode.encode(broker(SELF, 2), 0))])
    assert await member.requests.leader_and_isr(decided_for(2), 1) == {}
    with pytest.raises(KafkaError) as rejected:
        await member.requests.leader_and_isr(decided_for(3), 1)
    assert rejected.value.code is ErrorCode.STALE_BROKER_EPOCH


@running
async def test_stored_leaders_are_not_leaders_after_a_start() -> None:
    store = MemoryStore()
    news = await new_member(store)
    await send(news, None, CLUSTER.with_topic(topic("a", state(2, 3))))
    assert news.view.image.partition("a", 0) == state(2, 3)
    image = (await loaded(store)).image
    assert all(p.leader == NO_LEADER for t in image.topics.values() for p in t.partitions)
    assert not image.brokers


def test_stored_settings_that_are_rejected_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def load() -> None:
        store = MemoryStore()
        data = ConfigNode.encode({"ssl.keystore.password": "hunter2"})
        await store.apply([Create(ConfigNode.broker_path(str(SELF)), data)])
        await loaded(store)

    asyncio.run(load())
    (record,) = caplog.records
    ignored = "dynamic setting ssl.keystore.password of this broker is ignored: ssl.keystore.password is refused: "
    assert record.getMessage().startswith(ignored)
    assert "hunter2" not in record.getMessage()


@running
async def test_image_with_an_invalid_stored_setting_reaches_all_parts() -> None:
    """No broker of the cluster could start, or apply that image, until the setting was deleted."""
    store = MemoryStore()
    await store.apply([Create(ConfigNode.broker_path(DEFAULT_BROKER), ConfigNode.encode({"log.retention.ms": "x"}))])
    view = await loaded(store)
    seen: list[ClusterImage] = []
    view.subscribe(lambda _old, new: seen.append(new))
    image = view.image.with_broker_configs(str(SELF), {"log.roll.ms": "-3"}).with_topic(topic("a", state(1, 0)))
    await view.publish(image)
    assert seen == [image]


@running
async def test_new_topic_arrives_with_its_configuration_and_follows_its_changes() -> None:
    store = MemoryStore()
    member = await new_member(store)
    member.configs.follow()
    path = ConfigNode.topic_path("a")
    await store.apply([Create(path, ConfigNode.encode({"cleanup.policy": "compact"}))])
    await send(member, None, CLUSTER.with_topic(topic("a", state(1, 0))))
    assert member.view.image.topic_configs("a") == {"cleanup.policy": "compact"}
    changed = asyncio.Event()
    member.view.subscribe(lambda _old, new: changed.set() if new.topic_configs("a") == {"retention.ms": "5"} else None)
    await store.apply([Put(path, ConfigNode.encode({"retention.ms": "5"}))])
    await asyncio.wait_for(changed.wait(), 10)
    member.configs.close()


images = st.lists(
    st.dictionaries(
        st.sampled_from("abc"),
        st.tuples(
            st.integers(0, 1),
            st.lists(
                st.tuples(st.integers(1, 3), st.permutations((1, 2, 3)), st.integers(1, 3)), min_size=1, max_size=3
            ),
        ),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(images)
def test_a_broker_follows_any_history(history: list[dict[str, tuple[int, list[tuple[int, list[int], int]]]]]) -> None:
    async def follow() -> None:
        member = await new_member()
        known: ClusterImage | None = None
        for step, topics in enumerate(history):
            image = CLUSTER
            for name, (generation, partitions) in topics.items():
                # Partitions of a topic never become fewer, and every change has a higher epoch.
                before = known.topics.get(name) if known is not None else None
                count = (
                    len(before.partitions)
                    if before is not None and before.id == topic(name, generation=generation).id
                    else 0
                )
                states = [state(leader, step, tuple(order[:copies]), step) for leader, order, copies in partitions]
                states += [state(1, step, (1,), step)] * (count - len(states))
                image = image.with_topic(topic(name, *states, generation=generation))
            await send(member, known, image)
            assert member.view.image.topics == image.topics
            known = image

    asyncio.run(follow())


@running
async def test_configurations_that_could_not_be_read_are_read_again() -> None:
    store = MemoryStore()
    member = await new_member(store)
    await send(member, None, CLUSTER.with_topic(topic("a", state(1, 0))))
    member.configs.follow()
    changed = asyncio.Event()
    member.view.subscribe(lambda _old, new: changed.set() if new.topic_configs("a") == {"retention.ms": "5"} else None)
    read, failures = load_configs, [StoreError("no answer")]

    async def fails_once(given: MetadataStore, image: ClusterImage) -> ClusterImage:
        if failures:
            raise failures.pop()
        return await read(given, image)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_configs, "load_configs", fails_once)
        patch.setattr(stored_configs, "_AGAIN_SECONDS", 0.0)
        await store.apply([Create(ConfigNode.topic_path("a"), ConfigNode.encode({"retention.ms": "5"}))])
        async with asyncio.timeout(60):
            await changed.wait()
    assert not failures
    member.configs.close()


@running
async def test_what_is_configured_while_a_broker_starts_is_known_to_it() -> None:
    """Between its look at the cluster and its watch: logs are recovered meanwhile."""
    store = MemoryStore()
    await store.apply([Create(ConfigNode.broker_path("2"), ConfigNode.encode({"log.cleaner.threads": "1"}))])
    member = await new_member(store)
    await store.apply([Put(ConfigNode.broker_path("2"), ConfigNode.encode({"log.cleaner.threads": "3"}))])
    member.configs.follow()
    async with asyncio.timeout(60):
        while member.view.image.broker_configs["2"] != {"log.cleaner.threads": "3"}:
            await asyncio.sleep(0)


@running
async def test_view_follows_a_controller_elected_while_it_reads_the_cluster() -> None:
    store = MemoryStore()
    await store.apply(
        [
            Create(CONTROLLER, ControllerNode.encode(3, 0)),
            Create(CONTROLLER_EPOCH, ControllerEpochNode.encode(1)),
        ]
    )

    class Between:
        """Another controller is elected between the first and the second of the two reads."""

        seen = 0

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def subtree(self, path: str) -> dict[str, Node]:
            found = await store.subtree(path)
            if path in (CONTROLLER, CONTROLLER_EPOCH):
                self.seen += 1
                if self.seen == 1:
                    data, epoch = ControllerNode.encode(1, 0), ControllerEpochNode.encode(2)
                    await store.apply([Delete(CONTROLLER), Create(CONTROLLER, data), Put(CONTROLLER_EPOCH, epoch)])
            return found

    view = await loaded(cast(MetadataStore, Between()))
    view.registered(broker(SELF, 1))
    await send(Member(view, store), None, CLUSTER.with_controller(1, 2))
    assert view.has_metadata


@running
async def test_stop_of_an_earlier_leader_epoch_is_fenced() -> None:
    """It was decided before this broker became a replica again: obeyed, it would delete what is wanted."""
    member = await new_member()
    led = topic("a", state(1, 5), state(1, 5), state(1, 5))
    await send(member, None, CLUSTER.with_topic(led))
    epochs = {0: 4, 1: 5, 2: 6}
    request = StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=1,
        topic_states=[
            StopReplicaRequestTopicState(
                "a", [StopReplicaRequestPartitionState(i, e, True) for i, e in epochs.items()], topic_id=led.id
            )
        ],
    )
    answers = await member.requests.stop_replica(request, 1)
    assert answers == {("a", 0): ErrorCode.FENCED_LEADER_EPOCH, ("a", 1): ErrorCode.NONE, ("a", 2): ErrorCode.NONE}
    assert member.stopped == [([("a", 1), ("a", 2)], True)]


@running
async def test_images_of_the_controller_in_this_process_replace_each_other() -> None:
    view = (await new_member()).view
    mine = ClusterImage("c").with_controller(SELF, 1).with_topic(topic("old", state(1, 0)))
    await view.take(mine)
    await view.take(mine.with_topic(topic("new", state(1, 0))))
    assert set(view.image.topics) == {"old", "new"}
    await view.take(mine.with_controller(SELF, 2).without_topics({"old"}))
    assert (set(view.image.topics), view.image.controller_epoch) == (set(), 2)


def test_image_of_a_replaced_controller_is_counted() -> None:
    invariants = InvariantCounters()
    check = controller_check(invariants)
    newer = ClusterImage().with_controller(1, 4)
    check(ClusterImage().with_controller(1, 3), newer)
    check(newer, newer)
    assert not any(invariants.counts.values())
    check(newer, ClusterImage().with_controller(1, 3))
    assert invariants.counts[Invariant.CONTROLLER_EPOCH_MONOTONIC] == 1
