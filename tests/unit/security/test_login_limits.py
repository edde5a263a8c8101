"""Failed logins of an address are limited, and forgotten with time."""

from __future__ import annotations

from odradek.security.login_limits import MAX_ADDRESSES, LoginLimits


def test_address_is_blocked_after_its_limit_and_recovers() -> None:
    limits = LoginLimits()
    for _ in range(3):
        assert not limits.is_blocked("a", 3, 1000, 0)
        limits.failed("a", 3, 1000, 0)
    assert limits.is_blocked("a", 3, 1000, 0)
    assert not limits.is_blocked("b", 3, 1000, 0)
    assert not limits.is_blocked("a", 3, 1000, 400)
    limits.failed("a", 3, 1000, 400)
    assert limits.recent("a", 3, 1000, 5000) == 0


def test_limit_of_zero_blocks_no_address() -> None:
    limits = LoginLimits()
    for _ in range(1000):
        limits.failed("a", 0, 1000, 0)
    assert not limits.is_blocked("a", 0, 1000, 0)


def test_addresses_are_bounded() -> None:
    limits = LoginLimits()
    limits.failed("first", 1, 1000, 0)
    for number in range(MAX_ADDRESSES):
        limits.failed(str(number), 1, 1000, 0)
    assert not limits.is_blocked("first", 1, 1000, 0)
    assert limits.is_blocked("0", 1, 1000, 0)
