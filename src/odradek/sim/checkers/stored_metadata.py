"""What controllers write into the metadata store, change by change, and what must hold of every one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from odradek.metadata.image import NO_LEADER, PartitionState
from odradek.metadata.nodes import (
    CONTROLLER_EPOCH,
    TOPIC_DELETIONS,
    TOPICS,
    ControllerEpochNode,
    PartitionNode,
    TopicContent,
    TopicNode,
)
from odradek.ports.store import Create, Delete, Operation, Put
from odradek.records.topic_partition import PartitionKey
from odradek.sim.checkers.history import Violation

_TOPIC: Final = len(TOPICS.split("/"))
_PARTITION: Final = _TOPIC + 2
_STATE: Final = _TOPIC + 3


StateListener = Callable[[PartitionKey, PartitionState | None, PartitionState], None]
"""Called with a partition, its state before a write, and its state after."""


def _nothing(_key: PartitionKey, _before: PartitionState | None, _after: PartitionState) -> None:
    return None


class StoredStates:
    """The partitions as the store has them. `applied` is called with every transaction that took effect."""

    __slots__ = ("_controller_epoch", "_listener", "_unclean", "broken", "deletions", "states", "topics")

    def __init__(self, unclean: frozenset[str]) -> None:
        """`unclean` are topics that may be led by a replica that is not in sync."""
        self._unclean = unclean
        self.topics: dict[str, TopicContent] = {}
        self.states: dict[PartitionKey, PartitionState] = {}
        self.deletions: set[str] = set()
        """Topics that are to be deleted."""
        self._controller_epoch = 0
        self.broken: Violation | None = None
        """The first change that must not be. It was a broker that made it: who looks at the cluster raises it."""
        self._listener: StateListener = _nothing

    def watch_states(self, listener: StateListener) -> None:
        """Call the listener, instead of an earlier one, with each partition whose state was written."""
        self._listener = listener

    def topic_id(self, topic: str) -> bytes:
        """The id of the topic in the store; empty while it has none."""
        found = self.topics.get(topic)
        return b"" if found is None or found.id is None else found.id

    def applied(self, operations: Sequence[Operation]) -> None:
        """Check a transaction of the controller, and record its result."""
        written: dict[PartitionKey, bytes] = {}
        moved: set[str] = set()
        for operation in operations:
            path = operation.path
            if path == CONTROLLER_EPOCH and isinstance(operation, Create | Put):
                self._controller_epoch = ControllerEpochNode.decode(operation.data)
            if path.startswith(f"{TOPIC_DELETIONS}/"):
                (self.deletions.discard if isinstance(operation, Delete) else self.deletions.add)(path.split("/")[-1])
            if not path.startswith(f"{TOPICS}/"):
                continue
            parts = path.split("/")
            name = parts[_TOPIC]
            if len(parts) == _TOPIC + 1:
                if isinstance(operation, Delete):
                    self.topics.pop(name, None)
                elif isinstance(operation, Create | Put):
                    self.topics[name] = TopicNode.decode(path, operation.data)
                    moved.add(name)
            elif len(parts) == _STATE + 1:
                key = name, int(parts[_PARTITION])
                if isinstance(operation, Delete):
                    self.states.pop(key, None)
                elif isinstance(operation, Create | Put):
                    written[key] = operation.data
        for key in [key for key in self.states if key[0] in moved and key not in written]:
            self._moved(key, self.topics[key[0]])
        for key, data in written.items():
            self._written(key, data)

    def _moved(self, key: PartitionKey, content: TopicContent) -> None:
        """Another assignment while leader and ISR stay."""
        before = self.states[key]
        self._changed(key, before, _placed(before, key[1], content))

    def _written(self, key: PartitionKey, data: bytes) -> None:
        content = self.topics.get(key[0])
        if content is None or key[1] >= len(content.replicas):
            self._break("a partition's state has its topic", f"{key} is written, its topic is not there")
            return
        before = self.states.get(key)
        version = 0 if before is None else before.partition_epoch + 1
        state = PartitionNode.decode(PartitionNode.path(*key), data, version, content.replicas[key[1]])
        if state.controller_epoch != self._controller_epoch:
            self._break(
                "only the elected controller writes",
                f"{key}: {_described(state)}, while controller {self._controller_epoch} is elected",
            )
        self._changed(key, before, _placed(state, key[1], content))

    def _changed(self, key: PartitionKey, before: PartitionState | None, after: PartitionState) -> None:
        self.states[key] = after
        may_be_empty = self.may_have_no_isr(after)
        if not (after.isr or may_be_empty) or not set(after.isr) <= set(after.replicas):
            self._break("ISR within the replicas", f"{key}: {_described(after)}")
        if after.leader != NO_LEADER and after.leader not in after.isr:
            self._break("leader in the ISR", f"{key}: {_described(after)}")
        if before is not None:
            self._check_step(key, before, after)
        self._listener(key, before, after)

    def may_have_no_isr(self, _state: PartitionState) -> bool:
        """Whether the ISR may be empty: never in a store."""
        return False

    def _check_step(self, key: PartitionKey, before: PartitionState, after: PartitionState) -> None:
        step = f"{key}: {_described(before)} became {_described(after)}"
        if after.leader_epoch < before.leader_epoch or after.controller_epoch < before.controller_epoch:
            self._break("epochs grow", step)
        if after.leader != before.leader:
            if after.leader_epoch <= before.leader_epoch:
                self._break("a new leader has a new epoch", step)
            # The last one that a move has waited for may lead as soon as it is in sync.
            arrived = set() if after.adding_replicas else set(before.adding_replicas)
            may_lead = {NO_LEADER, *before.isr, *before.elr, *arrived}
            if before.leader in after.elr or before.leader not in after.replicas:
                # The leader that is shutting down, or whose replica is moved away, took it into the ISR, and left that
                # in the same step.
                may_lead.update(after.isr)
            if after.leader not in may_lead and key[0] not in self._unclean:
                self._break("leader elected among those in sync", step)
        left = set(before.replicas) - set(after.replicas) - set(before.adding_replicas)
        waited_for = set(before.adding_replicas) & set(after.replicas)
        if left and not waited_for <= set(after.isr):
            self._break("a move ends when those added are in sync", step)

    def _break(self, invariant: str, story: str) -> None:
        if self.broken is None:
            self.broken = Violation(invariant, f"in the metadata store, {story}")


def _placed(state: PartitionState, index: int, content: TopicContent) -> PartitionState:
    return state._replace(
        replicas=content.replicas[index],
        adding_replicas=content.adding.get(index, ()),
        removing_replicas=content.removing.get(index, ()),
    )


def _described(state: PartitionState) -> str:
    move = f" +{list(state.adding_replicas)} -{list(state.removing_replicas)}" if state.adding_replicas else ""
    return (
        f"leader {state.leader} epoch {state.leader_epoch} (controller {state.controller_epoch}) "
        f"ISR {list(state.isr)} of {list(state.replicas)}{move} eligible {list(state.elr)}"
    )
