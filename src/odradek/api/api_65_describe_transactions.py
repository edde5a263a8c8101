"""DescribeTransactions (KIP-664): the state of transactional ids that this broker coordinates."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasTransactions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseState,
    DescribeTransactionsResponseTopic,
)


@api(ApiKey.DESCRIBE_TRANSACTIONS)
def handle(
    request: DescribeTransactionsRequest, context: RequestContext[HasTransactions]
) -> DescribeTransactionsResponse:
    """Describe each transactional id; TRANSACTIONAL_ID_NOT_FOUND for an unknown one."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(transactional_id, context) for transactional_id in request.transactional_ids]
    )


def _describe(transactional_id: str, context: RequestContext[HasTransactions]) -> DescribeTransactionsResponseState:
    try:
        found = context.services.transactions.describe(transactional_id)
    except KafkaError as error:
        return DescribeTransactionsResponseState(error.code, transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        topics.setdefault(topic, []).append(index)
    return DescribeTransactionsResponseState(
        found.error,
        transactional_id,
        found.state,
        found.timeout_ms,
        found.start_ms,
        found.producer_id,
        found.producer_epoch,
        [DescribeTransactionsResponseTopic(topic, indexes) for topic, indexes in topics.items()],
    )
