"""Which clusters a broker may join: those of its own product."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import ConnectionLoss

from odradek.metadata.image import Broker, Endpoint
from odradek.metadata.nodes import CONTROLLER, BrokerNode, ControllerNode
from odradek.metadata.stores import selection
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.metadata.stores.selection import refuse_foreign_cluster, when_available
from odradek.metadata.stores.zookeeper_access import OPEN_ACCESS
from odradek.metadata.stores.zookeeper_client import Client
from odradek.metadata.stores.zookeeper_store import ZooKeeperStore
from odradek.ports.disk import SystemDisk
from odradek.ports.store import (
    Create,
    MetadataStore,
    Operation,
    SessionExpired,
    StoreError,
    StoreUnavailable,
    WrongStore,
)

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


def test_brokers_of_apache_in_zookeeper_are_rejected() -> None:
    ours = Create(BrokerNode.path(1), BrokerNode.encode(OURS, 0), ephemeral=True)
    theirs = [Create(BrokerNode.path(number), APACHE_BROKER, ephemeral=True) for number in (11, 2)]
    with pytest.raises(WrongStore, match=r"brokers 2, 11 of Apache Kafka registered in ZooKeeper at zk:2181/chroot"):
        check(ours, *theirs)


def test_kraft_controller_in_zookeeper_is_rejected() -> None:
    with pytest.raises(WrongStore, match="controller 3000 of Apache Kafka"):
        check(Create(CONTROLLER, APACHE_CONTROLLER, ephemeral=True))


@pytest.mark.parametrize("path", ["/isr_change_notification", "/config/changes"])
def test_metadata_of_a_stopped_apache_cluster_is_rejected(path: str) -> None:
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


class Beginning:
    """Fails with the errors, one an attempt, then begins a session."""

    def __init__(self, *errors: StoreError) -> None:
        self.errors = list(errors)
        self.store = MemoryStore()

    async def __call__(self) -> MetadataStore:
        await asyncio.sleep(0.01)
        if self.errors:
            raise self.errors.pop(0)
        return self.store


def test_start_waits_for_zookeeper_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(selection, "_NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(selection, "_RETRY_SECONDS", 0.0)
    begin = Beginning(StoreUnavailable("ZooKeeper at zk:2181 cannot be reached"), SessionExpired("over"))
    with caplog.at_level(logging.INFO, "odradek.metadata"):
        assert asyncio.run(when_available(begin, "zk:2181", 300)) is begin.store
    first, last = [record.getMessage() for record in caplog.records]
    assert first.startswith("no session with ZooKeeper at zk:2181 yet: trying for 300 s (odradek.zookeeper.wait.ms)")
    assert last == "session with ZooKeeper at zk:2181 begun"


def test_start_fails_when_zookeeper_stays_away() -> None:
    begin = Beginning(StoreUnavailable("ZooKeeper at zk:2181 cannot be reached"))
    with pytest.raises(StoreUnavailable, match=r"cannot be reached .*odradek.zookeeper.wait.ms\)$"):
        asyncio.run(when_available(begin, "zk:2181", 0))


def test_start_does_not_wait_for_a_wrong_store() -> None:
    begin = Beginning(WrongStore("of Apache Kafka"))
    with pytest.raises(WrongStore):
        asyncio.run(when_available(begin, "zk:2181", 300))


class BrokenClient:
    """A client whose thread has ended: every request fails before it is sent."""

    connected = True
    over = False
    session_id = 1

    def call(self, _request: Any, answered: Callable[[Any], None]) -> Callable[[], None]:
        answered(SimpleNamespace(successful=lambda: False, exception=ConnectionLoss()))
        return lambda: None


@pytest.mark.filterwarnings("error")
def test_no_request_is_left_unawaited_when_the_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings(action="ignore"):
        gc.collect()  # what other tests have left is not of interest here
    left: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda found: left.append(str(found.exc_value)))

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: left.append(context["message"]))
        store = ZooKeeperStore("zk:2181", SystemDisk(), 1000, 1000, OPEN_ACCESS)
        client = cast(Client, BrokenClient())
        store._client = client
        for path in ("/brokers", "/controller", "/config"):
            store.watch(path, lambda _path: None)
        store._on_connected(client)
        await asyncio.gather(*store._tasks)
        # A watch whose task is cancelled before its first step, as at the end of the loop.
        store.watch("/admin", lambda _path: None)
        for task in store._tasks:
            task.cancel()
        await asyncio.gather(*store._tasks, return_exceptions=True)

    asyncio.run(run())
    gc.collect()
    assert left == []
