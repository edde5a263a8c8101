"""A kind of group is a registration: the coordinator knows no kind by its class where all kinds are alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.events import NOTHING, CommitRequest, GroupDecision, GroupListing, OffsetToCommit
from odradek.groups.group import GroupHandlers, KindContext, KindRegistration
from odradek.groups.kinds import KINDS, RECORD_TYPES
from odradek.groups.settings import GroupSettings
from odradek.groups.timers import Due
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode, KafkaError


class TribeRecord(NamedTuple):
    group_id: str
    exists: bool


class TribeDeadline(NamedTuple):
    group_id: str


class Tribe:
    """A group without members."""

    member_count = 0
    is_dead = False
    is_empty = is_idle = lets_offsets_be_deleted = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def is_subscribed(self, topic: str) -> bool:
        return topic == "ours"

    def will_read(self, topic: str) -> bool:
        return False

    def offsets_expire_since(self, commit_timestamp_ms: int) -> int | None:
        return None

    def tombstones(self) -> Iterable[TribeRecord]:
        return [TribeRecord(self.group_id, False)]

    def listing(self) -> GroupListing:
        return GroupListing(self.group_id, "tribe", "Nomadic", "tribe")


class Tribes:
    """The third kind."""

    replays_between_deadlines = False

    def __init__(self, context: KindContext) -> None:
        self.timers = context.timers
        self.by_id: dict[str, Tribe] = {}
        self.expired: list[str] = []
        self.handlers = GroupHandlers({TribeRecord: self._replay}, {TribeDeadline: self._expire}, {})

    def _replay(self, record: TribeRecord) -> None:
        if record.exists:
            self.by_id[record.group_id] = Tribe(record.group_id)
        else:
            del self.by_id[record.group_id]

    def _expire(self, now_ms: int, due: Due) -> GroupDecision:
        self.expired.append(due.payload.group_id)
        return NOTHING

    def loaded(self, now_ms: int) -> GroupDecision:
        for group_id in self.by_id:
            self.timers.schedule(("tribe", group_id), now_ms + 10, TribeDeadline(group_id))
        return NOTHING

    def unload(self, now_ms: int) -> None: ...

    def configure(self, settings: GroupSettings) -> None: ...

    def topics_changed(self, topics: frozenset[str]) -> None: ...

    def check_commit(self, now_ms: int, request: CommitRequest, *, transactional: bool) -> None:
        if request.member_id != "chief":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None: ...


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> GroupCoordinator:
    registration = KindRegistration("tribe", Tribes, ())
    monkeypatch.setattr("odradek.groups.coordinator.KINDS", (*KINDS, registration))
    found = GroupCoordinator(GroupSettings(), SeededRandom(1))
    found.replay(TribeRecord("t", True), 0)
    found.loaded(1_000)
    return found


def test_registered_kind_is_listed_by_its_type(coordinator: GroupCoordinator) -> None:
    assert [listing.group_id for listing in coordinator.list_groups(types=["Tribe"])] == ["t"]
    assert not coordinator.list_groups(types=["classic", "consumer"])


def test_registered_kind_checks_commits_of_its_groups(coordinator: GroupCoordinator) -> None:
    request = CommitRequest("t", "chief", None, 0, [OffsetToCommit("ours", 0, 5)])
    assert len(coordinator.commit_offsets(1_000, None, request).records) == 1
    with pytest.raises(KafkaError) as raised:
        coordinator.commit_offsets(1_000, None, request._replace(member_id="stranger"))
    assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_registered_kind_gets_its_deadlines(coordinator: GroupCoordinator) -> None:
    coordinator.expire(1_010)
    assert coordinator.kind(Tribes).expired == ["t"]


def test_group_of_a_registered_kind_is_deleted_by_its_tombstones(coordinator: GroupCoordinator) -> None:
    outcome = coordinator.delete_groups(None, ["t"])
    assert list(outcome.records) == [TribeRecord("t", False)]
    for record in outcome.records:
        coordinator.replay(record, 1)
    assert not coordinator.list_groups()


def test_describe_groups_reports_that_another_kind_has_the_id(coordinator: GroupCoordinator) -> None:
    described = coordinator.describe_groups(["t"])[0]
    assert (described.error, described.is_other) == (ErrorCode.GROUP_ID_NOT_FOUND, True)


def test_no_two_record_types_have_the_same_number() -> None:
    numbers = [record_type.number for record_type in RECORD_TYPES]
    assert len(set(numbers)) == len(numbers)
