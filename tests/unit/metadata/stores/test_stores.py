"""Which clusters a broker may join: those of its own product."""

from __future__ import annotations

import asyncio

import pytest

from odradek.metadata.image import Broker, Endpoint
from odradek.metadata.nodes import CONTROLLER, BrokerNode, ControllerNode
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.metadata.stores.selection import refuse_foreign_cluster
from odradek.ports.store import Create, Operation, WrongStore

APACHE_BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    b'"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"port":9092,"host":"h","version":5,"timestamp":"1700000000000"}'
)
APACHE_CONTROLLER = b'{"version":2,"brokerid":3000,"timestamp":"1700000000000","kraftControllerEpoch":4}'
OURS = Broker(1, 7, None, {"PLAINTEXT": Endpoint("h", 9092, "PLAINTEXT")})


def check(*operations: Operation) -> None:
    async def run() -> None:
        store = MemoryStore()
        if operations:
            await store.apply(operations)
        await refuse_foreign_cluster(store, "zk:2181/chroot")

    asyncio.run(run())


def test_brokers_of_apache_in_zookeeper_are_refused() -> None:
    ours = Create(BrokerNode.path(1), BrokerNode.encode(OURS, 0), ephemeral=True)
    theirs = [Create(BrokerNode.path(number), APACHE_BROKER, ephemeral=True) for number in (11, 2)]
    with pytest.raises(WrongStore, match=r"brokers 2, 11 of Apache Kafka registered in ZooKeeper at zk:2181/chroot"):
        check(ours, *theirs)


def test_kraft_controller_in_zookeeper_is_refused() -> None:
    with pytest.raises(WrongStore, match="controller 3000 of Apache Kafka"):
        check(Create(CONTROLLER, APACHE_CONTROLLER, ephemeral=True))


@pytest.mark.parametrize("path", ["/isr_change_notification", "/config/changes"])
def test_metadata_of_a_stopped_apache_cluster_is_refused(path: str) -> None:
    with pytest.raises(
        WrongStore, match=f"^{path} in ZooKeeper at zk:2181/chroot belongs to a cluster of Apache Kafka"
    ):
        check(Create(path, b""))


def test_brokers_of_odradek_and_an_empty_zookeeper_are_accepted() -> None:
    check()
    check(
        Create(BrokerNode.path(1), BrokerNode.encode(OURS, 0), ephemeral=True),
        Create(CONTROLLER, ControllerNode.encode(1, 0), ephemeral=True),
    )
