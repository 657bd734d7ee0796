"""Connection ids: whom they prove, how long, and that no other bytes pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Address
from tracker.wire.connection_id import SLOT_SECONDS, ConnectionIds

SECRET = bytes(range(32))
NOW = 1_800_000_000.0
ADDRESS = Address(bytes((203, 0, 113, 7)))
ADDRESS6 = Address(bytes.fromhex("20010db8") + bytes(11) + b"\7")
addresses = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)).map(Address)
times = st.floats(0, 2**40)


@pytest.mark.parametrize(
    ("address", "now", "connection_id"),
    [(ADDRESS, NOW, "8043820f1e3884dc"), (ADDRESS, NOW + 300, "816a3560a5cca499"), (ADDRESS6, NOW, "80a761e462b3f5d0")],
)
def test_ids_have_these_bytes(address: Address, now: float, connection_id: str) -> None:
    """Trackers of all versions on one store must agree."""
    assert ConnectionIds(SECRET).issue(address, now).hex() == connection_id


@given(addresses, times, st.binary(min_size=32, max_size=32))
def test_an_id_is_valid_for_five_to_ten_minutes(address: Address, now: float, secret: bytes) -> None:
    connection_id = ConnectionIds(secret).issue(address, now)
    another_process = ConnectionIds(secret)
    begin = int(now) // SLOT_SECONDS * SLOT_SECONDS
    for valid in (now, now + SLOT_SECONDS, begin + 2 * SLOT_SECONDS - 1):
        assert another_process.is_valid(connection_id, address, valid)
    assert not another_process.is_valid(connection_id, address, begin + 2 * SLOT_SECONDS)


def test_an_id_of_a_host_whose_clock_is_ahead_is_valid() -> None:
    ids = ConnectionIds(SECRET)
    assert ids.is_valid(ids.issue(ADDRESS, NOW + SLOT_SECONDS), ADDRESS, NOW)
    assert not ids.is_valid(ids.issue(ADDRESS, NOW + 2 * SLOT_SECONDS), ADDRESS, NOW)


def test_an_id_is_not_valid_again_when_its_first_byte_repeats() -> None:
    ids = ConnectionIds(SECRET)
    connection_id = ids.issue(ADDRESS, NOW)
    later = NOW + 128 * SLOT_SECONDS
    assert ids.issue(ADDRESS, later)[0] == connection_id[0]
    assert not ids.is_valid(connection_id, ADDRESS, later)


@given(addresses, addresses, times)
def test_an_id_of_another_address_is_invalid(address: Address, other: Address, now: float) -> None:
    ids = ConnectionIds(SECRET)
    assert ids.is_valid(ids.issue(address, now), other, now) == (address == other)


def test_an_id_of_another_secret_is_invalid() -> None:
    connection_id = ConnectionIds(bytes(32)).issue(ADDRESS, NOW)
    assert not ConnectionIds(SECRET).is_valid(connection_id, ADDRESS, NOW)


@pytest.mark.parametrize("bit", range(64))
def test_an_id_with_any_bit_flipped_is_invalid(bit: int) -> None:
    ids = ConnectionIds(SECRET)
    flipped = int.from_bytes(ids.issue(ADDRESS, NOW), "big") ^ (1 << bit)
    assert not ids.is_valid(flipped.to_bytes(8, "big"), ADDRESS, NOW)


@given(times)
def test_an_id_is_never_one_that_clients_take_for_none(now: float) -> None:
    assert ConnectionIds(SECRET).issue(ADDRESS, now)[0] >= 0x80
