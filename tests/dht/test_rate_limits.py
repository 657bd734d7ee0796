"""D10: limits of one address and of all, in and out."""

import pytest

from tracker.bittorrent import Address
from tracker.dht.rate_limits import IGNORE_SECONDS, MAX_HOSTS, InboundLimits, OutboundLimits


def host(number: int) -> Address:
    return Address(number.to_bytes(4, "big"))


def accepted(limits: InboundLimits, address: Address, *times: float) -> int:
    return sum(limits.refuse(address, at) is None for at in times)


class TestOneAddress:
    def test_ten_at_once_and_then_one_a_second(self) -> None:
        limits = InboundLimits(0)
        assert accepted(limits, host(1), *[0] * 50) == 10
        assert accepted(limits, host(1), *[5] * 20) == 5

    def test_a_flood_of_one_address_leaves_the_others_alone(self) -> None:
        limits = InboundLimits(0)
        for step in range(10_000):
            limits.refuse(host(1), step / 100)
            if step % 600 == 0:
                assert limits.refuse(host(2), step / 100) is None

    def test_ten_times_the_limit_for_ten_seconds_is_ignored_for_five_minutes(self) -> None:
        limits = InboundLimits(0)
        reasons = [limits.refuse(host(1), step / 20) for step in range(200)]
        assert reasons[99] == "address" and reasons[100:] == ["ignored"] * 100
        assert limits.refuse(host(1), 5 + IGNORE_SECONDS - 1) == "ignored"
        assert limits.refuse(host(1), 5 + IGNORE_SECONDS) is None

    def test_nine_times_the_limit_is_not_ignored(self) -> None:
        limits = InboundLimits(0)
        assert "ignored" not in {limits.refuse(host(1), step / 9) for step in range(2000)}

    def test_addresses_of_one_network_of_ipv6_count_as_one(self) -> None:
        limits = InboundLimits(0)
        network = b"\x20\x01\x0d\xb8" + bytes(4)
        addresses = [Address(network + number.to_bytes(8, "big")) for number in range(50)]
        assert sum(limits.refuse(address, 0) is None for address in addresses) == 10

    def test_clients_as_recorded_are_never_refused(self) -> None:
        """One get_peers and one announce_peer in six seconds, with a ping before."""
        limits = InboundLimits(0)
        for start in range(0, 3600, 6):
            assert accepted(limits, host(1), start, start + 0.1, start + 0.2) == 3


class TestAllTogether:
    def test_a_flood_of_many_addresses_is_cut(self) -> None:
        limits = InboundLimits(0)
        reasons = [limits.refuse(host(number), number / 1000) for number in range(10_000)]
        assert reasons.count(None) == pytest.approx(400 + 10 * 200, abs=2)
        assert set(reasons) == {None, "total"}
        assert len(limits.hosts) <= 400 + 10 * 200 + 1

    def test_a_flood_of_forged_addresses_displaces_no_address(self) -> None:
        """Else who has good timing makes the node send one victim all that the total limit allows."""
        limits = InboundLimits(0)
        forged = iter(range(1000, 10**6))
        assert accepted(limits, host(1), *[0] * 20) == 10
        for _ in range(400):
            limits.refuse(host(next(forged)), 0)
        answers = 0
        for step in range(1, 41):  # two seconds
            answers += accepted(limits, host(1), *[step / 20] * 11)
            for _ in range(MAX_HOSTS + 1):
                limits.refuse(host(next(forged)), step / 20)
        assert answers <= 3

    def test_the_least_recently_seen_makes_room(self) -> None:
        limits = InboundLimits(0, total_rate=1e6, total_burst=1e6)
        assert accepted(limits, host(0), *[0] * 20) == 10
        for number in range(1, MAX_HOSTS + 500):
            limits.refuse(host(number), 0)
            if number % 100 == 0:
                assert limits.refuse(host(0), 0) == "address", "it is seen all the time"
        assert len(limits.hosts) == MAX_HOSTS

    def test_bytes_are_limited(self) -> None:
        limits = InboundLimits(0)
        assert sum(limits.may_answer(1000, 0) for _ in range(100)) == 64
        assert sum(limits.may_answer(1000, 1) for _ in range(100)) == 64


class TestOutbound:
    def test_four_to_one_address_and_then_one_a_second(self) -> None:
        limits = OutboundLimits(0)
        sent = [at / 10 for at in range(1000) if limits.take(host(1), at / 10)]
        assert len(sent) <= 4 + 100
        for at in sent:
            assert sum(at <= other < at + 10 for other in sent) <= 14

    def test_fifty_a_second_to_all(self) -> None:
        limits = OutboundLimits(0)
        assert sum(limits.take(host(number), number / 1000) for number in range(5000)) <= 50 + 5 * 50
        assert len(limits.hosts) == MAX_HOSTS
