"""What a new image of the cluster means for the parts of this broker: partitions, coordinators, groups, quotas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from odradek.broker.coordinators.groups import GroupCoordinatorService
from odradek.broker.coordinators.transactions import TransactionCoordinatorService
from odradek.broker.storage.partitions import Partitions
from odradek.log.disk_errors import is_transient
from odradek.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, ClusterImage, Topic
from odradek.metadata.topic_changes import changed_topics, deleted_topics
from odradek.quotas.client_quotas import ClientQuotas
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("odradek.broker")

_AGAIN_SECONDS = 1.0


class Followers(Protocol):
    """The part that fetches from other leaders."""

    def follow(self, image: ClusterImage) -> None:
        """Fetch what the image has this broker follow, and nothing else."""
        ...


class ImageEffects:
    """Receives every image, in order, and passes to each part what concerns it."""

    __slots__ = (
        "_again",
        "_groups",
        "_image",
        "_led",
        "_node_id",
        "_partitions",
        "_quotas",
        "_stopped",
        "_transactions",
    )

    def __init__(
        self,
        node_id: int,
        partitions: Partitions,
        groups: GroupCoordinatorService,
        transactions: TransactionCoordinatorService,
        quotas: ClientQuotas,
    ) -> None:
        self._node_id = node_id
        self._partitions = partitions
        self._groups = groups
        self._transactions = transactions
        self._quotas = quotas
        self._led: dict[str, dict[int, tuple[bytes, int]]] = {}
        self._again: asyncio.TimerHandle | None = None
        self._image = ClusterImage()
        self._stopped = False

    async def begin(self, image: ClusterImage) -> None:
        """The image that was loaded at the start."""
        self._quotas.update(image.client_configs)
        self._partitions.apply(image)
        await self._partitions.change_directories()

    async def __call__(self, old: ClusterImage, new: ClusterImage) -> None:
        # What is tried again meanwhile must not elect whom this image deposes.
        self._image = new
        self._partitions.apply(new)
        await self._partitions.change_directories()
        self.lead(new)
        if new.client_configs is not old.client_configs:
            self._quotas.update(new.client_configs)
        gone = [topic.name for topic in deleted_topics(old, new)]
        if gone:
            self._groups.topics_deleted(gone)
        self._notify_groups(gone, old, new)

    def _notify_groups(self, gone: Sequence[str], old: ClusterImage, new: ClusterImage) -> None:
        """Which topics came, went or grew."""
        changed = [name for name in gone if name not in new.topics]
        grown: list[tuple[Topic, int]] = []
        for topic, before in changed_topics(old, new):
            if before is None:
                changed.append(topic.name)
            elif len(before.partitions) != len(topic.partitions):
                changed.append(topic.name)
                grown.append((topic, len(before.partitions)))
        if changed:
            self._groups.topics_changed(changed, grown)

    def lead(self, image: ClusterImage) -> None:
        """Notify the coordinators of the partitions of their topics that are led here."""
        self._image = image
        self._lead(logging.INFO)

    def _lead(self, level: int) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._stopped:
            return
        complete = self._lead_topic(GROUP_METADATA_TOPIC, self._groups, level)
        if not self._lead_topic(TRANSACTION_STATE_TOPIC, self._transactions, level) or not complete:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._lead, logging.DEBUG)

    def stop(self) -> None:
        """Stop notifying the coordinators."""
        self._stopped = True
        if self._again is not None:
            self._again.cancel()

    def _lead_topic(
        self, name: str, coordinator: GroupCoordinatorService | TransactionCoordinatorService, level: int
    ) -> bool:
        """False if the log of a partition could not be opened, and may be later: for want of a descriptor, or since it
        is being checked.
        """
        topic = self._image.topics.get(name)
        led: dict[int, tuple[bytes, int]] = {}
        if topic is not None:
            led = {i: (topic.id, s.leader_epoch) for i, s in enumerate(topic.partitions) if s.leader == self._node_id}
        before = self._led.get(name, {})
        complete = True
        for index, reign in before.items():
            if led.get(index) != reign:
                # Under a new epoch of this same broker, too: another broker may have led in between. A recreated topic
                # repeats the epochs of the old one, so that the epoch alone does not show the change.
                coordinator.resigned(index)
        for index, reign in list(led.items()):
            if before.get(index) == reign:
                continue
            try:
                partition = self._partitions.find(name, index)
            except KafkaError as error:
                # Its log is checked after a crash, which need not end in another call: between two tries somebody else
                # may open it. Or its directory is offline, for good.
                logger.log(level, "%s-%d is not coordinated yet: %s", name, index, error.message)
                del led[index]
                is_checked = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                complete = complete and not is_checked and not is_transient(error.__cause__)
                continue
            if partition is not None:
                coordinator.elected(partition)
        self._led[name] = led
        return complete
