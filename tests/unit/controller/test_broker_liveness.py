"""Which brokers a controller considers silent, and when it yields."""

from __future__ import annotations

from math import inf

import pytest

from odradek.controller.broker_liveness import BrokerLiveness, FencedBrokers, Verdict
from odradek.metadata.image import Broker

SESSION = 3.0
PAUSE = 0.25


def brokers(*ids: int, epoch: int = 1) -> dict[int, Broker]:
    return {i: Broker(i, epoch, None, {}) for i in ids}


class Watch:
    """A controller on broker 1 that looks at its brokers four times a second."""

    def __init__(self, *ids: int) -> None:
        self.liveness = BrokerLiveness(1, SESSION, PAUSE)
        self.now = 100.0
        self.liveness.begin(self.now)
        self.liveness.register(brokers(*ids), self.now)

    def passes(self, seconds: float, *reaching: int) -> Verdict:
        end = self.now + seconds
        verdict = self.liveness.look(self.now)
        while self.now < end:
            self.now += PAUSE
            for broker_id in reaching:
                self.liveness.note_request(broker_id, 1, self.now)
                self.liveness.note_answer(broker_id, 1, self.now)
            verdict = self.liveness.look(self.now)
        return verdict


def test_broker_is_silent_after_a_session_without_request() -> None:
    watch = Watch(1, 2, 3)
    assert watch.passes(SESSION - PAUSE, 2) == Verdict(frozenset(), yields=False)
    assert watch.passes(PAUSE, 2) == Verdict(frozenset({3}), yields=False)


def test_no_broker_is_silent_while_others_are_hardly_in_contact() -> None:
    watch = Watch(1, 2, 3)
    watch.passes(1.0, 2)
    assert watch.passes(SESSION - 1.0) == Verdict(None, yields=False)
    assert watch.passes(1.0).yields


def test_broker_is_silent_no_longer_once_a_request_came() -> None:
    watch = Watch(1, 2, 3)
    watch.passes(SESSION, 2)
    assert watch.passes(PAUSE, 2, 3).silent == frozenset()


def test_request_under_another_registration_does_not_count() -> None:
    watch = Watch(1, 2, 3)
    watch.liveness.note_request(3, 7, 102.9)
    assert watch.passes(SESSION, 2).silent == {3}


@pytest.mark.parametrize("way", ["note_request", "note_answer"])
def test_broker_is_silent_when_one_way_alone_works(way: str) -> None:
    watch = Watch(1, 2, 3)
    for _ in range(12):
        getattr(watch.liveness, way)(3, 1, watch.now)
        verdict = watch.passes(PAUSE, 2)
    assert verdict == Verdict(frozenset({3}), yields=False)


def test_session_ends_a_session_after_the_last_answer() -> None:
    watch = Watch(1, 2, 3)
    watch.passes(1.0, 2)
    watch.liveness.note_request(3, 1, watch.now)
    assert watch.liveness.session_end(2) == 101.0 + SESSION
    assert watch.liveness.session_end(3) == 100.0 + SESSION
    assert watch.liveness.session_end(1) == inf, "the controller needs no answer of its own broker"


def test_answer_under_another_registration_does_not_count() -> None:
    watch = Watch(1, 2, 3)
    watch.liveness.note_answer(3, 7, 102.0)
    assert watch.liveness.session_end(3) == 100.0 + SESSION


def test_new_registration_counts_as_a_request() -> None:
    watch = Watch(1, 2, 3)
    watch.passes(SESSION, 2)
    watch.liveness.register(brokers(1, 2) | brokers(3, epoch=2), watch.now)
    assert watch.liveness.look(watch.now).silent == frozenset()


@pytest.mark.parametrize(
    ("count", "reaching", "yields"),
    [(2, (), False), (3, (), True), (3, (2,), False), (4, (2,), False), (5, (2,), True), (5, (2, 3), False)],
)
def test_controller_yields_when_fewer_than_half_reach_it(count: int, reaching: tuple[int, ...], yields: bool) -> None:
    assert Watch(*range(1, count + 1)).passes(SESSION, *reaching).yields is yields


def test_brokers_are_not_silent_because_the_controller_stood_still() -> None:
    watch = Watch(1, 2, 3)
    watch.passes(1.0, 2, 3)
    watch.now += 10.0
    assert watch.liveness.look(watch.now) == Verdict(frozenset(), yields=False)


def test_silence_continues_after_the_controller_stood_still() -> None:
    watch = Watch(1, 2, 3)
    watch.passes(2.0, 2)
    watch.now += 10.0
    assert watch.passes(SESSION, 2).silent == {3}


def test_only_silent_brokers_are_fenced_and_released() -> None:
    fenced = FencedBrokers()
    known = brokers(1, 2, 3)
    known[2] = known[2]._replace(fenced=True)
    assert fenced.changes(known, {2, 3}) == ([known[3]], [])
    fenced.fence([known[3]])
    known[3] = known[3]._replace(fenced=True)
    assert fenced.changes(known, set()) == ([], [known[3]])


def test_broker_that_shuts_down_is_not_released() -> None:
    fenced = FencedBrokers()
    known = {3: Broker(3, 1, None, {}, fenced=True)}
    fenced.fence(known.values())
    fenced.release([(3, 1)])
    assert fenced.changes(known, set()) == ([], [])


def test_shutdown_of_an_earlier_registration_changes_nothing() -> None:
    fenced = FencedBrokers()
    known = {3: Broker(3, 2, None, {}, fenced=True)}
    fenced.fence(known.values())
    fenced.release([(3, 1)])
    assert fenced.changes(known, set()) == ([], [known[3]])


def looked(contacts: dict[int, float], now: float, *others: int) -> Verdict:
    """A look right after the one before, at brokers that sent their last request at these times, and broker 1."""
    liveness = BrokerLiveness(1, SESSION, PAUSE)
    liveness.begin(now)
    liveness.register(brokers(1, *contacts, *others), 0.0)
    for broker_id, at in contacts.items():
        liveness.note_request(broker_id, 1, at)
        liveness.note_answer(broker_id, 1, at)
    return liveness.look(now)


@pytest.mark.parametrize(("silence", "is_silent"), [(SESSION - 0.001, False), (SESSION, True), (SESSION + 1, True)])
def test_broker_is_silent_from_a_whole_session_on(silence: float, is_silent: bool) -> None:
    assert looked({2: 100.0, 3: 100.0 - silence}, 100.0).silent == (frozenset({3}) if is_silent else frozenset())


@pytest.mark.parametrize(("silence", "is_open"), [(SESSION / 2 - 0.001, False), (SESSION / 2, True)])
def test_cut_is_possible_while_most_requests_are_half_a_session_old(silence: float, is_open: bool) -> None:
    found = looked({2: 100.0 - silence, 3: 100.0 - silence, 4: 100.0 - silence, 5: 100.0}, 100.0)
    assert (found.silent is None) == is_open


def test_half_of_the_brokers_in_contact_are_enough_to_judge() -> None:
    assert looked({2: 100.0, 3: 98.0, 4: 96.0}, 100.0) == Verdict(frozenset({4}), yields=False)


def test_reign_begins_without_the_contacts_of_the_one_before() -> None:
    liveness = BrokerLiveness(1, SESSION, PAUSE)
    liveness.begin(0.0)
    liveness.register(brokers(1, 2, 3), 0.0)
    liveness.begin(100.0)
    liveness.register(brokers(1, 2, 3), 100.0)
    assert liveness.look(100.0) == Verdict(frozenset(), yields=False)


def test_unregistered_broker_counts_no_longer() -> None:
    liveness = BrokerLiveness(1, SESSION, PAUSE)
    liveness.begin(100.0)
    liveness.register(brokers(1, 2, 3), 97.0)
    liveness.register(brokers(1), 97.0)
    assert liveness.look(100.0) == Verdict(frozenset(), yields=False)


@pytest.mark.parametrize(("pause", "is_silent"), [(2 * PAUSE, True), (2 * PAUSE + 0.5, False)])
def test_only_more_than_two_pauses_are_a_standstill(pause: float, is_silent: bool) -> None:
    """A look may come late by a pause. A longer standstill does not count as silence."""
    liveness = BrokerLiveness(1, SESSION, PAUSE)
    liveness.begin(100.0 - pause)
    liveness.register(brokers(1, 2, 3), 100.0)
    liveness.register(brokers(1, 2), 100.0)
    liveness.register(brokers(1, 2, 3), 100.0 - SESSION)
    assert (liveness.look(100.0).silent == {3}) is is_silent


def test_excused_contact_is_not_in_the_future() -> None:
    liveness = BrokerLiveness(1, SESSION, PAUSE)
    liveness.begin(90.0)
    liveness.register(brokers(1, 2, 3), 99.0)
    liveness.look(100.0)
    liveness.note_request(2, 1, 103.0)
    liveness.note_answer(2, 1, 103.0)
    times = 100.0
    while times < 103.0:
        times += PAUSE
        found = liveness.look(times)
    assert found.silent == {3}


def test_reign_begins_without_fenced_brokers() -> None:
    fenced = FencedBrokers()
    known = {3: Broker(3, 1, None, {}, fenced=True)}
    fenced.fence(known.values())
    fenced.clear()
    assert fenced.changes(known, set()) == ([], [])


def test_registration_after_the_fence_is_not_the_fenced_one() -> None:
    fenced = FencedBrokers()
    fenced.fence(brokers(3).values())
    assert brokers(3)[3] in fenced
    assert brokers(3, epoch=2)[3] not in fenced
