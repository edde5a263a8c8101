"""Acknowledgements of a share consumer as a state machine: no record is acknowledged twice, none is forgotten."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.client.errors import IllegalState
from odradek.client.share.acknowledgements import (
    GAP,
    Acknowledgements,
    AcknowledgeType,
    OffsetRange,
    Source,
    Taken,
    offset_ranges,
)
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

FIRST = Source(1, "jobs", b"i" * 16, 0)
SECOND = Source(2, "jobs", b"i" * 16, 1)
KINDS = st.sampled_from(AcknowledgeType)


class AcknowledgementMachine(RuleBasedStateMachine):
    """Deliveries, acknowledgements, requests and answers in any order, beside a plain model."""

    @initialize()
    def start(self) -> None:
        self.machine = Acknowledgements()
        self.in_hand: dict[tuple[Source, int], bool] = {}
        """Whether the record is in the program's hands for the first time, by record."""
        self.decided: dict[tuple[Source, int], int] = {}
        self.flying: list[Taken] = []
        self.next_offset = 0

    @rule(source=st.sampled_from([FIRST, SECOND]), count=st.integers(1, 5))
    def deliver(self, source: Source, count: int) -> None:
        for _ in range(count):
            self.machine.deliver(source, self.next_offset)
            self.in_hand[source, self.next_offset] = True
            self.next_offset += 1

    @rule(source=st.sampled_from([FIRST, SECOND]), kind=st.sampled_from([GAP, AcknowledgeType.RELEASE]))
    def resolve_unseen(self, source: Source, kind: int) -> None:
        self.machine.resolve(source, [self.next_offset], kind)
        self.decided[source, self.next_offset] = kind
        self.next_offset += 1

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), kind=KINDS)
    def acknowledge(self, data: st.DataObject, kind: AcknowledgeType) -> None:
        source, offset = data.draw(st.sampled_from(sorted(self.in_hand)))
        self.machine.acknowledge(source.topic_partition, offset, kind)
        del self.in_hand[source, offset]
        self.decided[source, offset] = kind

    @rule(kind=KINDS)
    def acknowledge_all(self, kind: AcknowledgeType) -> None:
        self.machine.acknowledge_all(kind)
        self.decided.update(dict.fromkeys(self.in_hand, int(kind)))
        self.in_hand.clear()

    @rule(source=st.sampled_from([FIRST, SECOND]))
    def send(self, source: Source) -> None:
        taken = self.machine.take(source.node_id)
        found = {(each, offset): kind for each, sent in taken.items() for offset, kind in sent.items()}
        assert found == {key: kind for key, kind in self.decided.items() if key[0].node_id == source.node_id}
        self.decided = {key: kind for key, kind in self.decided.items() if key not in found}
        if taken:
            self.flying.append(taken)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), fails=st.booleans())
    def answer(self, data: st.DataObject, fails: bool) -> None:
        taken = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        error = KafkaError(ErrorCode.INVALID_RECORD_STATE) if fails else None
        for source, sent in taken.items():
            self.machine.completed(source, sent, error)
            if not fails:
                self.in_hand.update(
                    {(source, offset): False for offset, kind in sent.items() if kind == AcknowledgeType.RENEW}
                )

    @invariant()
    def the_program_owes_what_it_holds_for_the_first_time(self) -> None:
        assert self.machine.unacknowledged == sum(self.in_hand.values())
        assert self.machine.pending_nodes() == {source.node_id for source, _ in self.decided}


TestAcknowledgements = AcknowledgementMachine.TestCase


@pytest.mark.parametrize("kind", AcknowledgeType)
def test_a_record_that_was_sent_cannot_be_acknowledged(kind: AcknowledgeType) -> None:
    machine = Acknowledgements()
    machine.deliver(FIRST, 7)
    machine.acknowledge(FIRST.topic_partition, 7, kind)
    machine.take(1)
    with pytest.raises(IllegalState, match="offset 7 of jobs-0 is not acquired"):
        machine.acknowledge(FIRST.topic_partition, 7, kind)


def test_a_gap_cannot_be_acknowledged_by_the_program() -> None:
    machine = Acknowledgements()
    machine.resolve(FIRST, [3], GAP)
    with pytest.raises(IllegalState):
        machine.acknowledge(TopicPartition("jobs", 0), 3, AcknowledgeType.ACCEPT)


def test_the_last_acknowledgement_before_a_request_counts() -> None:
    machine = Acknowledgements()
    machine.deliver(FIRST, 0)
    machine.acknowledge(FIRST.topic_partition, 0, AcknowledgeType.RELEASE)
    machine.acknowledge(FIRST.topic_partition, 0, AcknowledgeType.ACCEPT)
    assert machine.take(1) == {FIRST: {0: AcknowledgeType.ACCEPT}}


def test_a_delivery_by_a_new_leader_replaces_the_earlier_one() -> None:
    machine = Acknowledgements()
    moved = FIRST._replace(node_id=2)
    machine.deliver(FIRST, 0)
    machine.deliver(moved, 0)
    machine.acknowledge_all(AcknowledgeType.ACCEPT)
    assert machine.take(1) == {}
    assert machine.take(2) == {moved: {0: AcknowledgeType.ACCEPT}}


def test_ranges_join_consecutive_offsets() -> None:
    sent = {3: 1, 1: 1, 2: 1, 5: 1, 6: 2, 9: 0}
    assert offset_ranges(sent) == [OffsetRange(1, 3, [1]), OffsetRange(5, 6, [1, 2]), OffsetRange(9, 9, [0])]
