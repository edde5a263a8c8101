"""AddRaftVoter (KIP-853) on a broker: the controllers of a KRaft quorum decide, and brokers forward it to them."""

from __future__ import annotations

from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


@api(ApiKey.ADD_RAFT_VOTER)
def handle(_request: AddRaftVoterRequest, _context: RequestContext[object]) -> AddRaftVoterResponse:
    """Reject it: this broker's metadata is in a store. UNSUPPORTED_VERSION."""
    text = "The metadata of this cluster is in a store, not in a quorum of voters."
    return AddRaftVoterResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=text)
