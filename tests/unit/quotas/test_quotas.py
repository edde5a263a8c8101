"""Quotas: windows, clients that share one, and that no client exceeds a bound for long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metadata.image import ANY, ClientEntity
from odradek.quotas.client_quotas import ClientQuotas, ClientRateQuota
from odradek.quotas.connection_rates import ConnectionRates
from odradek.quotas.mutation_quota import MutationQuota, TokenBucket
from odradek.quotas.quota_table import QuotaTable
from odradek.quotas.windowed_rate import WindowedRate

KEY = "producer_byte_rate"


def test_a_burst_counts_over_all_windows_but_one() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(5000, 0)
    assert rate.per_second(0) == 500
    assert rate.throttle_ms(500, 0) == 0
    assert rate.throttle_ms(250, 0) == 10_000, "after ten more seconds 5000 bytes are 250 a second"
    assert rate.per_second(10_000) == 500, "ten full windows: no more are missing"
    assert rate.per_second(10_500) == pytest.approx(5000 / 10.5)
    assert rate.per_second(11_000) == 0
    assert rate.is_fresh(11_000)


def test_what_is_taken_back_did_not_happen() -> None:
    rate = WindowedRate(3, 1000)
    rate.record(10, 5)
    rate.record(90, 6)
    rate.take_back(90)
    assert rate.total(6) == 10


events = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10_000)), max_size=60)


@given(events, st.integers(1, 12), st.integers(1, 2000))
def test_the_total_is_what_happened_within_the_windows(
    steps: list[tuple[int, int]], samples: int, window_ms: int
) -> None:
    rate = WindowedRate(samples, window_ms)
    now = 0
    happened: list[tuple[int, int]] = []
    for step, amount in steps:
        now += step
        rate.record(amount, now)
        happened.append((now, amount))
        total = rate.total(now)
        # A window that began within the span may hold what came up to a window's length after its beginning.
        assert sum(a for t, a in happened if t > now - (samples - 1) * window_ms) <= total
        assert total <= sum(a for t, a in happened if t > now - samples * window_ms)
        assert rate.span_ms(now) >= max(samples - 1, 1) * window_ms
        assert rate.span_ms(now) <= max(samples, 1) * window_ms


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 50_000)), min_size=1, max_size=80))
def test_who_obeys_stays_within_the_bound(steps: list[tuple[int, int]]) -> None:
    """Whatever a producer sends: if it pauses for the throttle time, its mean over the whole run is near its quota."""
    bound = 1000
    quota = ClientRateQuota(KEY, 11, 1000)
    quota.update({ClientEntity(client_id="c"): {KEY: str(bound)}})
    now, sent, pause = 0.0, 0, 0
    for step, size in steps:
        now += max(step, pause)
        pause = quota.record("u", "c", size, now)
        sent += size
        if sent > 11 * bound:
            assert now + pause >= (sent - 11 * bound - size) / bound * 1000 / 2, "at most twice the rate at any time"
    assert sent <= 11 * bound + 2 * bound * (now + pause) / 1000 + max(size for _, size in steps)


@pytest.mark.parametrize(
    ("entity", "limit", "shared"),
    [
        (ClientEntity("u", "c"), 1, ClientEntity("u", "c")),
        (ClientEntity("u", ANY), 2, ClientEntity("u", "c")),
        (ClientEntity("u"), 3, ClientEntity("u")),
        (ClientEntity(ANY, "c"), 4, ClientEntity("u", "c")),
        (ClientEntity(ANY, ANY), 5, ClientEntity("u", "c")),
        (ClientEntity(ANY), 6, ClientEntity("u")),
        (ClientEntity(client_id="c"), 7, ClientEntity(client_id="c")),
        (ClientEntity(client_id=ANY), 8, ClientEntity(client_id="c")),
    ],
)
def test_the_most_specific_entry_wins(entity: ClientEntity, limit: int, shared: ClientEntity) -> None:
    weaker = {ClientEntity(client_id=ANY): 8, ClientEntity(client_id="c"): 7, ClientEntity(ANY): 6}
    weaker |= {ClientEntity(ANY, ANY): 5, ClientEntity(ANY, "c"): 4, ClientEntity("u"): 3}
    weaker |= {ClientEntity("u", ANY): 2, ClientEntity("u", "c"): 1}
    configs = {who: {KEY: str(value)} for who, value in weaker.items() if value >= limit}
    found = QuotaTable(KEY, configs).find("u", "c")
    assert found == (limit, shared)
    others = {ClientEntity("other"): {KEY: "9"}, ClientEntity(ip="1.2.3.4"): {KEY: "9"}, entity: {"request": "1"}}
    assert QuotaTable(KEY, others).find("u", "c") is None


def test_a_quota_of_a_user_counts_all_clients_of_the_user() -> None:
    quota = ClientRateQuota(KEY, 11, 1000)
    quota.update({ClientEntity("u"): {KEY: "100"}})
    assert quota.record("u", "a", 1000, 0) == 0
    assert quota.record("u", "b", 1000, 0) == 10_000
    assert quota.record("v", "b", 1_000_000, 0) == 0


def test_an_entry_for_everybody_gives_each_their_own() -> None:
    quota = ClientRateQuota(KEY, 11, 1000)
    quota.update({ClientEntity(client_id=ANY): {KEY: "100"}})
    assert quota.record("u", "a", 1000, 0) == 0
    assert quota.record("u", "b", 1000, 0) == 0
    assert quota.record("u", "b", 1, 0) > 0


def test_what_is_rejected_is_not_counted() -> None:
    quota = ClientRateQuota(KEY, 11, 1000)
    quota.update({ClientEntity(client_id="c"): {KEY: "100"}})
    assert quota.most_at_once("u", "c") == 1000
    assert quota.most_at_once("u", "d") is None
    assert quota.admit("u", "c", 1000, 0) == 0
    pause = quota.admit("u", "c", 500, 0)
    assert pause == 5000
    assert quota.admit("u", "c", 500, 0) == pause
    assert quota.admit("u", "c", 500, 11_000) == 0


def test_a_batch_above_the_whole_quota_goes_when_nothing_else_went() -> None:
    quota = ClientRateQuota(KEY, 11, 1000)
    quota.update({ClientEntity(client_id="c"): {KEY: "100"}})
    assert quota.admit("u", "c", 5000, 0) == 0
    assert quota.admit("u", "c", 5000, 0) > 0
    assert quota.admit("u", "c", 5000, 11_000) == 0


def test_clients_that_went_are_forgotten() -> None:
    quota = ClientRateQuota(KEY, 11, 1000)
    quota.update({ClientEntity(client_id=ANY): {KEY: "100"}})
    for number in range(20_000):
        quota.record("u", f"client-{number}", 1, number * 100)
    assert len(quota._rates) <= 1024 + 1
    quota.update({})
    assert not quota.active
    assert not quota._rates


def test_time_quota_delays_no_client_for_longer_than_a_window() -> None:
    quotas = ClientQuotas(11, 1)
    quotas.update({ClientEntity(client_id="slow"): {"request_percentage": "1"}})
    assert quotas.request.active
    assert quotas.request.record("u", "slow", 5, 0) == 0, "five hundredths of a second in ten are half a percent"
    assert quotas.request.record("u", "slow", 95, 0) == 1000, "ten times the bound would be ninety seconds"
    assert quotas.request.record("u", "other", 95, 0) == 0


def test_a_bucket_may_be_overdrawn_once_and_fills_again() -> None:
    bucket = TokenBucket(2, 10, 0)
    bucket.take(14, 0)
    assert bucket.lacking_ms(0) == 2000
    assert bucket.lacking_ms(1500) == 500
    assert bucket.lacking_ms(2000) == 0
    bucket.take(-3, 2000)
    bucket.take(3, 2000)
    assert bucket.lacking_ms(2000) == 0
    assert not bucket.is_full(6900)
    assert bucket.is_full(7000)
    bucket.take(-5, 7000)
    bucket.take(10, 7000)
    assert bucket.lacking_ms(7000) == 0, "it was full already: nothing is saved up"
    bucket.take(1, 7000)
    assert bucket.lacking_ms(7000) == 500


def test_bucket_is_not_overdrawn_after_the_stated_pause() -> None:
    """Sums of fractions must not leave the last bit of a token missing."""
    for late in range(1, 1000, 7):
        bucket = TokenBucket(0.5, 5.5, 0)
        bucket.take(6, 0)
        stated = bucket.lacking_ms(late)
        for part in range(1, 5):
            bucket.lacking_ms(late + stated * part / 7)
        assert bucket.lacking_ms(late + stated) == 0


def test_another_rate_holds_at_once_for_what_was_overdrawn_before() -> None:
    quota = MutationQuota(10)
    quota.update({ClientEntity(client_id="c"): {"controller_mutation_rate": "1"}})
    bucket = quota.bucket("u", "c", 0)
    assert bucket is not None
    bucket.take(20, 0)
    assert bucket.lacking_ms(0) == 10_000
    quota.update({ClientEntity(client_id="c"): {"controller_mutation_rate": "5"}})
    assert quota.bucket("u", "c", 0) is bucket
    assert bucket.lacking_ms(0) == 2000
    assert quota.bucket("u", "d", 0) is None
    quota.update({})
    assert not quota.active


def test_connections_of_an_address_come_too_early_and_do_not_count_then() -> None:
    rates = ConnectionRates(2, 1000)
    assert not rates.active
    rates.update({ClientEntity(ip="10.0.0.1"): {"connection_creation_rate": "2"}})
    assert rates.active
    assert [rates.from_address("10.0.0.1", 0) for _ in range(4)] == [0, 0, 500, 500]
    assert rates.from_address("10.0.0.2", 0) == 0
    assert rates.from_address("10.0.0.1", 1600) == 0
    rates.update({ClientEntity(ip="2001:DB8::0:1"): {"connection_creation_rate": "1"}})
    assert [rates.from_address("2001:db8::1", 0) for _ in range(2)] == [0, 1000]
    rates.update({ClientEntity(ip="10.0.0.4"): {"connection_creation_rate": "1"}})
    assert [rates.from_address("::ffff:10.0.0.4", 2000) for _ in range(2)] == [0, 1000]
    rates.update({ClientEntity(ip=ANY): {"connection_creation_rate": "1"}})
    assert [rates.from_address("10.0.0.3", 0) for _ in range(2)] == [0, 1000]
    rates.update({ClientEntity(ip="10.0.0.3"): {"connection_creation_rate": "0"}})
    assert rates.from_address("10.0.0.3", 0) == 1000
    rates.update({})
    assert not rates.active


def test_connections_of_all_wait() -> None:
    rates = ConnectionRates(2, 1000)
    assert [rates.from_anybody(2, 0) for _ in range(4)] == [0, 0, 500, 1000]
