"""ListTransactions (KIP-664): the transactional ids that this broker coordinates.

Version notes: 1 only those open for longer than a duration (KIP-994); 2 only those that match a pattern (KIP-1152).
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasTransactions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.transactions.service import ListFilter
from odradek.wire.apis import ApiKey
from odradek.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseState,
)


@api(ApiKey.LIST_TRANSACTIONS)
def handle(request: ListTransactionsRequest, context: RequestContext[HasTransactions]) -> ListTransactionsResponse:
    """List the transactional ids that pass the filters, with the names of unknown states among these."""
    found = context.services.transactions.list_transactions(
        ListFilter(
            request.state_filters,
            request.producer_id_filters,
            request.duration_filter,
            request.transactional_id_pattern,
        )
    )
    return ListTransactionsResponse(
        unknown_state_filters=found.unknown_states,
        transaction_states=[
            ListTransactionsResponseState(listing.transactional_id, listing.producer_id, listing.state)
            for listing in found.listings
        ],
    )
