"""Producer ids, epochs and sequence numbers (KIP-98): values and their arithmetic."""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_SEQUENCE: Final = 0x7FFFFFFF
MAX_EPOCH: Final = 0x7FFF
NO_SEQUENCE: Final = -1


class ProducerIdentity(NamedTuple):
    """Producer id and epoch; -1 for none."""

    producer_id: int = -1
    epoch: int = -1

    @property
    def valid(self) -> bool:
        """Whether there is one."""
        return self.producer_id >= 0


NO_IDENTITY: Final = ProducerIdentity()


def next_sequence(sequence: int, count: int) -> int:
    """The sequence after `count` more records, wrapping after 2^31 - 1."""
    return (sequence + count) & MAX_SEQUENCE


def precedes(left: int, right: int) -> bool:
    """Whether a sequence comes before another one, which may be beyond the wrap."""
    return 0 < (right - left) & MAX_SEQUENCE < 0x40000000
