"""Cases in which the connectors differ on purpose: each is a row of docs/SPARK.md, and a test checks that it holds."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Difference(NamedTuple):
    """A case and the beginning of the row in docs/SPARK.md that says why it differs."""

    row: str
    contains: str
    """What the comparison says of the case."""


_UNKNOWN: Final = Difference("an unknown option, `startingOffset`", "error 'none' and 'option'")
_RECREATED: Final = "a topic that was deleted and created again"
_SENSELESS: Final = Difference(
    "an empty `assign`, `maxOffsetsPerTrigger=0`, `endingTimestamp` in a stream", "error 'none' and 'option'"
)

DIFFERENCES: Final[Mapping[str, Difference]] = {
    "maxRecordsPerPartition of a whole topic": Difference("`maxRecordsPerPartition` in a batch", "tasks 64 and 320"),
    "an unknown option": _UNKNOWN,
    "an unknown setting of the client": Difference(
        "a setting that the client does not know", "error 'none' and 'option'"
    ),
    "assign is an empty object": _SENSELESS,
    "stream: maxOffsetsPerTrigger 0": _SENSELESS,
    "stream: endingTimestamp in a stream": _SENSELESS,
    "startingTimestamp is negative": Difference(
        "a negative `startingTimestamp`", "error 'no record at a timestamp' and 'option'"
    ),
    "stream: recreated with fewer records, lenient": Difference(_RECREATED, "rows: []"),
    "stream: recreated with more records": Difference(_RECREATED, "error 'none' and 'data loss'"),
    "stream: recreated with more records, lenient": Difference(_RECREATED, "rows: "),
    "stream: minimum and maximum": Difference(
        "`minOffsetsPerTrigger` and `maxOffsetsPerTrigger` with AvailableNow", "rows: "
    ),
}
"""By the name of the case or the scenario."""
