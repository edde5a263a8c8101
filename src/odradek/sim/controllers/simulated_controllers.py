"""What the rest of a simulated world knows of the controllers of its KRaft cluster, modelled or not."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Protocol

from odradek.metadata.image import ClusterImage
from odradek.sim.controllers.model_log import ModelBatch


class CommittedLog(Protocol):
    """The metadata log as the controllers have committed it."""

    @property
    def committed_end(self) -> int:
        """The offset after the last committed record."""
        ...

    @property
    def committed_batches(self) -> Mapping[int, ModelBatch]:
        """Committed batches."""
        ...

    @property
    def unfenced_at(self) -> MutableMapping[tuple[int, int], float]:
        """When the active controller last answered a heartbeat that the broker is unfenced, by broker and epoch."""
        ...

    @property
    def images(self) -> Mapping[int, ClusterImage]:
        """The image after each committed batch, by the offset after it."""
        ...


class SimulatedControllers(CommittedLog, Protocol):
    """The controllers of a KRaft cluster."""

    @property
    def bootstrap_servers(self) -> str:
        """Their addresses."""
        ...

    def heal(self) -> None:
        """Bring back what is down."""
        ...
