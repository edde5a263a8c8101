"""Leaders that accept no batches: the default partitioner avoids their partitions (KIP-794)."""

from __future__ import annotations

from collections.abc import Callable, Collection


class StuckLeaders:
    """By leader, since when it has accepted none of the batches that are due. Pure."""

    __slots__ = ("_leader", "_now", "_since", "_timeout_s")

    def __init__(self, timeout_s: float, leader: Callable[[str, int], int], now: Callable[[], float]) -> None:
        """`timeout_s` is partitioner_availability_timeout_ms, 0 for never; `leader` finds that of a partition."""
        self._timeout_s = timeout_s
        self._leader = leader
        self._now = now
        self._since: dict[int, float] = {}

    @property
    def is_watching(self) -> bool:
        """Whether it is asked for: otherwise no leader is ever stuck."""
        return self._timeout_s > 0

    def note(self, node_id: int, *, is_free: bool, now: float) -> None:
        """Note whether a leader with due batches accepts one now."""
        if is_free or not self._timeout_s:
            self._since.pop(node_id, None)
        else:
            self._since.setdefault(node_id, now)

    def keep(self, nodes: Collection[int]) -> None:
        """Forget leaders without due batches: only a batch shows whether they accept it."""
        for node_id in [each for each in self._since if each not in nodes]:
            del self._since[node_id]

    def is_stuck(self, topic: str, partition: int) -> bool:
        """Whether the partition's leader has accepted nothing for that long."""
        since = self._since.get(self._leader(topic, partition))
        return since is not None and self._now() - since >= self._timeout_s
