"""The names of options: those of Spark, of its Kafka connector and our own; a misspelt one is an error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Final

_SPARKS: Final = ("path", "checkpointLocation", "queryName")
"""What Spark adds itself, or reads before it passes the options on."""

_CONNECTORS_SOURCE: Final = (
    "assign", "subscribe", "subscribePattern", "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp",
    "startingOffsetsByTimestampStrategy", "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp",
    "failOnDataLoss", "includeHeaders", "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "groupIdPrefix", "endingOffsetsByTimestampStrategy",
)  # fmt: skip
_CONNECTORS_SINK: Final = ("topic", "includeHeaders")
_OUR_SOURCE: Final = ("commitOffsets",)
_OUR_SINK: Final = (
    "deliveryGuarantee", "transactionalId", "sourceGroup", "markerTopic", "leaseHost", "leasePort", "leaseCertificate",
    "leaseAuthority",
)  # fmt: skip

SOURCE_NAMES: Final = (*_CONNECTORS_SOURCE, *_OUR_SOURCE)
"""Options of the source."""
SINK_NAMES: Final = (*_CONNECTORS_SINK, *_OUR_SINK)
"""Options of the sink."""
_OURS: Final = frozenset((*_OUR_SOURCE, *_OUR_SINK))


class OptionError(ValueError):
    """An option of the data source is missing, unknown, or has a value that it cannot have."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one, if any is."""
    by_lower = {each.lower(): each for each in known}
    found = get_close_matches(word.lower(), by_lower, 1, 0.6)
    return by_lower[found[0]] if found else None


def check_names(given: Mapping[str, str], own: Collection[str], others: Collection[str], side: str) -> None:
    """Raise OptionError for an option that nothing reads; `given` has lower-case names.

    `others` are the names of the other side, sink or source. As with Spark's connector, its own options may be given
    on both sides; ours may not, because they would promise something there.
    """
    known = {each.lower() for each in (*own, *_SPARKS)}
    elsewhere = {each.lower(): each for each in others}
    for name in sorted(given):
        if name in known or name.startswith("kafka."):
            continue
        if name in elsewhere:
            if elsewhere[name] in _OURS:
                other = "sink" if side == "source" else "source"
                raise OptionError(f"{elsewhere[name]} is an option of the {other}, not of the {side}")
            continue
        hint = nearest(name, [*own, *_SPARKS])
        raise OptionError(f"the {side} has no option {name}{f'; did you mean {hint}?' if hint else ''}")
