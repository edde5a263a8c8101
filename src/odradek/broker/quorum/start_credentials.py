"""SCRAM credentials by which nodes log in at a controller before the quorum has a leader.

Voters have to log in to elect one, and no record is known to be committed before. Until then a controller reads the
credentials of its whole log, and in a new cluster those of `storage format --add-scram` (KIP-900).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.quorum.committed_metadata import CommittedMetadata
from odradek.metadata.features import is_on_records
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.replay import replay
from odradek.wire.messages import cluster_metadata as md

_READ: Final = (md.FeatureLevelRecord, md.UserScramCredentialRecord, md.RemoveUserScramCredentialRecord)


class StartCredentials:
    """`load` after the log; `image` has the credentials that count now."""

    __slots__ = ("_bootstrap", "_end_offset", "_image", "_metadata", "_view")

    def __init__(self, view: ClusterView, metadata: CommittedMetadata, bootstrap: Sequence[Any]) -> None:
        """`bootstrap` are the first records of a cluster that has none."""
        self._view = view
        self._metadata = metadata
        self._bootstrap = bootstrap
        self._image: ClusterImage | None = None
        self._end_offset = 0

    def load(self) -> None:
        """Read what the disk has. Raises CorruptMetadata."""
        metadata = self._metadata
        stored = replay((each for each in metadata.waiting_records() if isinstance(each, _READ)), metadata.image)
        first = () if is_on_records(stored) else (each for each in self._bootstrap if isinstance(each, _READ))
        self._image = replay(first, stored)
        self._end_offset = metadata.log_end_offset

    def image(self) -> ClusterImage:
        """The committed metadata, once it has all that the disk had at the start."""
        if self._metadata.end_offset >= self._end_offset and is_on_records(self._view.image):
            self._image = None
        return self._view.image if self._image is None else self._image
