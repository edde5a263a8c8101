"""The states of a transactional id and the transitions between them, as data (Kafka's TransactionState)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """The numbers are those in the records of `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """About to be forgotten. Never in a record: what is appended is a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """The producer is about to be fenced. Never in a record: what is appended is PREPARE_ABORT with the next epoch."""

    @property
    def title(self) -> str:
        """The name that clients see and filter by."""
        return _TITLES[self]


_TITLES: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in State}
STATES_BY_TITLE: Final = {title: state for state, title in _TITLES.items()}

IDLE: Final = frozenset((State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
"""No transaction is open or being ended."""
PREPARED: Final = frozenset((State.PREPARE_COMMIT, State.PREPARE_ABORT))
"""How the transaction ends is decided; its markers may not be written yet."""

VALID_PREVIOUS: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: IDLE,
    State.ONGOING: IDLE | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset((State.ONGOING,)),
    # Aborting what was never begun bumps the epoch under transaction.version 2 (KIP-890).
    State.PREPARE_ABORT: IDLE | {State.ONGOING, State.PREPARE_EPOCH_FENCE},
    State.COMPLETE_COMMIT: frozenset((State.PREPARE_COMMIT,)),
    State.COMPLETE_ABORT: frozenset((State.PREPARE_ABORT,)),
    State.DEAD: IDLE,
    State.PREPARE_EPOCH_FENCE: frozenset((State.ONGOING,)),
}


def may_follow(old: State, new: State) -> bool:
    """Whether a transactional id in state `old` may go to `new`."""
    return old in VALID_PREVIOUS[new]
