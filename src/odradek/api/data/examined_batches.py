"""Large batches whose records are read or compressed before an append: that happens in a thread, not on the event loop.

Decompression and compression let other threads work meanwhile, and the reading of records gives up the interpreter
every few ms, so that the event loop serves others. Small batches are examined by the append itself: a
thread would cost more. An append examines a batch again if the topic's settings have changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol, TypeAlias

from odradek.api.requests.capabilities import HasClock, HasDisk, HasPartitions
from odradek.api.requests.context import RequestContext
from odradek.log.append import Examined, examine, takes_long
from odradek.log.config import LogConfig
from odradek.wire.produce import ProduceRequest, RequestedPartition

LANE: Final = "examined batches"
"""The lane of `Disk.run` that examines batches, one after the other; appends and syncs must not queue behind it."""
LEAST_BYTES: Final = 256
"""Smaller batches are never examined in a thread."""

Examinations: TypeAlias = Mapping[RequestedPartition, Examined]
"""Batches by their place in the request."""


class Uses(HasClock, HasDisk, HasPartitions, Protocol):
    """The services that the examination needs."""


def has_long_batches(request: ProduceRequest, context: RequestContext[Uses]) -> bool:
    """Whether a batch of the request takes long to examine."""
    return any(True for _ in _long_batches(request, context))


async def examine_long_batches(request: ProduceRequest, context: RequestContext[Uses]) -> Examinations:
    """Examine those that take long. The request must own its batches."""
    found: dict[RequestedPartition, Examined] = {}
    disk, now_ms = context.services.disk, context.services.clock.now_ms
    for place, records, config in list(_long_batches(request, context)):
        found[place] = await disk.run(LANE, examine, records, config, now_ms())
    return found


def _long_batches(
    request: ProduceRequest, context: RequestContext[Uses]
) -> Iterator[tuple[RequestedPartition, memoryview, LogConfig]]:
    log_config = context.services.partitions.log_config
    denied = context.denied
    for topic, partitions in request.topics:
        if denied is not None and topic in denied:
            continue
        config = None
        for index, records in partitions:
            if records is None or len(records) <= LEAST_BYTES:
                continue
            if config is None:
                config = log_config(topic, index)
                if config is None:
                    break
            if takes_long(records, config):
                yield (topic, index), records, config
