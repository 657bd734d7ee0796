"""Rate limits of failed attempts, per address and in total, in bounded memory."""

import pytest

from tests.store.harness import Clock
from tracker.admin.auth import auth as module
from tracker.admin.auth.auth import Attempts, Pace


def test_failures_beyond_the_burst_have_to_wait() -> None:
    clock = Clock()
    attempts = Attempts(clock, Pace(3, 10.0), Pace(100, 1.0))
    assert [attempts.failed("192.0.2.1") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert attempts.failed("192.0.2.1") == 10.0
    assert attempts.failed("192.0.2.2") == 0.0
    clock.now += 4
    assert attempts.failed("192.0.2.1") == pytest.approx(6)
    clock.now += 6
    assert attempts.failed("192.0.2.1") == 0.0
    assert attempts.failed("192.0.2.1") > 0
    clock.now += 1000
    assert [attempts.failed("192.0.2.1") for _ in range(4)] == [0.0, 0.0, 0.0, 10.0]


def test_all_addresses_share_a_total_limit() -> None:
    attempts = Attempts(Clock(), Pace(3, 10.0), Pace(5, 2.0))
    assert [attempts.failed(f"192.0.2.{number}") for number in range(6)] == [0.0] * 5 + [2.0]


def test_an_ipv6_slash_64_counts_as_one_address() -> None:
    attempts = Attempts(Clock(), Pace(1, 10.0), Pace(100, 1.0))
    assert attempts.failed("2001:db8:1:2::1") == 0.0
    assert attempts.failed("2001:db8:1:2:ffff::9") == 10.0
    assert attempts.failed("2001:db8:1:3::1") == 0.0
    assert attempts.failed("::ffff:192.0.2.1") == attempts.failed("::ffff:192.0.2.2") == 0.0
    assert attempts.failed("") == 0.0
    assert attempts.failed("") == 10.0


def test_the_number_of_addresses_is_bounded() -> None:
    attempts = Attempts(Clock(), Pace(1, 10.0), Pace(10**6, 1.0))
    for number in range(module.MAX_ADDRESSES + 10):
        attempts.failed(f"10.0.{number // 256}.{number % 256}")
    assert len(attempts._buckets) == module.MAX_ADDRESSES
