"""What the descriptions of changes are made of: a request, its answer, and the cluster before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from odradek.api.audit.trail import Change
from odradek.metadata.image import ClusterImage

CLUSTER: Final = "kafka-cluster"
"""The resource of changes that concern the whole cluster."""


class Answered(NamedTuple):
    """A request that was served."""

    request: Any
    answer: Any
    """The response message; that of a failed request has its error in all places."""
    before: ClusterImage
    after: ClusterImage
    known: Any = None
    """What the API's `Recall` found before the request was served."""

    @property
    def failure(self) -> int:
        """The error code of the answer as a whole."""
        return int(getattr(self.answer, "error_code", 0))


Describe = Callable[[Answered], Iterator[Change]]
"""The changes of a request."""
