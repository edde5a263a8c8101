"""How many leaders were elected, and how many of them from replicas that may lack committed records. Pure."""

from __future__ import annotations

from odradek.metadata.image import NO_LEADER, ClusterImage
from odradek.metadata.topic_changes import partition_changes


class ElectionCounts:
    """Counts the elections in the steps from one image to the next."""

    __slots__ = ("elected", "unclean")

    def __init__(self) -> None:
        self.elected = 0
        """Partitions that got another leader, or a leader after they had none."""
        self.unclean = 0
        """Those of them whose leader was neither in the ISR nor an eligible leader replica before."""

    def add(self, old: ClusterImage, new: ClusterImage) -> None:
        """Count the elections between two images; partitions that are new have had none."""
        for _topic, _index, was, now in partition_changes(old, new):
            if was is None or now.leader in (was.leader, NO_LEADER):
                continue
            self.elected += 1
            self.unclean += now.leader not in was.isr and now.leader not in was.elr
