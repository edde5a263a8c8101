"""The producer stays close to Spark at first, and lets go of it as micro-batches prove fast."""

from odradek.cli.demo.pace import FIRST_RECORDS, GOOD_SECONDS, MOST_RECORDS, Pace


def test_first_micro_batch_is_small():
    assert Pace().allowed == FIRST_RECORDS


def test_window_doubles_after_fast_micro_batches_up_to_its_limit():
    pace, processed, windows = Pace(), 0, []
    for _ in range(6):
        processed = pace.allowed
        pace.finish_batch(processed, GOOD_SECONDS / 2)
        windows.append(pace.allowed - processed)
    assert windows == [10_000, 20_000, 40_000, MOST_RECORDS, MOST_RECORDS, MOST_RECORDS]


def test_window_shrinks_after_slow_micro_batches_and_stays_positive():
    pace = Pace()
    for _ in range(6):
        pace.finish_batch(pace.allowed, 1.0)
    processed = pace.allowed
    for expected in (30_000, 15_000, 7_500, FIRST_RECORDS, FIRST_RECORDS):
        pace.finish_batch(processed, 5 * GOOD_SECONDS)
        assert pace.allowed - processed >= expected
        processed = pace.allowed


def test_allowed_records_never_decrease():
    pace = Pace()
    pace.finish_batch(5_000, 1.0)
    allowed = pace.allowed
    pace.finish_batch(5_001, 100.0)
    assert pace.allowed == allowed
