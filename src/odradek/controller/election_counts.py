"""How many leaders were elected, and how many of them from replicas that may lack committed records. Pure."""

from __future__ import annotations

from odradek.metadata.image import NO_LEADER, ClusterImage


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
        if old.topics is new.topics:
            return
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is None or before is topic or before.id != topic.id:
                continue
            for was, now in zip(before.partitions, topic.partitions, strict=False):
                if was is now or now.leader in (was.leader, NO_LEADER):
                    continue
                self.elected += 1
                self.unclean += now.leader not in was.isr and now.leader not in was.elr
