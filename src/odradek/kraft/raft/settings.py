"""The settings `controller.quorum.*` that the state machine of a quorum reads, with Kafka's defaults."""

from __future__ import annotations

from typing import Final, NamedTuple

_CHECK_QUORUM_FACTOR: Final = 1.5
_BEGIN_EPOCH_FACTOR: Final = 0.5
_ASK_AGAIN_FACTOR: Final = 0.1


class QuorumSettings(NamedTuple):
    """Times in milliseconds. Source: Kafka's `QuorumConfig`."""

    election_timeout_ms: float = 1000.0
    """`controller.quorum.election.timeout.ms`; an election lasts from one to two of these."""
    fetch_timeout_ms: float = 2000.0
    """`controller.quorum.fetch.timeout.ms`: a follower without an answer of its leader for this time starts an
    election."""
    election_backoff_max_ms: float = 1000.0
    """`controller.quorum.election.backoff.max.ms`: how long the last successor of a resigned leader waits at most."""
    request_timeout_ms: float = 2000.0
    """`controller.quorum.request.timeout.ms`: a request without an answer for this time has failed."""
    retry_backoff_ms: float = 20.0
    """`controller.quorum.retry.backoff.ms`: the wait before a failed request is repeated."""
    append_linger_ms: float = 25.0
    """`controller.quorum.append.linger.ms`: how long the leader gathers records before it appends them."""
    fetch_max_wait_ms: float = 500.0
    """How long the leader delays the answer to a Fetch that has no records; Kafka's constant."""
    auto_join: bool = False
    """`controller.quorum.auto.join.enable`: an observer asks the leader to add it to the voters (KIP-1186)."""

    @property
    def report_voter_ms(self) -> float:
        """The pause between two requests of a replica that its entry among the voters be changed."""
        return self.fetch_timeout_ms

    @property
    def check_quorum_ms(self) -> float:
        """A leader from which no majority fetches for this time resigns (KIP-595, check quorum)."""
        return self.fetch_timeout_ms * _CHECK_QUORUM_FACTOR

    @property
    def ask_again_ms(self) -> float:
        """How long a prospective waits before it repeats a pre-vote that was rejected. Kafka waits for its end."""
        return self.election_timeout_ms * _ASK_AGAIN_FACTOR

    @property
    def begin_epoch_ms(self) -> float:
        """A leader announces its epoch to voters that have not fetched for this time."""
        return self.fetch_timeout_ms * _BEGIN_EPOCH_FACTOR

    def successor_backoff_ms(self, position: int, successors: int) -> float:
        """How long the successor at this position of a resigned leader's list waits before it starts an election."""
        if position == 0:
            return 0.0
        base: float = self.election_backoff_max_ms / (1 << (successors - 1))
        return min(self.election_backoff_max_ms, base * (1 << (position - 1)))
