"""The demo's time limit scales with progress and with the machine."""

from odradek.cli.demo.patience import IDLE_START_SECONDS, Patience, Slowness


def test_patience_is_exhausted_when_nothing_progressed_for_its_seconds():
    patience = Patience(60, now=100)
    patience.observe(100, "marks", 1.0)
    patience.observe(160, "marks", 1.0)
    assert not patience.is_exhausted
    patience.observe(161, "marks", 1.0)
    assert patience.is_exhausted


def test_patience_starts_again_with_every_progress():
    patience = Patience(60, now=0)
    for number in range(100):
        patience.observe(number * 59, number, 1.0)
        assert not patience.is_exhausted
    assert patience.quiet_seconds == 0


def test_patience_counts_less_time_on_a_slow_machine():
    patience = Patience(60, now=0)
    patience.observe(1, "marks", 10.0)
    patience.observe(600, "marks", 10.0)
    assert not patience.is_exhausted
    patience.observe(700, "marks", 10.0)
    assert patience.is_exhausted
    assert patience.quiet_seconds == 699


def test_patience_grows_with_the_longest_gap_that_ended_in_progress():
    patience = Patience(10, now=0)
    patience.observe(0, "first", 1.0)
    patience.observe(9, "second", 1.0)
    patience.observe(9 + 26, "second", 1.0)
    assert patience.limit == 27
    assert not patience.is_exhausted
    patience.observe(9 + 28, "second", 1.0)
    assert patience.is_exhausted


def test_slowness_is_one_on_an_idle_machine():
    slowness = Slowness(cores=4)
    slowness.observe_start(IDLE_START_SECONDS / 2)
    slowness.observe_sleep(0.2, 0.2)
    assert slowness.factor(load=3) == 1


def test_slowness_is_the_largest_of_its_estimates():
    slowness = Slowness(cores=2)
    assert slowness.factor(load=60) == 30
    slowness.observe_start(20 * IDLE_START_SECONDS)
    assert slowness.factor(load=0) == 20
    for _ in range(50):
        slowness.observe_sleep(0.2, 8.0)
    assert 39 < slowness.factor(load=60) <= 40


def test_slowness_forgets_late_timers():
    slowness = Slowness(cores=1)
    slowness.observe_sleep(0.2, 20)
    late = slowness.factor(load=0)
    for _ in range(50):
        slowness.observe_sleep(0.2, 0.2)
    assert late > 10
    assert slowness.factor(load=0) < 1.1
