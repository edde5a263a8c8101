"""Changes of ACLs on the active controller: each ACL is a record with an id of its own.

Source: KIP-801; Kafka's `AclControlManager`.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.quorum.quorum_controller import QuorumController
from odradek.controller.outcome import Decision
from odradek.metadata.image import ClusterImage
from odradek.ports.randomness import Random
from odradek.wire.acls import AclBinding, AclFilter


class AclRecords:
    """Implements `AclEditor`. Each method raises NotTheController where this controller is not active."""

    __slots__ = ("_controller", "_random")

    def __init__(self, controller: QuorumController, random: Random) -> None:
        self._controller = controller
        self._random = random

    async def create(self, bindings: Sequence[AclBinding]) -> None:
        """See `AclEditor`; those that exist stay."""

        def decide(image: ClusterImage) -> Decision[None]:
            existing = set(image.acls.values())
            added = {self._random.uuid(): each for each in dict.fromkeys(bindings) if each not in existing}
            return Decision((), image.with_acls({**image.acls, **added}) if added else image, ())

        await self._controller.decide(lambda c: c.step(decide))

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """See `AclEditor`."""

        def decide(image: ClusterImage) -> Decision[list[AclBinding]]:
            matched = [[each for each in image.acls.values() if wanted.matches(each)] for wanted in filters]
            removed = {each for found in matched for each in found}
            kept = {acl_id: each for acl_id, each in image.acls.items() if each not in removed}
            return Decision((), image.with_acls(kept) if removed else image, [sorted(found) for found in matched])

        return list(await self._controller.decide(lambda c: c.step(decide)))
