"""What a broker of a KRaft cluster takes of the metadata log, and how long it may lead."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.kraft.directory_assignments import DirectoryAssignments
from odradek.broker.kraft.former_leaders import FormerLeaders
from odradek.broker.kraft.heartbeat_lease import HeartbeatLease
from odradek.broker.kraft.quorum_participation import LeadershipParts, QuorumParticipation
from odradek.kraft.broker_life_cycle import BrokerState
from odradek.metadata.features import METADATA_VERSION
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.metadata_versions import DIRECTORIES_SINCE
from odradek.replication.leadership import Leadership, UnopenedPartition

SELF = 3
TOPIC_ID = b"t" * 16
STATE = PartitionState(SELF, 4, (SELF, 1), (SELF, 1))
IMAGE = ClusterImage("cluster").with_topic(Topic("t", TOPIC_ID, (STATE,)))


class ARegistrar:
    """Registered with epoch 42; in each state as soon as it is waited for."""

    broker_epoch = 42
    problem = ""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)

    async def wait_for(self, *states: BrokerState) -> BrokerState:
        return states[0] if states else BrokerState.SHUTTING_DOWN


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.view = ClusterView(BrokerConfig({"node.id": str(SELF)}))
        self.leadership = Leadership(SELF, lambda: self.now)
        self.follower = SimpleNamespace(epoch=9, follow=self._follow)
        self.registrar = ARegistrar()
        self.noted: list[int] = []
        settings = {
            "broker.session.timeout.ms": 9000,
            "odradek.self.fence.margin.ms": 500,
            "controller.quorum.fetch.timeout.ms": 2000,
        }
        config: Any = SimpleNamespace(number=settings.__getitem__, flag=lambda _name: True)
        registrar: Any = self.registrar
        unasked = DirectoryAssignments(SELF, cast(Any, None), lambda *_: None, lambda: 1, 1000)
        self.lease = HeartbeatLease(config, self.leadership, lambda: self.now, self._catch_up, list)
        peers: Any = SimpleNamespace(node_id=SELF)
        self.part = QuorumParticipation(
            config,
            self.view,
            cast(Any, self.follower),
            LeadershipParts(self.lease, FormerLeaders(config, self.leadership, peers, lambda: self.now, list)),
            lambda _broker: registrar,
            unasked,
            self.noted.append,
        )

    async def _catch_up(self) -> None:
        await self.part.wait_until_applied(12)

    def _follow(self, take: Any, failed: Any) -> None:
        self.take, self.failed = take, failed

    async def join(self) -> None:
        self.part.follow()
        await self.part.join(Broker(SELF, -1, None, {}))
        await self.part.serve()

    @property
    def may_lead(self) -> bool:
        return self.leadership.may_lead(UnopenedPartition("t", TOPIC_ID, 0, STATE, lambda: 1))


def with_registration(epoch: int) -> ClusterImage:
    return IMAGE.with_broker(Broker(SELF, epoch, None, {}))


def test_image_of_an_earlier_registration_is_not_taken() -> None:
    """It gives leadership to the process that ran here before."""

    async def scenario() -> None:
        world = World()
        await world.join()
        await world.take(with_registration(41), 10)
        assert not world.view.image.topics
        assert world.part.metadata_offset == 9
        await world.take(with_registration(42), 11)
        assert world.view.image.topics.keys() == {"t"}
        assert world.view.broker_epoch == 42
        assert world.view.has_metadata

    asyncio.run(scenario())


def test_epoch_of_the_registration_is_noted_for_the_next_start() -> None:
    async def scenario() -> None:
        world = World()
        await world.join()
        assert world.noted == [42]

    asyncio.run(scenario())


def test_clients_see_this_broker_as_the_controller() -> None:
    """It forwards what only the controller decides, as every broker of a KRaft cluster."""

    async def scenario() -> None:
        world = World()
        await world.join()
        await world.take(with_registration(42), 11)
        assert (world.view.image.controller_id, world.view.image.controller_epoch) == (SELF, 9)

    asyncio.run(scenario())


def test_broker_leads_until_another_controller_may_fence_it() -> None:
    """A controller that is cut off answers for half a fetch timeout after the next one was elected."""

    async def scenario() -> None:
        world = World()
        await world.join()
        await world.take(with_registration(42), 11)
        assert not world.may_lead
        world.lease.unfenced(100.0)
        assert world.may_lead
        world.now = 100.0 + 7.4
        assert world.may_lead
        world.now = 100.0 + 7.6
        assert not world.may_lead

    asyncio.run(scenario())


def test_broker_leads_after_a_gap_once_it_knows_the_news() -> None:
    """Controllers unfence a broker with its first heartbeat, whatever it knows of the leaders since."""

    async def scenario() -> None:
        world = World()
        await world.join()
        await world.take(with_registration(42), 11)
        world.lease.unfenced(100.0)
        world.now = 110.0
        world.lease.unfenced(109.9)
        await asyncio.sleep(0)
        assert not world.may_lead
        await world.take(with_registration(42), 12)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.may_lead

    asyncio.run(scenario())


def test_broker_leads_nothing_after_the_metadata_log_failed() -> None:
    async def scenario() -> None:
        world = World()
        await world.join()
        await world.take(with_registration(42), 11)
        world.lease.unfenced(100.0)
        assert not world.part.has_failed.is_set()
        world.failed(OSError("disk"))
        assert world.part.has_failed.is_set()
        assert not world.may_lead
        assert "close" in world.registrar.calls

    asyncio.run(scenario())


def test_stop_hands_over_before_it_ends_the_lease() -> None:
    async def scenario() -> None:
        world = World()
        await world.join()
        world.lease.unfenced(100.0)
        await world.part.hand_over()
        assert world.registrar.calls[-1] == "begin_controlled_shutdown"
        assert world.leadership.lease_until > world.now
        world.part.cease()
        assert world.leadership.lease_until < world.now

    asyncio.run(scenario())


def test_directory_that_failed_before_the_registration_is_reported() -> None:
    async def scenario() -> None:
        world = World()
        world.part.directory_failed(b"d" * 16)
        await world.join()
        assert "report_offline_log_dir" in world.registrar.calls

    asyncio.run(scenario())


def test_broker_whose_metadata_log_failed_stops_without_a_permission() -> None:
    """It sends no heartbeat: a node whose only disk was full waited 300 s for the answer to one."""

    async def scenario() -> None:
        world = World()
        await world.join()
        world.failed(OSError("the disk is full"))
        await world.part.hand_over()
        assert "begin_controlled_shutdown" not in world.registrar.calls

    asyncio.run(scenario())


def test_broker_registers_again_when_records_have_directories() -> None:
    """Its registration was written at a metadata.version without them: no replica of it would have a directory."""

    async def scenario() -> None:
        world = World()
        await world.join()
        await world.take(with_registration(42).with_features({METADATA_VERSION: DIRECTORIES_SINCE - 1}, 1), 11)
        assert "register_again" not in world.registrar.calls
        upgraded = with_registration(42).with_features({METADATA_VERSION: DIRECTORIES_SINCE}, 2)
        await world.take(upgraded, 12)
        assert world.registrar.calls.count("register_again") == 1
        known = upgraded.with_broker(upgraded.brokers[SELF]._replace(log_dirs=(b"d" * 16,)))
        await world.take(known, 13)
        assert world.registrar.calls.count("register_again") == 1

    asyncio.run(scenario())
