"""DescribeProducers (KIP-664): the producers that a partition knows, and where their open transactions began."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Final, Protocol

from odradek.api.requests.capabilities import HasLongWork, HasPartitions, HasQuotas
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.log.producers.state import ProducerEntry
from odradek.wire.apis import ApiKey
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseState,
    DescribeProducersResponseTopic,
)

_STEP: Final = 200
"""Producers that are described in one step."""


class Uses(HasLongWork, HasPartitions, HasQuotas, Protocol):
    """The services that these handlers need."""


@api(ApiKey.DESCRIBE_PRODUCERS)
def handle(
    request: DescribeProducersRequest, context: RequestContext[Uses]
) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:
    """List the producers of each partition, in slices; errors are per partition."""
    answer = DescribeProducersResponse(topics=[])
    steps = _steps(request, context, answer.topics)
    return context.services.long_work.serve(context, steps, answer)


def _steps(
    request: DescribeProducersRequest, context: RequestContext[Uses], topics: list[DescribeProducersResponseTopic]
) -> Iterator[None]:
    for topic in request.topics:
        rows: list[DescribeProducersResponsePartition] = []
        topics.append(DescribeProducersResponseTopic(topic.name, rows))
        for index in topic.partition_indexes:
            yield
            described = _EncodedStates()
            producers_of_row: Any = described
            row = DescribeProducersResponsePartition(index, active_producers=producers_of_row)
            rows.append(row)
            try:
                partition = context.services.partitions.require(topic.name, index)
                partition.check_leader()
            except KafkaError as error:
                row.error_code, row.error_message = error.code, error.message
                continue
            # A later step may find entries that have changed since: each of them is described as it is then.
            producers = list(partition.log.history.producers.producers.values())
            for first in range(0, len(producers), _STEP):
                if first:
                    yield
                described.add(producers[first : first + _STEP])


class _EncodedStates:
    """Stands where the codec expects a list: tens of thousands encoded with the answer would hold the event loop."""

    __slots__ = ("_count", "_data")

    def __init__(self) -> None:
        self._count = 0
        self._data = bytearray()

    def add(self, entries: Sequence[ProducerEntry]) -> None:
        for entry in entries:
            _state(entry).encode(self._data, DescribeProducersResponse.MAX_VERSION)
        self._count += len(entries)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_EncodedStates]:
        yield self

    def encode(self, out: bytearray, version: int) -> None:
        del version  # there is one
        out += self._data


def _state(entry: ProducerEntry) -> DescribeProducersResponseState:
    return DescribeProducersResponseState(
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )
