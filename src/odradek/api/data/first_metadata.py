"""Clients that ask about the cluster before this broker knows it."""

from __future__ import annotations

import asyncio
from typing import Final

from odradek.api.requests.capabilities import HasCluster
from odradek.api.requests.context import RequestContext
from odradek.wire.errors import ErrorCode, KafkaError

LONGEST_WAIT_S: Final = 10.0
"""A third of the time that Java's clients wait for an answer."""


async def wait_for_first_metadata(context: RequestContext[HasCluster]) -> None:
    """Wait until a controller has sent its image. Close the connection after a while: the client asks another broker.

    A cluster without brokers is no answer: librdkafka gives up every connection then, and has none to ask again. The
    answers have no code for it either that clients retry. Apache Kafka's broker serves no client before the controller
    has admitted it. Raises KafkaError (REQUEST_TIMED_OUT).
    """
    try:
        async with asyncio.timeout(LONGEST_WAIT_S):
            await context.services.cluster.wait_for_metadata()
    except TimeoutError:
        reason = "this broker does not know its cluster yet: no controller has sent it the metadata"
        context.connection.close(reason)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason) from None
