"""The quorum of a simulated KRaft cluster, put together, and what its brokers are configured with."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.sim.checkers.quorum_brokers import QuorumBrokersWatch
from odradek.sim.checkers.silent_brokers import SilentBrokers
from odradek.sim.controllers.active_controller import SESSION_SECONDS, ActiveController
from odradek.sim.controllers.answers import Answers
from odradek.sim.controllers.controller_server import ControllerServer
from odradek.sim.controllers.model_log import ModelBatch
from odradek.sim.controllers.model_quorum import ModelQuorum, Parts
from odradek.sim.controllers.own_controllers import OwnMembership, OwnQuorum
from odradek.sim.controllers.quorum_membership import QuorumMembership, RecordedStates
from odradek.sim.world.hosts import EPOCH_MS

if TYPE_CHECKING:
    from odradek.sim.world.hosts import World


def make_own_quorum(world: World) -> list[asyncio.Task[None]]:
    """Give the world controllers of Odradek, and begin to watch the brokers."""
    rng = random.Random(f"{world.seed}:controllers")
    # A sole controller has no successor.
    size = rng.choice((3, 3, 3, 5) if world.profile.name in ("early", "at-once") else (1, 3, 3, 5))
    quorum = OwnQuorum(world, size, rng)
    states = RecordedStates(world.unclean_topics)
    watch = QuorumBrokersWatch(world, quorum, SilentBrokers(world, quorum).look)
    quorum.watch_commits(watch.committed)
    quorum.watch_commits(lambda batch: states.committed(batch.image))
    world.stored, world.controllers, world.membership = states, quorum, OwnMembership(quorum)
    world.mark(f"{size} controllers of Odradek")
    return [
        asyncio.create_task(quorum.run(), name="controllers"),
        asyncio.create_task(watch.run(), name="quorum's brokers"),
    ]


def make_quorum(world: World) -> list[asyncio.Task[None]]:
    """Give the world its controllers, and begin to watch the brokers."""
    rng = random.Random(f"{world.seed}:kraft")
    size = rng.choice((1, 3, 3, 3))
    loop = world.loop
    quorum = ModelQuorum(loop, world.network, world.seed, size, lambda: EPOCH_MS + int(loop.time() * 1000))
    config = BrokerConfig({"min.insync.replicas": "2", "default.replication.factor": "3"})
    balances = rng.random() < 0.5
    states = RecordedStates(world.unclean_topics)
    watch = QuorumBrokersWatch(world, quorum, lambda: None)

    def committed(batch: ModelBatch) -> None:
        watch.committed(batch)
        states.committed(batch.image)

    server = ControllerServer(world.network, Answers(random.Random(f"{world.seed}:answers")).answer)
    quorum.connect(
        Parts(
            lambda controller, image: ActiveController(controller, image, config, balances=balances),
            server.serve,
            committed,
            watch.reported,
            world.note,
        )
    )
    world.stored, world.controllers, world.membership = states, quorum, QuorumMembership(quorum)
    world.mark(f"{size} controllers")
    return [
        asyncio.create_task(quorum.run(), name="quorum"),
        asyncio.create_task(watch.run(), name="quorum's brokers"),
    ]


def quorum_settings(world: World) -> dict[str, str]:
    """What a broker is configured with beyond any broker of a cluster."""
    assert world.controllers is not None
    rng = random.Random(f"{world.seed}:kraft settings")
    return {
        "process.roles": "broker",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.bootstrap.servers": world.controllers.bootstrap_servers,
        "broker.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
        "broker.heartbeat.interval.ms": "1000",
        "metadata.log.max.record.bytes.between.snapshots": rng.choice(("2000", "10000", "20971520")),
    }
