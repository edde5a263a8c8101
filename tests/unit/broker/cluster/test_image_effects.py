"""What an image means for the coordinators."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.cluster import image_effects
from odradek.broker.cluster.image_effects import ImageEffects
from odradek.metadata.image import GROUP_METADATA_TOPIC, ClusterImage, PartitionState, Topic
from odradek.wire.errors import ErrorCode, KafkaError

STATE = PartitionState(1, 0, (1,), (1,))
IMAGE = ClusterImage().with_topic(Topic(GROUP_METADATA_TOPIC, b"g" * 16, (STATE, STATE)))


class Partitions:
    """Those whose logs cannot be opened while there is no descriptor."""

    def __init__(self) -> None:
        self.cause: OSError | None = OSError(errno.EMFILE, "Too many open files")
        self.refusal: KafkaError | None = None
        self.asked = 0

    def apply(self, _: ClusterImage) -> None:
        """As if `change_directories` had much to do."""

    async def change_directories(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    def find(self, _: str, index: int) -> int:
        self.asked += 1
        if self.refusal is not None:
            raise self.refusal
        if self.cause is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from self.cause
        return index


class Coordinator:
    def __init__(self) -> None:
        self.led: list[int] = []

        self.over: list[int] = []

    def elected(self, partition: int) -> None:
        self.led.append(partition)

    def resigned(self, index: int) -> None:
        self.over.append(index)


def test_a_coordinator_whose_log_cannot_be_opened_for_now_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_effects, "_AGAIN_SECONDS", 0.0)
    partitions: Any = Partitions()
    groups: Any = Coordinator()
    nothing: Any = SimpleNamespace()

    async def scenario() -> None:
        effects = ImageEffects(1, partitions, groups, nothing, nothing)
        effects.lead(IMAGE)
        assert groups.led == []
        partitions.cause = None
        while not groups.led:
            await asyncio.sleep(0)
        assert groups.led == [0, 1]

    asyncio.run(scenario())


def test_a_coordinator_whose_log_is_being_checked_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no event reports the end: as when a fetch opens it after a failed check, before the next one."""
    monkeypatch.setattr(image_effects, "_AGAIN_SECONDS", 0.0)
    partitions: Any = Partitions()
    partitions.refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "is checked after an unclean stop; try again")
    partitions.cause = None
    groups: Any = Coordinator()
    nothing: Any = SimpleNamespace()

    async def scenario() -> None:
        effects = ImageEffects(1, partitions, groups, nothing, nothing)
        effects.lead(IMAGE)
        assert groups.led == []
        partitions.refusal = None
        for _ in range(5):
            await asyncio.sleep(0)
        assert groups.led == [0, 1]
        asked = partitions.asked
        for _ in range(5):
            await asyncio.sleep(0)
        assert partitions.asked == asked

    asyncio.run(scenario())


def test_a_coordinator_whose_log_directory_has_failed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_effects, "_AGAIN_SECONDS", 0.0)
    partitions: Any = Partitions()
    partitions.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "offline")
    groups: Any = Coordinator()
    nothing: Any = SimpleNamespace()

    async def scenario() -> None:
        ImageEffects(1, partitions, groups, nothing, nothing).lead(IMAGE)
        for _ in range(5):
            await asyncio.sleep(0)
        assert partitions.asked == 2

    asyncio.run(scenario())


def test_what_is_tried_again_goes_by_the_newest_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while that is being taken: its partitions are deposed already."""
    monkeypatch.setattr(image_effects, "_AGAIN_SECONDS", 0.0)
    partitions: Any = Partitions()
    groups: Any = Coordinator()
    groups.topics_changed = lambda *_: None
    nothing: Any = SimpleNamespace()

    async def scenario() -> None:
        effects = ImageEffects(1, partitions, groups, nothing, nothing)
        effects.lead(IMAGE)
        partitions.cause = None
        elsewhere = STATE._replace(leader=2, leader_epoch=1)
        here = STATE._replace(leader_epoch=1)
        await effects(IMAGE, IMAGE.with_topic(Topic(GROUP_METADATA_TOPIC, b"g" * 16, (elsewhere, here))))
        assert (groups.led, groups.over) == ([1], [])

    asyncio.run(scenario())


def test_no_coordinator_is_elected_after_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_effects, "_AGAIN_SECONDS", 0.0)
    partitions: Any = Partitions()
    groups: Any = Coordinator()
    nothing: Any = SimpleNamespace()

    async def scenario() -> None:
        effects = ImageEffects(1, partitions, groups, nothing, nothing)
        effects.lead(IMAGE)
        effects.stop()
        partitions.cause = None
        for _ in range(5):
            await asyncio.sleep(0)
        effects.lead(IMAGE)
        assert groups.led == []

    asyncio.run(scenario())


def test_coordinators_are_recreated_with_their_topic() -> None:
    """Sent in one difference, led by the same broker, and in the same epoch: no shard uses a deleted log."""
    partitions: Any = Partitions()
    partitions.cause = None
    groups: Any = Coordinator()
    nothing: Any = SimpleNamespace()
    effects = ImageEffects(1, partitions, groups, nothing, nothing)
    effects.lead(IMAGE)
    effects.lead(IMAGE)
    assert (groups.led, groups.over) == ([0, 1], [])
    effects.lead(IMAGE.with_topic(Topic(GROUP_METADATA_TOPIC, b"h" * 16, (STATE, STATE))))
    assert (groups.led, groups.over) == ([0, 1, 0, 1], [0, 1])


def test_every_image_reaches_partitions_and_their_directories() -> None:
    """Also the first one: replicas that it names get their directories before the broker serves."""
    done: list[tuple[str, object]] = []

    class Applied(Partitions):
        def apply(self, image: ClusterImage) -> None:
            done.append(("applied", image))

        async def change_directories(self) -> None:
            done.append(("directories", None))

    partitions: Any = Applied()
    partitions.cause = None
    groups: Any = Coordinator()
    nothing: Any = SimpleNamespace(update=lambda _: None)
    later = IMAGE.with_controller(1, 2)

    async def scenario() -> None:
        effects = ImageEffects(1, partitions, groups, nothing, nothing)
        await effects.begin(IMAGE)
        assert done == [("applied", IMAGE), ("directories", None)]
        await effects(IMAGE, later)
        assert done[2:] == [("applied", later), ("directories", None)]

    asyncio.run(scenario())
    assert groups.led == [0, 1]
