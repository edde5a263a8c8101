"""ACLs in the metadata store: what brokers read, and changes by several of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.authorization.acl_changes import AclChanges
from odradek.broker.authorization.stored_acls import StoredAcls
from odradek.metadata.acl_nodes import AclNode
from odradek.metadata.nodes import CorruptNode
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.store import ConnectionLost, Create, Operation, Put, StoreUnavailable, transaction_bytes
from odradek.wire.acls import AclBinding, AclFilter, AclOperation, PatternType, ResourcePattern, ResourceType
from odradek.wire.errors import KafkaError

ORDERS = AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
SOME = [
    AclBinding(kind, name, "User:alice", operation, pattern_type=pattern)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    for name in ("a", "b/c")
    for operation in (AclOperation.READ, AclOperation.ALL)
    for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
]


class ABroker:
    """The ACLs of one broker of a tree."""

    def __init__(self, store: MemoryStore) -> None:
        self.updates = 0
        self.stored = StoredAcls(store, lambda _: self._updated())
        self.changes = AclChanges(store, self.stored)

    def _updated(self) -> None:
        self.updates += 1

    @property
    def acls(self) -> set[AclBinding]:
        return set(self.stored.all())


async def brokers(count: int, tree: MemoryTree | None = None) -> list[ABroker]:
    tree = tree or MemoryTree()
    made = [ABroker(MemoryStore(tree)) for _ in range(count)]
    for each in made:
        await each.stored.load()
        each.stored.follow()
    return made


async def let_tasks_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_change_of_one_broker_is_known_to_the_others() -> None:
    async def scenario() -> None:
        one, other = await brokers(2)
        await one.changes.create([ORDERS])
        assert one.acls == {ORDERS}
        await let_tasks_run()
        assert other.acls == {ORDERS}
        assert await other.changes.delete([AclFilter()]) == [[ORDERS]]
        assert other.acls == set()
        await let_tasks_run()
        assert one.acls == set()

    asyncio.run(scenario())


def test_unchanged_acls_keep_their_objects() -> None:
    async def scenario() -> None:
        (one,) = await brokers(1)
        await one.changes.create([ORDERS])
        before = one.stored.acls[ResourcePattern(ResourceType.TOPIC, "orders")]
        await one.changes.create([ORDERS, ORDERS._replace(resource_name="payments")])
        assert one.stored.acls[ResourcePattern(ResourceType.TOPIC, "orders")] is before

    asyncio.run(scenario())


def test_both_of_two_simultaneous_changes_of_a_resource_take_effect() -> None:
    async def scenario() -> None:
        one, other = await brokers(2)
        wanted = [ORDERS._replace(principal=f"User:{number}") for number in range(6)]
        await asyncio.gather(*((one, other)[n % 2].changes.create([each]) for n, each in enumerate(wanted)))
        await let_tasks_run()
        assert one.acls == other.acls == set(wanted)

    asyncio.run(scenario())


class Bounded(MemoryStore):
    """As ZooKeeper, which rejects large requests."""

    max_transaction_bytes = 800

    async def apply(self, operations: Iterable[Operation]) -> None:  # type: ignore[override]
        operations = list(operations)
        assert transaction_bytes(operations) <= self.max_transaction_bytes
        await super().apply(operations)


def test_change_of_many_acls_is_written_in_parts_that_the_store_accepts() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        one = ABroker(Bounded(tree))
        await one.stored.load()
        await one.changes.create(SOME)
        assert one.acls == set(SOME)
        (other,) = await brokers(1, tree)
        assert other.acls == set(SOME)
        (removed,) = await one.changes.delete([AclFilter()])
        assert (set(removed), one.acls) == (set(SOME), set())

    asyncio.run(scenario())


class Losing(MemoryStore):
    """Loses the connection after the first write that took effect."""

    lost = False

    async def apply(self, operations: Iterable[Operation]) -> None:  # type: ignore[override]
        await super().apply(list(operations))
        if not self.lost:
            self.lost = True
            raise ConnectionLost("lost")


def test_removed_acls_are_answered_when_the_first_answer_is_lost() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        (one,) = await brokers(1, tree)
        await one.changes.create([ORDERS])
        losing = ABroker(Losing(tree))
        await losing.stored.load()
        assert await losing.changes.delete([AclFilter(ResourceType.TOPIC)]) == [[ORDERS]]
        assert losing.acls == set()

    asyncio.run(scenario())


class Failing(MemoryStore):
    """Cannot be read for a while."""

    failing = False

    async def get(self, path: str):  # type: ignore[no-untyped-def]
        if self.failing:
            raise StoreUnavailable("away")
        return await super().get(path)


def test_acls_are_read_again_after_the_store_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.authorization.stored_acls._AGAIN_SECONDS", 0.001)

    async def scenario() -> None:
        tree = MemoryTree()
        (one,) = await brokers(1, tree)
        await one.changes.create([ORDERS])
        store = Failing(tree)
        late = ABroker(store)
        await late.stored.load()
        late.stored.follow()
        await let_tasks_run()
        store.failing = True
        await one.changes.delete([AclFilter()])
        await let_tasks_run()
        assert late.acls == {ORDERS}
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await late.changes.create([ORDERS._replace(resource_name="payments")])
        store.failing = False
        async with asyncio.timeout(20):
            while late.acls:
                await asyncio.sleep(0.001)
        late.stored.close()

    asyncio.run(scenario())


def test_unreadable_acls_end_a_start_and_keep_the_previous_ones() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        (one,) = await brokers(1, tree)
        await one.changes.create([ORDERS])
        store, path = MemoryStore(tree), AclNode.path(ResourcePattern(ResourceType.TOPIC, "orders"))
        await store.apply([Put(path, b"broken")])
        await let_tasks_run()
        assert one.acls == {ORDERS}
        with pytest.raises(CorruptNode):
            await ABroker(store).stored.load()

    asyncio.run(scenario())


def test_nodes_that_hold_no_acls_are_left_alone() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        await MemoryStore(tree).apply([Create("/kafka-acl/Topic", b"{}"), Create("/kafka-acl/Other/t", b"{}")])
        (one,) = await brokers(1, tree)
        assert one.acls == set()

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.booleans(), st.sets(st.sampled_from(SOME), min_size=1)), max_size=8))
@settings(max_examples=60, deadline=None)
def test_followed_acls_equal_a_fresh_reading(steps: list[tuple[bool, set[AclBinding]]]) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        one, other = await brokers(2, tree)
        expected: set[AclBinding] = set()
        for adds, bindings in steps:
            if adds:
                await one.changes.create(sorted(bindings))
                expected |= bindings
            else:
                filters = [
                    AclFilter(e.resource_type, e.resource_name, e.principal, e.operation, pattern_type=e.pattern_type)
                    for e in bindings
                ]
                removed = await other.changes.delete(filters)
                assert {each for found in removed for each in found} == expected & bindings
                expected -= bindings
            await let_tasks_run()
            assert one.acls == other.acls == expected
        fresh = ABroker(MemoryStore(tree))
        await fresh.stored.load()
        assert fresh.acls == expected

    asyncio.run(scenario())
