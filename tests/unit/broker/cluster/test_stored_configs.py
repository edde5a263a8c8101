"""How often a broker reads its configurations of the metadata store, and that it misses no change of them."""

from __future__ import annotations

import asyncio

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.stored_configs import StoredConfigs
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.metadata.nodes import ConfigNode
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.ports.store import Create, Node, Put


class CountedStore(MemoryStore):
    """A store that counts how often configurations are read, and may change something while they are."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.meanwhile = asyncio.Event()
        self.may_return = asyncio.Event()
        self.may_return.set()

    async def subtree(self, path: str) -> dict[str, Node]:
        found = await super().subtree(path)
        if path == "/config":
            self.reads += 1
            self.meanwhile.set()
            await self.may_return.wait()
        return found


async def until_retention_is(view: ClusterView, value: str) -> None:
    async with asyncio.timeout(30):
        while view.image.broker_configs.get("1", {}).get("log.retention.ms") != value:
            await asyncio.sleep(0)


async def following(store: CountedStore) -> tuple[StoredConfigs, ClusterView]:
    view = ClusterView(BrokerConfig({"node.id": "1"}))
    configs = StoredConfigs(store, view)
    await store.apply([Create(ConfigNode.broker_path("1"), ConfigNode.encode({"log.retention.ms": "1000"}))])
    configs.follow()
    await until_retention_is(view, "1000")
    return configs, view


def test_many_changes_are_read_together() -> None:
    """A request for a thousand topics is a notice for each of them; each reading reads all configurations."""

    async def scenario() -> None:
        store = CountedStore()
        configs, view = await following(store)
        before = store.reads
        topics = [Create(ConfigNode.topic_path(f"t{number}"), ConfigNode.encode({})) for number in range(500)]
        await store.apply([*topics, Put(ConfigNode.broker_path("1"), ConfigNode.encode({"log.retention.ms": "2000"}))])
        await until_retention_is(view, "2000")
        assert store.reads - before <= 2
        configs.close()

    asyncio.run(scenario())


def test_change_during_a_reading_is_read_by_the_next_one() -> None:
    async def scenario() -> None:
        store = CountedStore()
        configs, view = await following(store)
        store.may_return.clear()
        store.meanwhile.clear()
        path = ConfigNode.broker_path("1")
        await store.apply([Put(path, ConfigNode.encode({"log.retention.ms": "2000"}))])
        await store.meanwhile.wait()
        await store.apply([Put(path, ConfigNode.encode({"log.retention.ms": "3000"}))])
        store.may_return.set()
        await until_retention_is(view, "3000")
        configs.close()

    asyncio.run(scenario())
